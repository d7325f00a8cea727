"""Options of a read."""

from __future__ import annotations

from dataclasses import dataclass

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
        "Read these steps alone, replaced or not: `17`, `10..17`, `latest`, `all`.",
        per_call=True,
        shown="the current snapshot",
    )
    as_of_step: int | None = option(
        "asOfStep",
        number(1),
        None,
        "Read the snapshot as it was after this step.",
        per_call=True,
        shown="the newest",
    )
    partitions: frozenset[int] | None = option(
        "partitions",
        partition_set,
        None,
        "Read these reduce partitions alone: `3`, `0-7,12`.",
        per_call=True,
        shown="all",
    )
    columns: tuple[str, ...] = option(
        "columns",
        names,
        (),
        "Read these columns alone, in this order.",
        per_call=True,
        shown="all",
    )
    attempt: str = option(
        "attempt",
        attempt,
        "registered",
        "Which attempt of each map task: `registered`, `latest` (or 0), or a number, the last two "
        "with `query`.",
        per_call=True,
    )
    query: int | None = option(
        "query",
        number(0),
        None,
        "Read one query's output, whether it is in the log or not.",
        per_call=True,
    )
    stage: int | None = option(
        "stage", number(0), None, "With `query`: the stage, if there are several.", per_call=True
    )
    verify: str = option(
        "verify",
        one_of("full", "counts", "none"),
        "full",
        "What is compared with the manifest before rows are given out: `full` (bytes, rows, "
        "checksum), `counts` (bytes and rows), `none`.",
    )
    credits: int = option(
        "credits",
        size,
        64 * MIB,
        "Bytes that one read task may have asked for and not yet given on; a larger range passes "
        "alone. Local files are read one range at a time in any case.",
        shown="64MiB",
    )
    target_partition_bytes: int = option(
        "targetPartitionBytes",
        size,
        128 * MIB,
        "Neighbouring partitions are read by one task up to this size.",
        shown="128MiB",
    )
    min_tasks: int = option("minTasks", number(1), 1, "At least so many read tasks, if possible.")
    max_tasks: int = option(
        "maxTasks", number(0), 0, "At most so many read tasks; 0 sets no limit."
    )
    prune_by_filters: bool = option(
        "pruneByFilters",
        boolean,
        False,
        "Let filters prune without the plugin too. Safe only for a DataFrame that is used in one "
        "query, once: Spark 4.3 plans its later scans with the filters of the first. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`. With the plugin filters always prune, and "
        "safely.",
        shown="false",
    )
    consolidate: bool = option(
        "consolidate",
        boolean,
        False,
        "With `weightColumn`: give each row once with the sum of its weights, and none whose sum "
        "is 0.",
        per_call=True,
        shown="false",
    )
    starting_step: str = option(
        "startingStep",
        starting_step,
        "earliest",
        "Where a stream begins: `earliest` (the current snapshot), `latest` (what comes from now "
        "on), or a step's number.",
        per_call=True,
    )
    max_steps_per_trigger: int = option(
        "maxStepsPerTrigger", number(0), 0, "At most so many steps in one batch; 0: no limit."
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size,
        None,
        "About so many bytes in one batch; always at least one step.",
        shown="no limit",
    )
    consumer: str = option(
        "consumer",
        safe_name,
        "",
        "A name under which a stream's progress is recorded; retention keeps what it has not read.",
        per_call=True,
    )
    on_replace: str = option(
        "onReplace",
        one_of("fail", "follow", "skip"),
        "fail",
        "What a stream does with a step that replaces all earlier ones: `fail`, `follow` (give its "
        "rows out as new ones) or `skip` it.",
        per_call=True,
    )
    metadata_columns: bool = option(
        "metadataColumns",
        boolean,
        False,
        "Add `_ffq_step`, `_ffq_query`, `_ffq_map_task`, `_ffq_attempt` and `_ffq_partition`.",
        shown="false",
    )
