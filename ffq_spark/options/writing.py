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
        "The columns that determine a row's partition, separated by commas. The first write needs "
        "them unless `partitions` is 1. Later writes use those of the exchange.",
        per_call=True,
    )
    partitions: int | None = option(
        "partitions",
        number(1, MAX_PARTITIONS),
        None,
        f"The number of reduce partitions, 1 to {MAX_PARTITIONS}. Later writes use the present "
        "number of the exchange, which `rescale` changes. They may name an earlier number.",
        per_call=True,
        shown="1 without keys",
    )
    hash: str = option(
        "hash",
        one_of("spark", "ffq"),
        "",
        "How rows are assigned to partitions. `spark`: Murmur3, the same as "
        "`pmod(hash(keys), partitions)` in Spark. `ffq`: SipHash-1-3, the same as in FFQ.",
        per_call=True,
        shown="spark",
    )
    compression: str = option(
        "compression",
        one_of("none", "lz4", "zstd"),
        "none",
        "`none`, `lz4` or `zstd`: compresses the Arrow buffers with `payload=arrow`, and whole "
        "frames with `payload=ffqs`. FFQ reads compressed parts only with `ffqs`.",
    )
    layout: str = option(
        "layout",
        one_of("parts", "packed"),
        "parts",
        "`parts`: a file for each partition of a map task, as in FFQ. `packed`: one file for all "
        "partitions of a map task, which needs far fewer requests on an object store.",
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
        "A column of signed integers that makes the rows a Z-set: the sum of the weights of equal "
        "rows is their count, so -1 retracts a row that was written with 1. Later writes use that "
        "of the exchange.",
        per_call=True,
    )
    sort_by: tuple[str, ...] = option(
        "sortBy",
        names,
        (),
        "The columns by which the rows of each part are sorted, ascending and nulls first.",
        per_call=True,
    )
    statistics: tuple[str, ...] = option(
        "statistics",
        names,
        ("auto",),
        "The columns for which the manifest has the minimum and maximum of each part: `auto` (the "
        "first 32 columns of fixed width), `all`, `none`, or names.",
        shown="auto",
    )
    max_buffer_bytes: int = option(
        "maxBufferBytes",
        size,
        256 * MIB,
        "Memory that one write task may use for rows. Rows above it are spilled to local disk.",
        shown="256MiB",
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "The number of this write's query. A number can be used only once in an exchange.",
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
        "The process that makes the write. The plugin sets it, with `query` and `leaseSeconds`.",
        per_call=True,
        shown="new",
    )
    lease_seconds: int = option(
        "leaseSeconds",
        number(0),
        0,
        "Seconds for which the initiator counts as alive after it has renewed its lease; 0 means "
        "that it has no lease.",
        per_call=True,
    )
    stream_id: str = option(
        "streamId",
        safe_name,
        "",
        "The stream that the batch belongs to. The batches of a stream become steps in order, each "
        "of them once. A stream belongs to one streaming query or `streamRun`.",
        per_call=True,
        shown="the id of the streaming query",
    )
    batch: int | None = option(
        "batch",
        number(0),
        None,
        "With `streamId`, in a batch write: the number of the batch. Writing the same batch again "
        "changes nothing.",
        per_call=True,
        shown="the micro-batch of the streaming query",
    )
    stream_run: str = option(
        "streamRun",
        safe_name,
        "",
        "With `streamId` and `batch`: the name of the batch numbering, which owns the stream. Keep "
        "it for as long as a number means the same batch, and choose a new one when the numbers "
        "start again. Batch writes without it, outside of foreachBatch, are a single owner.",
        per_call=True,
        shown="in foreachBatch: the id of the streaming query",
    )
    on_mismatch: str = option(
        "onMismatch",
        one_of("warn", "fail", "ignore"),
        "",
        "What to do if a batch is written again with other rows: `fail`, `warn` or `ignore`. The "
        "rows of the first write always stay, and the others are discarded.",
        shown="fail; in a streaming query: warn",
    )
    takeover: bool = option(
        "takeover",
        boolean,
        False,
        "Take over a stream from its owner, which is another streaming query or `streamRun` and "
        "cannot write to the stream from then on.",
        per_call=True,
        shown="false",
    )
    require_offsets: bool = option(
        "requireOffsets",
        boolean,
        False,
        "Refuse a batch whose source offsets cannot be recorded. They are read from the Spark "
        "checkpoint in the option `checkpointLocation`.",
        shown="false",
    )
    unsafe_commit: bool = option(
        "unsafeCommit",
        boolean,
        False,
        "Allow a store that cannot create a file atomically if it does not exist. Two concurrent "
        "writers may then lose a step.",
        shown="false",
    )
