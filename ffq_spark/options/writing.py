"""Options of a write."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.options.declared import Options, option
from ffq_spark.options.parsing import (
    MAX_PARTITIONS,
    MIB,
    boolean,
    names,
    number,
    one_of,
    safe_name,
    size,
    text,
)


@dataclass(frozen=True)
class WriteOptions(Options):
    """Options of `df.write.format("ffqshuffle")`."""

    keys: tuple[str, ...] = option(
        "keys",
        names,
        (),
        "Columns that decide a row's partition, separated by commas. Needed for the first write "
        "unless `partitions` is 1; later writes take the exchange's own.",
        per_call=True,
    )
    partitions: int | None = option(
        "partitions",
        number(1, MAX_PARTITIONS),
        None,
        f"Number of reduce partitions, 1 to {MAX_PARTITIONS}. Later writes take the exchange's.",
        per_call=True,
        shown="1 without keys",
    )
    hash: str = option(
        "hash",
        one_of("spark", "ffq"),
        "",
        "`spark`: Murmur3, placement equals `pmod(hash(keys), partitions)`. `ffq`: SipHash-1-3 as "
        "FFQ places rows.",
        per_call=True,
        shown="spark",
    )
    compression: str = option(
        "compression",
        one_of("none", "lz4", "zstd"),
        "none",
        "Of Arrow buffers (`payload=arrow`) or of whole frames (`payload=ffqs`). FFQ reads "
        "compressed parts only as `ffqs`.",
    )
    layout: str = option(
        "layout",
        one_of("parts", "packed"),
        "parts",
        "`parts`: a file for each partition of a map task, as FFQ has them. `packed`: one file for "
        "all partitions of a map task, far fewer requests on an object store.",
    )
    payload: str = option(
        "payload",
        one_of("arrow", "ffqs"),
        "arrow",
        "`arrow`: each part is one Arrow IPC stream. `ffqs`: FFQ version 2 frames.",
    )
    weight_column: str = option(
        "weightColumn",
        text,
        "",
        "A column of signed integers that makes the rows a Z-set: a row counts as often as the sum "
        "of its weights says, and -1 takes back what 1 gave. Later writes take the exchange's own.",
        per_call=True,
    )
    sort_by: tuple[str, ...] = option(
        "sortBy",
        names,
        (),
        "Columns by which the rows of each part are sorted: ascending, nulls first.",
        per_call=True,
    )
    statistics: tuple[str, ...] = option(
        "statistics",
        names,
        ("auto",),
        "Columns with min and max for each part: `auto` (fixed-width columns, the first 32), "
        "`all`, `none`, or names.",
        shown="auto",
    )
    max_buffer_bytes: int = option(
        "maxBufferBytes",
        size,
        256 * MIB,
        "Memory that one write task may use for rows; what exceeds it goes through local disk.",
        shown="256MiB",
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "The number of this write's query. Each is used once, for ever.",
        per_call=True,
        shown="new, ascending in time",
    )
    stage: int = option(
        "stage", number(0), 0, "The stage number in the data's paths.", per_call=True
    )
    initiator: str = option(
        "initiator",
        safe_name,
        "",
        "Who makes the write. The plugin sets it, with `query` and `leaseSeconds`.",
        per_call=True,
        shown="new",
    )
    lease_seconds: int = option(
        "leaseSeconds",
        number(0),
        0,
        "How long the initiator counts as alive after its last sign of life; 0: it gives none.",
        per_call=True,
    )
    stream_id: str = option(
        "streamId",
        safe_name,
        "",
        "The stream that a batch belongs to: its batches become steps in order, each once. It "
        "belongs to one streaming query or `streamRun`.",
        per_call=True,
        shown="of a streaming query its own id",
    )
    batch: int | None = option(
        "batch",
        number(0),
        None,
        "With `streamId`, in a batch write: the number of the batch. Run again it changes nothing.",
        per_call=True,
        shown="Spark's, of a streaming query",
    )
    stream_run: str = option(
        "streamRun",
        safe_name,
        "",
        "With `streamId` and `batch`: a name for the numbering, which owns the stream. Keep it for "
        "as long as a number means the same batch; choose a new one when the numbers begin anew. "
        "Batch writes without one, outside of foreachBatch, are all one owner.",
        per_call=True,
        shown="in foreachBatch the streaming query's id",
    )
    on_mismatch: str = option(
        "onMismatch",
        one_of("warn", "fail", "ignore"),
        "",
        "What to do if a batch that is run again gives other rows than the first time: `fail`, "
        "`warn` or `ignore` that they are discarded. The first run's rows stay in any case.",
        shown="fail; of a streaming query warn",
    )
    takeover: bool = option(
        "takeover",
        boolean,
        False,
        "Take a stream over from its owner, another streaming query or `streamRun`, which may then "
        "write to it no more.",
        per_call=True,
        shown="false",
    )
    require_offsets: bool = option(
        "requireOffsets",
        boolean,
        False,
        "Refuse a batch whose source offsets cannot be recorded; they are found through the option "
        "`checkpointLocation`.",
        shown="false",
    )
    unsafe_commit: bool = option(
        "unsafeCommit",
        boolean,
        False,
        "Allow a store that cannot create a file only if it does not exist. Two writers at once "
        "may then lose a step.",
        shown="false",
    )
