"""Reading parts: exact ranges, verified against what was committed, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ffq_spark.errors import CorruptPart, CorruptRecord
from ffq_spark.exchange.log import StepLog
from ffq_spark.format import layout, payload
from ffq_spark.format.conform import conform
from ffq_spark.format.index import Chunk
from ffq_spark.store import Store

METADATA_FIELDS = (
    pa.field("_ffq_step", pa.int64()),
    pa.field("_ffq_query", pa.int64()),
    pa.field("_ffq_map_task", pa.int64()),
    pa.field("_ffq_attempt", pa.int64()),
    pa.field("_ffq_partition", pa.int32()),
)
_METADATA_SOURCES = ("step", "query", "map_task", "attempt", "reduce")

Part = dict[str, Any]


def read_parts(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    metadata: bool = False,
    verify: str = "full",
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts, in their order; a part that is not what was committed is an error.

    `schema` is the exchange's; `columns` of it are given, in that order.
    """
    chosen = list(schema.names if columns is None else columns)
    wanted = pa.schema([schema.field(name) for name in chosen])
    # A read of metadata columns alone still needs one column, to count rows by.
    opened = chosen or schema.names[:1]
    pruned = None if set(opened) == set(schema.names) else opened
    for part in _rows(parts):
        for batch in read_part(store, part, schema, columns=pruned, verify=verify):
            arrays = conform(batch, wanted).columns if chosen else []
            extra = _metadata_arrays(part, batch.num_rows) if metadata else []
            fields = [*wanted, *(METADATA_FIELDS if metadata else ())]
            yield pa.RecordBatch.from_arrays([*arrays, *extra], schema=pa.schema(fields))


def _rows(parts: pa.Table) -> Iterator[Part]:
    for batch in parts.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()


def read_part(
    store: Store,
    part: Part,
    schema: pa.Schema | None = None,
    *,
    columns: list[str] | None = None,
    verify: str = "full",
) -> Iterator[pa.RecordBatch]:
    """The batches of one part."""
    path = store.url(part["file"])
    data = fetch_part(store, part, verify=verify)
    if schema is not None:
        _check_schema(payload.decode_schema(data, path), schema, path)
    rows = batches = 0
    for batch in payload.decode(data, path, columns=columns):
        if verify != "full" or part.get("checksum") is None:
            # Without a checksum, at least no offset may point outside its buffer.
            _validate(batch, path, full=verify == "full")
        rows += batch.num_rows
        batches += 1
        yield batch
    if verify != "none" and (rows, batches) != (part["rows"], part["batches"]):
        found = f"{rows} rows in {batches} batches"
        message = f"{found} instead of {part['rows']} in {part['batches']}"
        raise CorruptPart(message, path=path)


def fetch_part(store: Store, part: Part, *, verify: str = "full") -> pa.Buffer:
    """The bytes of one part, compared with the manifest before anything is decoded."""
    path, size = store.url(part["file"]), part["bytes"]
    if not layout.is_data(part["file"]):
        raise CorruptRecord("a part outside the exchange's data", path=path)
    # One byte more than the part has: a file that grew is as wrong as one that was cut.
    try:
        data = store.read_range(part["file"], part["offset"], size + 1)
    except FileNotFoundError as error:
        if (step := part.get("step")) is not None:
            StepLog(store).refuse_expired(step)
        raise CorruptPart("the part is missing", path=path) from error
    if verify != "none" and len(data) != size:
        found = f"{len(data)} bytes" if len(data) < size else "more bytes"
        raise CorruptPart(f"{found} instead of {size}", path=path)
    if verify == "full":
        expected, chunks = part.get("checksum"), part.get("chunks")
        if expected is not None and payload.checksum(data) != expected:
            raise CorruptPart("checksum mismatch", path=path)
        if chunks:
            payload.check_chunks(data, tuple(Chunk(**chunk) for chunk in chunks), path)
    return data


def _check_schema(found: pa.Schema, expected: pa.Schema, path: str) -> None:
    if found.names != expected.names or found.types != expected.types:
        raise CorruptPart(f"its columns are {_text(found)}, not {_text(expected)}", path=path)


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _validate(batch: pa.RecordBatch, path: str, *, full: bool) -> None:
    try:
        batch.validate(full=full)
    except pa.ArrowException as error:
        raise CorruptPart(f"not valid Arrow data: {error}", path=path) from error


def _metadata_arrays(part: Part, count: int) -> list[pa.Array]:
    return [
        pa.repeat(pa.scalar(part[source], field.type), count)
        for source, field in zip(_METADATA_SOURCES, METADATA_FIELDS, strict=True)
    ]
