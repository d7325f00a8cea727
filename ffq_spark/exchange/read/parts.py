"""Reading parts: exact ranges, verified against what was committed, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from ffq_spark.errors import CorruptPart, CorruptRecord
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.read.column_ranges import ColumnRanges, Selection
from ffq_spark.exchange.read.ranges import Range, join_ranges
from ffq_spark.format import paths, payload
from ffq_spark.format.chunks import check_chunks
from ffq_spark.format.conform import conform
from ffq_spark.format.index import Chunk
from ffq_spark.format.payload import Decoder
from ffq_spark.format.texts import as_binary
from ffq_spark.options import ReadOptions
from ffq_spark.store import Credits, ReadTotals, Store

METADATA_FIELDS = (
    pa.field("_ffq_step", pa.int64()),
    pa.field("_ffq_query", pa.int64()),
    pa.field("_ffq_map_task", pa.int64()),
    pa.field("_ffq_attempt", pa.int64()),
    pa.field("_ffq_partition", pa.int32()),
)
_METADATA_SOURCES = ("step", "query", "map_task", "attempt", "reduce")

RANGES_AT_ONCE = 4
"""So many ranges of the largest size share the credits."""
# So many parts' tails are asked for together, ahead of their columns.
_TAILS_AT_ONCE = 16

Part = dict[str, Any]


def read_parts(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    metadata: bool = False,
    verify: str = "full",
    credits: int = ReadOptions.credits,
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts; one that is not what was committed is an error.

    `schema` is the exchange's; `columns` of it are given, in that order. Parts come in their order,
    except that those of one packed file stay together.
    """
    shape = RowShape(schema, columns, metadata=metadata)
    opened = Selection(schema, shape.opened, local=store.is_local)
    for part, data in fetch_parts(store, parts, verify, credits, totals, opened):
        path = store.url(part["file"])
        yield from shape.rows(part, decode_part(shape.decoder, part, data, path, verify))


