"""Errors of class `execution`: writes, batches and queries that must not be completed."""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows


class FfqExecutionError(FfqError, RuntimeError):
    """Work that started and must not be completed."""

    error_class = ErrorClass.EXECUTION
    rows = Rows.NEVER


class Canceled(FfqExecutionError):
    """The query was canceled; none of its rows become visible."""

    code = "FFQ_CANCELED"
    remedy = "Run the write again if it should not have been canceled; its rows were not added"


class QueryFailed(FfqExecutionError):
    """A statement that was submitted to the service failed in Spark."""

    code = "FFQ_QUERY_FAILED"
    remedy = "Correct the cause that the message or the service's log names, then submit it again"


class TimedOut(FfqExecutionError):
    """A statement ran longer than its limit, and its job was canceled."""

    code = "FFQ_TIMED_OUT"
    remedy = "Raise `queryTimeout`, or reduce the work of the statement"


class Fenced(FfqExecutionError):
    """Another process ended this query first; none of its rows become visible."""

    code = "FFQ_FENCED"
    remedy = "Run the write again; its rows were not added"


class StepGap(FfqExecutionError):
    """A stream's batch is neither in the log nor the next one."""

    code = "FFQ_STEP_GAP"
    remedy = (
        "Write the missing batch first; a batch that is older than the stream's first needs "
        "another `streamId`"
    )


class StreamOwned(FfqExecutionError):
    """The stream belongs to another streaming query or `streamRun`."""

    code = "FFQ_STREAM_OWNED"
    remedy = (
        "Give this one a `streamId` of its own; if the other is gone for good, `takeover=true` "
        "lets this one go on with the stream, all of its batches counting as new; a batch write "
        "that continues the other's numbers names it as its `streamRun`"
    )


class DuplicateBatch(FfqExecutionError):
    """The batch is in the log already; no rows of this run become visible."""

    code = "FFQ_DUPLICATE_BATCH"
    remedy = "Do not run the batch again"
    rows = Rows.VISIBLE


class AlreadyCommitted(FfqExecutionError):
    """Another commit of this query came first; the rows that it named are visible."""

    code = "FFQ_ALREADY_COMMITTED"
    remedy = "Do not run the write again"
    rows = Rows.VISIBLE


class CommittedUnconfirmed(FfqExecutionError):
    """The write is committed, but storage failed before its step was in the log."""

    code = "FFQ_COMMITTED_UNCONFIRMED"
    remedy = "Do not run the write again: the next read or write of the exchange shows its rows"
    rows = Rows.PENDING


class CommitUnknown(FfqExecutionError):
    """Storage, or the service, did not answer whether the write is committed."""

    code = "FFQ_COMMIT_UNKNOWN"
    remedy = (
        "Ask `ffq-spark status ROOT QUERY` when storage answers again, and run the write again "
        "only if that says FAILED or CANCELED; a query that stays QUEUED or RUNNING may still be "
        "committed, until `ffq-spark gc ROOT` ends it: once its lease has lapsed, or 24 hours "
        "after its begin if it has none; a batch of a stream may be run again in any case"
    )
    rows = Rows.UNKNOWN


class ReplayMismatch(FfqExecutionError):
    """A batch that was run again produced other rows than the first time."""

    code = "FFQ_REPLAY_MISMATCH"
    remedy = (
        "If the rows are new, number the batch anew, or set a new `streamRun` and "
        "`takeover=true`; if the batch was run again, make the query deterministic (no rand(), "
        "current_timestamp() or unstable order), or set `onMismatch=warn` to keep the first rows"
    )


class NoOffsets(FfqExecutionError):
    """The source offsets of a batch cannot be found."""

    code = "FFQ_NO_OFFSETS"
    remedy = "Give `checkpointLocation` as an option of the write, where this process can read it"


class Replaced(FfqExecutionError):
    """A stream of appended rows met a step that replaces all earlier ones."""

    code = "FFQ_REPLACED"
    remedy = (
        "Start a new query, which begins with the new snapshot, or set `onReplace` to `follow` or "
        "`skip`"
    )


class BadCommit(FfqExecutionError):
    """The commit messages do not describe exactly one attempt for each map task."""

    code = "FFQ_BAD_COMMIT"
    remedy = "Run the write again; its rows were not added"


class Lost(FfqExecutionError):
    """The lease of a query's initiator expired, and gc ended the query without its rows."""

    code = "FFQ_LOST"
    remedy = "Run the write again; its rows were not added"


class Misplaced(FfqExecutionError):
    """The tasks of a scan are not the partitions that Spark planned, or not in their order."""

    code = "FFQ_MISPLACED"
    remedy = "Set spark.ffq.planner.enabled=false, and report this"
