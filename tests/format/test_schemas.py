"""A missing column is an error that names the option and the existing columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ffq_spark.errors import KeyColumnMissing
from ffq_spark.format.schemas import require_column

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])


def test_a_column_is_found_by_its_name() -> None:
    assert require_column(SCHEMA, "name", "keys") == pa.field("name", pa.string())


@pytest.mark.parametrize("name", ["Name", "", "k "])
def test_a_missing_column_names_the_option_and_the_columns(name: str) -> None:
    with pytest.raises(KeyColumnMissing, match="in: k, name") as caught:
        require_column(SCHEMA, name, "sortBy")
    assert caught.value.option == "sortBy"
