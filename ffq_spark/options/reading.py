"""Options of a read, and the arguments of a read in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ffq_spark.options.declared import Options, option
from ffq_spark.options.parsing import (
    MIB,
    attempt,
    boolean,
    names,
    number,
    one_of,
    partition_set,
    safe_name,
    size,
    starting_step,
    text,
)


@dataclass(frozen=True)
class ReadOptions(Options):
    """Options of `spark.read.format("ffqshuffle")`."""

    steps: str = option(
        "steps",
        text,
        "",
        "Read only these steps, even if they have been replaced: `17`, `10..17`, `latest` or "
        "`all`.",
        per_call=True,
        shown="the current snapshot",
    )
    as_of_step: int | None = option(
        "asOfStep",
        number(1),
        None,
        "Read the snapshot as it was after this step.",
        per_call=True,
        shown="the newest step",
    )
    partitions: frozenset[int] | None = option(
        "partitions",
        partition_set,
        None,
        "Read only these reduce partitions: `3` or `0-7,12`.",
        per_call=True,
        shown="all",
    )
    columns: tuple[str, ...] = option(
        "columns",
        names,
        (),
        "Read only these columns, in this order.",
        per_call=True,
        shown="all",
    )
    attempt: str = option(
        "attempt",
        attempt,
        "registered",
        "The attempt to read of each map task: `registered`, `latest` (or 0), or a number. All but "
        "`registered` need `query`.",
        per_call=True,
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "Read the output of one query, even if it is not in the log.",
        per_call=True,
    )
    stage: int | None = option(
        "stage",
        number(0),
        None,
        "With `query`: the stage to read, if the query has several.",
        per_call=True,
    )
    verify: str = option(
        "verify",
        one_of("full", "counts", "none"),
        "full",
        "What a read compares with the manifest before it returns rows: `full` (bytes, rows and "
        "checksum), `counts` (bytes and rows) or `none`.",
    )
    credits: int = option(
        "credits",
        size,
        64 * MIB,
        "Bytes that one read task may have requested and not yet processed. A larger range is "
        "fetched alone. Local files are always read one range at a time.",
        shown="64MiB",
    )
    target_partition_bytes: int = option(
        "targetPartitionBytes",
        size,
        128 * MIB,
        "One task reads neighbouring partitions up to this size.",
        shown="128MiB",
    )
    min_tasks: int = option(
        "minTasks", number(1), 1, "The minimum number of read tasks, if the parts allow it."
    )
    max_tasks: int = option(
        "maxTasks", number(0), 0, "The maximum number of read tasks; 0 means no limit."
    )
    split: str = option(
        "split",
        one_of("never", "hash", "map"),
        "map",
        "How a partition that is much larger than `targetPartitionBytes` is read: `never` by one "
        "task; `map` by several tasks, each of some map tasks' parts; `hash` by several tasks that "
        "keep equal keys together, each of which reads all parts of the partition and returns its "
        "own rows. With `consolidate`, `map` means `never`. Scans that the plugin plans by "
        "partition do not split.",
        per_call=True,
    )
    prune_by_filters: bool = option(
        "pruneByFilters",
        boolean,
        False,
        "Let filters prune parts without the plugin. Safe only for a DataFrame that is used once, "
        "in one statement: Spark 4.3 plans its later scans with the filters of the first one. "
        "Needs `spark.sql.python.filterPushdown.enabled=true`. With the plugin, filters always "
        "prune, and the option is not needed.",
        shown="false",
    )
    consolidate: bool = option(
        "consolidate",
        boolean,
        False,
        "For an exchange with `weightColumn`: return each row once, with the sum of its weights, "
        "and leave out rows whose sum is 0.",
        per_call=True,
        shown="false",
    )
    merge_by: tuple[str, ...] = option(
        "mergeBy",
        names,
        (),
        "Merge the sorted parts of all partitions and steps: rows come in ascending order of these "
        "columns, nulls first, as by `ORDER BY`. Every step of the snapshot must be written with a "
        "`sortBy` that begins with them. Spark and the service read in one task, and rows beyond "
        "64 MiB go through local disk. Not for streams.",
        per_call=True,
        shown="no order",
    )
    starting_step: str = option(
        "startingStep",
        starting_step,
        "earliest",
        "Where a stream begins: `earliest` (the current snapshot), `latest` (only new steps), or "
        "the number of a step.",
        per_call=True,
    )
    max_steps_per_trigger: int = option(
        "maxStepsPerTrigger",
        number(0),
        0,
        "The maximum number of steps in one micro-batch; 0 means no limit.",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size,
        None,
        "The approximate size of one micro-batch; it always has at least one step.",
        shown="no limit",
    )
    consumer: str = option(
        "consumer",
        safe_name,
        "",
        "The name under which a stream's progress is recorded. Retention keeps the steps that the "
        "consumer has not read.",
        per_call=True,
    )
    on_replace: str = option(
        "onReplace",
        one_of("fail", "follow", "skip"),
        "fail",
        "What a stream does with a step that replaces all earlier ones: `fail`, `follow` (read its "
        "rows as new rows) or `skip` it.",
        per_call=True,
    )
    metadata_columns: bool = option(
        "metadataColumns",
        boolean,
        False,
        "Add the columns `_ffq_step`, `_ffq_query`, `_ffq_map_task`, `_ffq_attempt` and "
        "`_ffq_partition`.",
        shown="false",
    )


class ReadArguments(TypedDict, total=False):
    """The options of a read in Python's spelling, as `ReadOptions.of_python` takes them."""

    columns: Sequence[str] | str | None
    partitions: Iterable[int] | int | str | None
    steps: str | int | None
    as_of_step: int | None
    query: int | None
    stage: int | None
    attempt: int | str | None
    verify: str | None
    credits: int | str | None
    metadata_columns: bool | None
    consolidate: bool | None
    merge_by: Sequence[str] | str | None


class PlanArguments(ReadArguments, total=False):
    """The options of a read, and those that decide about its tasks."""

    target_partition_bytes: int | str | None
    min_tasks: int | None
    max_tasks: int | None
    split: str | None
