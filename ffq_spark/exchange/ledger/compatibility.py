"""Check that a write fits the exchange it goes to."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadOption, ExchangeMismatch
from ffq_spark.format.hashing import check_key_type
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.format.schemas import require_column
from ffq_spark.options import WriteOptions

_COLLATIONS = "__COLLATIONS"
"""The key in a field's metadata under which Spark's JSON has the collations of its strings."""


def propose(
    options: WriteOptions,
    schema: pa.Schema,
    spark_schema: str | None,
    existing: ExchangeRecord | None,
    root: str,
) -> ExchangeRecord:
    """Return the exchange that a write means: the existing one, or a new one from its options.

    >>> schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    >>> propose(WriteOptions(keys=("k",), partitions=4), schema, None, None, "r").partitions
    4
    """
    keys = options.keys or (existing.keys if existing else ())
    partitions = options.partitions or (existing.partitions if existing else None)
    if partitions is None:
        if keys:
            raise BadOption(
                "the first write with keys needs a number of partitions", option="partitions"
            )
        partitions = 1
    if not keys and partitions > 1:
        raise BadOption(f"{partitions} partitions need key columns", option="keys")
    hash = options.hash or (existing.hash if existing else "spark")
    for key in keys:
        check_key_type(key, require_column(schema, key, "keys").type, hash)
    weight = options.weight_column or (existing.weight if existing else None)
    if weight in keys:
        raise BadOption(f"{weight!r} is a key and cannot also be the weight", option="weightColumn")
    proposal = ExchangeRecord.of(schema, keys, partitions, hash, spark_schema, weight)
    if existing is None:
        return proposal
    agree(existing, proposal, root)
    return existing


def agree(existing: ExchangeRecord, proposal: ExchangeRecord, root: str) -> None:
    """Refuse a write whose keys, partitions, hash, weight or schema differ from the exchange's."""
    for name in ("keys", "partitions", "hash", "weight"):
        committed, proposed = getattr(existing, name), getattr(proposal, name)
        if committed != proposed:
            message = f"{name} of {root}: the exchange has {committed}, not {proposed}"
            raise ExchangeMismatch(message)
    _check_types(_arrow_types(existing), _arrow_types(proposal), root)
    if existing.spark_schema and proposal.spark_schema:
        # Arrow has one type where Spark may have several: strings, char, collations, variants.
        _check_types(_spark_types(existing), _spark_types(proposal), root)


def agree_in_order(existing: ExchangeRecord, proposal: ExchangeRecord, root: str) -> None:
    """Refuse parts that were written for another exchange, or with columns in another order.

    >>> schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    >>> swapped = pa.schema([schema.field("v"), schema.field("k")])
    >>> records = [ExchangeRecord.of(columns, ("k",), 4) for columns in (schema, swapped)]
    >>> agree(*records, "r")
    >>> agree_in_order(*records, "r")
    Traceback (most recent call last):
    ffq_spark.errors.ExchangeMismatch: [FFQ_EXCHANGE_MISMATCH] order of the columns of r: ...
    """
    agree(existing, proposal, root)
    committed, proposed = existing.schema.names, proposal.schema.names
    if committed != proposed:
        message = f"order of the columns of {root}: another first write fixed "
        message += f"{', '.join(committed)} while this one wrote {', '.join(proposed)}"
        raise ExchangeMismatch(f"{message}; run it again, which keeps the exchange's order")


def _check_types(committed: dict[str, Any], proposed: dict[str, Any], root: str) -> None:
    if committed != proposed:
        differences = [
            f"{name} is {committed.get(name, 'missing')} in the exchange, "
            f"{proposed.get(name, 'missing')} in the write"
            for name in {**committed, **proposed}
            if committed.get(name) != proposed.get(name)
        ]
        raise ExchangeMismatch(f"schema of {root}: {'; '.join(differences)}")


def _arrow_types(record: ExchangeRecord) -> dict[str, Any]:
    return {field.name: field.type for field in record.schema}


def _spark_types(record: ExchangeRecord) -> dict[str, Any]:
    document = _without_metadata(json.loads(record.spark_schema or "{}"))
    return {field["name"]: _spark_type(field) for field in document["fields"]}


def _spark_type(field: dict[str, Any]) -> Any:
    collations = field.get(_COLLATIONS)
    return f"{field['type']} with the collations {collations}" if collations else field["type"]


def _without_metadata(value: Any) -> Any:
    """Remove the metadata of all fields, except the collations, which are part of the types."""
    if isinstance(value, dict):
        kept = {k: _without_metadata(v) for k, v in value.items() if k != "metadata"}
        collations = value.get("metadata", {}).get(_COLLATIONS)
        return {**kept, _COLLATIONS: collations} if collations else kept
    return [_without_metadata(item) for item in value] if isinstance(value, list) else value
