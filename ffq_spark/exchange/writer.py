"""Writing one map attempt: batches in, parts and an index out.

An attempt writes only into its own directory, and its index last: parts without an index are an
attempt that did not finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.ledger import AttemptOutput
from ffq_spark.exchange.runs import Runs
from ffq_spark.format import manifest
from ffq_spark.format.conform import conform
from ffq_spark.format.digest import Digest
from ffq_spark.format.ids import now_ms
from ffq_spark.format.index import IndexEntry, MapTaskIndex
from ffq_spark.format.layout import AttemptId
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
    """Write all parts of one map attempt and give what the commit needs to know of them."""
    id = AttemptId(job.query.query, job.query.stage, map_task, attempt)
    runs = Runs(job)
    digest = Digest()
    try:
        for batch in batches:
            if batch.num_rows:
                rows = _fitting(batch, job.exchange)
                digest += Digest.of(rows) if job.digests else Digest()
                runs.add(rows)
        runs.finish()
        entries, checksums = _write_parts(store, job, id, runs)
        stats = runs.stats()
    finally:
        runs.close()
    index = MapTaskIndex(id, now_ms(), tuple(entries))
    store.write(id.index_json, [index.to_json()])
    store.write(id.index_bin, [index.to_bin()])
    table = _manifest(job, id, entries, checksums, stats)
    return AttemptOutput(id, manifest.encode(table), digest)


def _fitting(batch: pa.RecordBatch, exchange: ExchangeRecord) -> pa.RecordBatch:
    schema, weight = exchange.schema, exchange.weight
    if sorted(batch.schema.names) != sorted(schema.names):
        there, given = ", ".join(schema.names), ", ".join(batch.schema.names)
        raise ExchangeMismatch(f"a batch has the columns {given}; the exchange has {there}")
    if weight is not None and batch.column(weight).null_count:
        raise ExchangeMismatch(f"a row has no weight: column {weight!r} is null")
    return conform(batch, schema)


def _write_parts(
    store: Store, job: WriteJob, id: AttemptId, runs: Runs
) -> tuple[list[IndexEntry], list[int]]:
    codec = Codec(job.exchange.schema, job.payload, job.compression)
    entries, checksums = [], []
    with store.uploads() as uploads:
        for reduce in runs.reduces().tolist():
            encoder = codec.encoder()
            uploads.write(id.part(reduce), _pieces(encoder, runs.part(reduce)))
            entries.append(_entry(id, reduce, encoder.totals, codec))
            checksums.append(encoder.totals.checksum)
    return entries, checksums


def _pieces(encoder: PartEncoder, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    yield encoder.start()
    for batch in batches:
        yield encoder.batch(batch)
    yield encoder.end()


def _entry(id: AttemptId, reduce: int, totals: PartTotals, codec: Codec) -> IndexEntry:
    framed = codec.payload == "ffqs"
    return IndexEntry(
        reduce=reduce,
        file=id.part(reduce),
        bytes=totals.bytes,
        rows=totals.rows,
        batches=totals.batches,
        codec=codec.compression if framed else None,
        compressed_bytes=totals.compressed_bytes,
        uncompressed_bytes=totals.uncompressed_bytes,
        chunks=tuple(totals.chunks),
    )


def _manifest(
    job: WriteJob,
    id: AttemptId,
    entries: list[IndexEntry],
    checksums: list[int],
    stats: pa.StructArray | None,
) -> pa.Table:
    count = len(entries)
    schema = manifest.manifest_schema(job.stats_fields)
    columns = {
        "stage": pa.repeat(pa.scalar(id.stage, pa.int64()), count),
        "map_task": pa.repeat(pa.scalar(id.map_task, pa.int64()), count),
        "attempt": pa.repeat(pa.scalar(id.attempt, pa.int64()), count),
        "reduce": [entry.reduce for entry in entries],
        "file": [entry.file for entry in entries],
        "offset": pa.repeat(pa.scalar(0, pa.int64()), count),
        "bytes": [entry.bytes for entry in entries],
        "rows": [entry.rows for entry in entries],
        "batches": [entry.batches for entry in entries],
        "checksum": checksums,
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
