"""A missing column is an error that names the option and the existing columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ffq_spark.errors import KeyColumnMissing
from ffq_spark.format.schemas import decode_names, require_column

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])


def test_a_column_is_found_by_its_name() -> None:
    assert require_column(SCHEMA, "name", "keys") == pa.field("name", pa.string())


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.struct([("name", pa.int64())]),
        pa.list_(pa.field("name", pa.int64())),
        pa.map_(pa.string(), pa.struct([("name", pa.int64())])),
        pa.timestamp("us", "name"),
        pa.list_(pa.timestamp("us", "name")),
    ],
    ids=str,
)
def test_names_that_are_not_text_are_found_at_any_depth(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("name" if kind == pa.int64() else "v", kind)])
    decode_names(schema)
    data = schema.serialize().to_pybytes()
    damaged = pa.ipc.read_schema(pa.py_buffer(data.replace(b"name", b"nam\xff")))
    with pytest.raises(UnicodeDecodeError):
        decode_names(damaged)


@pytest.mark.parametrize("name", ["Name", "", "k "])
def test_a_missing_column_names_the_option_and_the_columns(name: str) -> None:
    with pytest.raises(KeyColumnMissing, match="in: k, name") as caught:
        require_column(SCHEMA, name, "sortBy")
    assert caught.value.option == "sortBy"