class RowShape:
    """Which columns of an exchange a read gives, and how a part's batches become such rows."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str] | None, *, metadata: bool = False
    ) -> None:
        chosen = list(schema.names if columns is None else columns)
        self._wanted = pa.schema([schema.field(name) for name in chosen])
        self._metadata = metadata
        # A read of metadata columns alone still needs one column, to count rows by.
        self.opened = chosen or schema.names[:1]
        self.decoder = open_columns(schema, self.opened)
        self.schema = pa.schema([*self._wanted, *(METADATA_FIELDS if metadata else ())])

    def rows(self, part: Part, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a part as this read gives them."""
        for batch in batches:
            rows = conform(batch, self._wanted) if len(self._wanted) else batch.select([])
            if not self._metadata:
                yield rows
                continue
            arrays = [*rows.columns, *_metadata_arrays(part, batch.num_rows)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def open_columns(schema: pa.Schema, columns: Sequence[str]) -> Decoder:
    """What decodes these columns of parts."""
    return Decoder(schema, None if set(columns) == set(schema.names) else columns)


def fetch_parts(
    store: Store,
    parts: pa.Table,
    verify: str,
    credits: int,
    totals: ReadTotals | None,
    columns: Selection,
) -> Iterator[tuple[Part, pa.Buffer]]:
    """Each part with its bytes, compared with the manifest before anything is decoded.

    Where that saves enough of them, only those are fetched that the columns need.
    """
    totals = totals or ReadTotals()
    limit = max(credits // RANGES_AT_ONCE, 1)
    ranges = join_ranges(parts, limit, columns.pays(parts))
    fetched = store.fetch(
        partial(_fetch, store, verify),
        _requests(store, ranges, columns, verify, credits, totals),
        lambda request: request.length,
        Credits(credits),
        totals,
        lambda request: len(request.spans),
    )
    for request, data in fetched:
        if isinstance(request, ColumnRanges):
            yield request.part, data
            continue
        for part in request.parts.to_pylist():
            start = part["offset"] - request.start
            # A file that grew is as wrong as one that was cut.
            end = len(data) if part["ends_file"] else start + part["bytes"]
            yield part, _checked(data[start:end], part, store.url(part["file"]), verify)


def _requests(
    store: Store,
    ranges: Iterator[Range],
    columns: Selection,
    verify: str,
    credits: int,
    totals: ReadTotals,
) -> Iterator[Range | ColumnRanges]:
    """The ranges in their order, of parts whose columns are told apart only what these need."""
    while some := list(islice(ranges, _TAILS_AT_ONCE)):
        alone = (range.parts.to_pylist()[0] for range in some if range.alone)
        tails = store.fetch(
            partial(_fetch_tail, store, verify),
            alone,
            lambda part: part["tail_bytes"],
            Credits(credits),
            totals,
        )
        for range in some:
            found = None
            if range.alone:
                part, tail = next(tails)
                found = columns.ranges(part, tail, store.url(range.file), verify)
            yield found or range


def _fetch_tail(store: Store, verify: str, part: Part) -> pa.Buffer:
    size = part["tail_bytes"]
    start = part["offset"] + part["bytes"] - size
    tail = fetch_range(store, part["file"], start, size + part["ends_file"], part["step"])
    if len(tail) < size or (len(tail) > size and verify != "none"):
        found = "fewer bytes" if len(tail) < size else "more bytes"
        raise CorruptPart(f"{found} instead of {part['bytes']}", path=store.url(part["file"]))
    return tail[:size]


def _fetch(store: Store, verify: str, request: Range | ColumnRanges) -> pa.Buffer:
    if isinstance(request, Range):
        return _fetch_range(store, request)
    part = request.part
    fetched = (
        fetch_range(store, part["file"], part["offset"] + start, end - start, part["step"])
        for start, end in request.spans
    )
    return request.stream(fetched, store.url(part["file"]), verify)


def fetch_part(store: Store, part: Part, *, verify: str = "full") -> pa.Buffer:
    """The bytes of one part."""
    length = part["bytes"] + part["ends_file"]
    data = fetch_range(store, part["file"], part["offset"], length, part["step"])
    return _checked(data, part, store.url(part["file"]), verify)


def _fetch_range(store: Store, range: Range) -> pa.Buffer:
    step = range.parts["step"][0].as_py()
    return fetch_range(store, range.file, range.start, range.asked, step)


def fetch_range(store: Store, file: str, start: int, length: int, step: int | None) -> pa.Buffer:
    """Bytes of a file that holds parts of a step; the file's absence is explained."""
    path = store.url(file)
    if not paths.is_data(file):
        raise CorruptRecord("a part outside the exchange's data", path=path)
    try:
        return store.read_range(file, start, length)
    except FileNotFoundError as error:
        if step is not None:
            StepLog(store).refuse_expired(step)
        raise CorruptPart("the part is missing", path=path) from error


def _checked(data: pa.Buffer, part: Part, path: str, verify: str) -> pa.Buffer:
    if verify != "none" and len(data) != part["bytes"]:
        found = f"{len(data)} bytes" if len(data) < part["bytes"] else "more bytes"
        raise CorruptPart(f"{found} instead of {part['bytes']}", path=path)
    if verify == "full":
        expected, chunks = part.get("checksum"), part.get("chunks")
        if expected is not None and payload.checksum(data) != expected:
            raise CorruptPart("checksum mismatch", path=path)
        if chunks:
            check_chunks(data, [Chunk(**chunk) for chunk in chunks], path)
    return data


def decode_part(
    decoder: Decoder, part: Part, data: pa.Buffer, path: str, verify: str = "full"
) -> Iterator[pa.RecordBatch]:
    """The batches of one part, as many rows as were committed."""
    return decode_batches(decoder.batches(data, path), part, path, verify)


def decode_batches(
    found: Iterable[pa.RecordBatch], part: Part, path: str, verify: str = "full"
) -> Iterator[pa.RecordBatch]:
    """These batches of one part, as many rows as were committed."""
    rows = batches = 0
    source = iter(found)
    while (batch := next(source, None)) is not None:
        if verify != "full" or part.get("checksum") is None:
            # Without a checksum, at least no offset may point outside its buffer.
            validate(batch, path, full=verify == "full")
        rows += batch.num_rows
        batches += 1
        if not batch.num_rows:
            continue
        given = [batch]
        # While the user has the batch, nothing here keeps it in memory.
        del batch
        yield given.pop()
    if verify != "none":
        check_counts(rows, batches, part, path)


def check_counts(rows: int, batches: int, part: Part, path: str) -> None:
    """Refuse a part that has other rows or batches than were committed."""
    if (rows, batches) != (part["rows"], part["batches"]):
        counted = f"{rows} rows in {batches} batches"
        message = f"{counted} instead of {part['rows']} in {part['batches']}"
        raise CorruptPart(message, path=path)


def validate(batch: pa.RecordBatch, path: str, *, full: bool, any_bytes: bool = True) -> None:
    """Refuse a batch whose buffers cannot be what they say; strings may hold any bytes, or not."""
    try:
        batch.validate()
        for column in batch.columns if full else ():
            kind = as_binary(column.type) if any_bytes else column.type
            (column if kind == column.type else column.view(kind)).validate(full=True)
    except pa.ArrowException as error:
        raise CorruptPart(f"not valid Arrow data: {error}", path=path) from error


def _metadata_arrays(part: Part, count: int) -> list[pa.Array]:
    return [
        pa.repeat(pa.scalar(part[source], field.type), count)
        for source, field in zip(_METADATA_SOURCES, METADATA_FIELDS, strict=True)
    ]
