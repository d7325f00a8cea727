"""Write one map attempt: batches in, parts and an index out.

An attempt writes only into its own directory, and its index last: a directory with parts but
without an index belongs to an attempt that did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.buffer import PartitionBuffer
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format import manifest
from ffq_spark.format.conform import conform
from ffq_spark.format.digest import Digest
from ffq_spark.format.ids import now_ms
from ffq_spark.format.index import IndexEntry, MapTaskIndex
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Codec, PartEncoder, PartTotals, Piece
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.store import Store


def write_attempt(
    store: Store,
    job: WriteJob,
    map_task: int,
    attempt: int,
    batches: Iterable[pa.RecordBatch],
) -> AttemptOutput:
    """Write all parts of one map attempt, and return what the commit needs to know about them."""
    id = AttemptId(job.query.query, job.query.stage, map_task, attempt)
    buffer = PartitionBuffer(job)
    digest = Digest()
    try:
        for batch in batches:
            if batch.num_rows:
                rows = _conform(batch, job.exchange)
                if job.digests:
                    digest += Digest.of(rows)
                buffer.add(rows)
        buffer.finish()
        parts = _write_parts(store, job, id, buffer)
        stats = buffer.stats()
    finally:
        buffer.close()
    index = MapTaskIndex(id, now_ms(), tuple(part.entry for part in parts))
    store.write(id.index_json, [index.to_json()])
    store.write(id.index_bin, [index.to_bin()])
    return AttemptOutput(id, manifest.encode(_manifest(job, id, parts, stats)), digest)


def _conform(batch: pa.RecordBatch, exchange: ExchangeRecord) -> pa.RecordBatch:
    """Give a batch the exchange's schema, and refuse other columns and rows without a weight."""
    schema, weight = exchange.schema, exchange.weight
    if sorted(batch.schema.names) != sorted(schema.names):
        expected, actual = ", ".join(schema.names), ", ".join(batch.schema.names)
        raise ExchangeMismatch(f"a batch has the columns {actual}; the exchange has {expected}")
    if weight is not None and batch.column(weight).null_count:
        raise ExchangeMismatch(f"a row has no weight: column {weight!r} is null")
    return conform(batch, schema)


@dataclass(frozen=True)
class _Written:
    """A written part: its entry in the index, and the checksums that only the manifest holds."""

    entry: IndexEntry
    checksum: int
    tail_bytes: int
    tail_checksum: int


def _write_parts(
    store: Store, job: WriteJob, id: AttemptId, buffer: PartitionBuffer
) -> list[_Written]:
    codec = Codec(job.exchange.schema, job.payload, job.compression)
    reduces = buffer.reduces().tolist()
    parts: list[_Written] = []
    if job.layout == "packed":
        if reduces:
            store.write(id.packed, _packed(id, buffer, reduces, codec, parts))
        return parts
    with store.uploads() as uploads:
        for reduce in reduces:
            encoder = codec.encoder()
            uploads.write(id.part(reduce), _pieces(encoder, buffer.part(reduce)))
            parts.append(_written(id, reduce, encoder.totals, codec))
    return parts


def _packed(
    id: AttemptId, buffer: PartitionBuffer, reduces: list[int], codec: Codec, parts: list[_Written]
) -> Iterator[Piece]:
    """Yield the bytes of all parts, one after the other, and append each to `parts`."""
    offset = 0
    for reduce in reduces:
        encoder = codec.encoder()
        yield from _pieces(encoder, buffer.part(reduce))
        parts.append(_written(id, reduce, encoder.totals, codec, offset))
        offset += encoder.totals.bytes


def _pieces(encoder: PartEncoder, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    yield encoder.start()
    for batch in batches:
        yield encoder.batch(batch)
    yield encoder.end()


def _written(
    id: AttemptId, reduce: int, totals: PartTotals, codec: Codec, offset: int | None = None
) -> _Written:
    framed = codec.payload == "ffqs"
    entry = IndexEntry(
        reduce=reduce,
        file=id.part(reduce),
        bytes=totals.bytes,
        rows=totals.rows,
        batches=totals.batches,
        codec=codec.compression if framed else None,
        compressed_bytes=totals.compressed_bytes,
        uncompressed_bytes=totals.uncompressed_bytes,
        chunks=tuple(totals.chunks),
        packed=None if offset is None else id.packed,
        offset=offset or 0,
    )
    return _Written(entry, totals.checksum, totals.tail_bytes, totals.tail_checksum)


def _manifest(
    job: WriteJob,
    id: AttemptId,
    parts: list[_Written],
    stats: pa.StructArray | None,
) -> pa.Table:
    count = len(parts)
    entries = [part.entry for part in parts]
    schema = manifest.manifest_schema(job.stats_fields)
    columns = {
        "stage": pa.repeat(pa.scalar(id.stage, pa.int64()), count),
        "map_task": pa.repeat(pa.scalar(id.map_task, pa.int64()), count),
        "attempt": pa.repeat(pa.scalar(id.attempt, pa.int64()), count),
        "reduce": [entry.reduce for entry in entries],
        "file": [entry.packed or entry.file for entry in entries],
        "offset": [entry.offset for entry in entries],
        "bytes": [entry.bytes for entry in entries],
        "rows": [entry.rows for entry in entries],
        "batches": [entry.batches for entry in entries],
        "checksum": [part.checksum for part in parts],
        "tail_bytes": [part.tail_bytes for part in parts],
        "tail_checksum": [part.tail_checksum for part in parts],
    }
    if "stats" in schema.names:
        kind = schema.field("stats").type
        columns["stats"] = pa.array([], kind) if stats is None else stats.cast(kind)
    return pa.table(
        [
            pa.array(c, f.type) if isinstance(c, list) else c
            for c, f in zip(columns.values(), schema, strict=True)
        ],
        schema=schema,
    )
