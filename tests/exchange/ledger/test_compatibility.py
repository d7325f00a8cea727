"""A write must match its exchange, or is refused with an error that names the difference."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import BadOption, ExchangeMismatch, KeyColumnMissing
from ffq_spark.exchange.ledger.compatibility import agree, propose
from ffq_spark.format.records import ExchangeRecord

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int32())])
EXISTING = ExchangeRecord.of(SCHEMA, ("k",), 4, "ffq", weight="w")


def proposed(existing: ExchangeRecord | None = None, **options: object) -> ExchangeRecord:
    return propose(write_options(**options), SCHEMA, None, existing, "root")  # type: ignore[arg-type]


def test_a_later_write_takes_what_it_does_not_name_from_the_exchange() -> None:
    assert proposed(EXISTING) == EXISTING
    assert proposed(EXISTING, keys=("k",), partitions=4, hash="ffq") == EXISTING


def test_a_first_write_without_keys_has_one_partition() -> None:
    assert proposed().partitions == 1


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"keys": ("k",)}, "partitions"),
        ({"partitions": 2}, "keys"),
        ({"keys": ("k",), "partitions": 2, "weight_column": "k"}, "weightColumn"),
    ],
)
def test_a_first_write_that_is_incomplete_names_the_option(
    options: dict[str, object], option: str
) -> None:
    with pytest.raises(BadOption, match=option):
        proposed(**options)


def test_a_key_that_is_no_column_is_refused() -> None:
    with pytest.raises(KeyColumnMissing, match="missing"):
        proposed(keys=("missing",), partitions=2)


@pytest.mark.parametrize(
    "change",
    [{"keys": ("v",)}, {"partitions": 8}, {"hash": "spark"}, {"weight": None}],
    ids=lambda change: next(iter(change)),
)
def test_what_the_exchange_fixes_cannot_change(change: dict[str, object]) -> None:
    with pytest.raises(ExchangeMismatch, match=next(iter(change))):
        agree(EXISTING, replace(EXISTING, **change), "root")  # type: ignore[arg-type]


def test_columns_are_compared_by_name_and_type() -> None:
    other = ExchangeRecord.of(
        pa.schema([("k", pa.int64()), ("v", pa.int8()), ("x", pa.int32())]), ("k",), 4
    )
    first = ExchangeRecord.of(SCHEMA, ("k",), 4)
    with pytest.raises(ExchangeMismatch) as caught:
        agree(first, other, "root")
    for name in ("v", "w", "x"):
        assert f"{name} is " in str(caught.value)
    assert " k is " not in str(caught.value)
    reordered = ExchangeRecord.of(pa.schema(list(SCHEMA)[::-1]), ("k",), 4)
    agree(first, reordered, "root")


def spark_record(*fields: dict[str, Any]) -> ExchangeRecord:
    """Make the record of strings, each given as a field of Spark's schema."""
    columns = [{"type": "string", "nullable": True, "metadata": {}, **field} for field in fields]
    names = [(field["name"], pa.string()) for field in fields]
    schema = json.dumps({"type": "struct", "fields": columns})
    return ExchangeRecord.of(pa.schema(names), (), 1, spark_schema=schema)


def collated(name: str, collation: str) -> dict[str, Any]:
    return {"name": name, "metadata": {"comment": "x", "__COLLATIONS": {name: collation}}}


def nested(collation: str | None) -> dict[str, Any]:
    """Return a struct whose string has a collation, as Spark's JSON has it."""
    child = collated("c", collation) if collation else {"name": "c", "metadata": {}}
    fields = [{"type": "string", "nullable": True, **child}]
    return {"name": "s", "type": {"type": "struct", "fields": fields}}


def test_collations_are_compared_and_other_metadata_is_not() -> None:
    """Spark's JSON has the collation of a string in the metadata of its column."""
    plain = spark_record({"name": "s", "metadata": {"comment": "y"}})
    lower = spark_record(collated("s", "spark.UTF8_LCASE"))
    agree(plain, spark_record({"name": "s"}), "root")
    agree(lower, spark_record(collated("s", "spark.UTF8_LCASE")), "root")
    for one, other in ((plain, lower), (lower, plain)):
        with pytest.raises(ExchangeMismatch, match=r"s is .*UTF8_LCASE"):
            agree(one, other, "root")
    with pytest.raises(ExchangeMismatch, match=r"s is .*icu\.UNICODE_CI.* in the write"):
        agree(lower, spark_record(collated("s", "icu.UNICODE_CI")), "root")
    with pytest.raises(ExchangeMismatch, match="s is "):
        agree(spark_record(nested(None)), spark_record(nested("spark.UTF8_LCASE")), "root")
    agree(spark_record(nested("icu.UNICODE")), spark_record(nested("icu.UNICODE")), "root")
