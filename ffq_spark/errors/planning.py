"""Errors of class `planning`: requests that do not fit what storage holds."""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows


class FfqPlanningError(FfqError, LookupError):
    """A request that does not fit what storage holds."""

    error_class = ErrorClass.PLANNING
    rows = Rows.NEVER


class ExchangeMismatch(FfqPlanningError):
    """A write, or a read's schema, does not fit the exchange's keys, partitions, hash or schema."""

    code = "FFQ_EXCHANGE_MISMATCH"
    remedy = (
        "Use the exchange's own columns and settings (`ffq-spark show ROOT`), or write to a new "
        "root"
    )


class ExchangeNotFound(FfqPlanningError):
    """The root holds no exchange that can be read."""

    code = "FFQ_EXCHANGE_NOT_FOUND"
    remedy = "Check the path, or write to it first"


class Conflict(FfqPlanningError):
    """Another caller made the same change to the exchange at the same time."""

    code = "FFQ_CONFLICT"
    remedy = "Look at the exchange (`ffq-spark show ROOT`), then repeat the call if it is needed"


class StepNotFound(FfqPlanningError):
    """The step is not in the log."""

    code = "FFQ_STEP_NOT_FOUND"
    remedy = "`ffq-spark steps ROOT` lists the steps of the log"


class QueryNotFound(FfqPlanningError):
    """No query, stage or map task has this number."""

    code = "FFQ_QUERY_NOT_FOUND"
    remedy = "`ffq-spark attempts ROOT` lists queries, stages and map tasks"


class QueryExists(FfqPlanningError):
    """The query number is taken: each number is used once."""

    code = "FFQ_QUERY_EXISTS"
    remedy = "Leave the option `query` out, or choose a new number"


class QueryEnded(FfqPlanningError):
    """The query has an outcome, and outcomes never change."""

    code = "FFQ_QUERY_ENDED"
    remedy = "Begin a new query"


class AttemptExists(FfqPlanningError):
    """The map task has this attempt already: an attempt is written and registered once."""

    code = "FFQ_ATTEMPT_EXISTS"
    remedy = "Give attempt 0 for the next free number"


class StatementActive(FfqPlanningError):
    """The statement is queued or running, and has no result yet."""

    code = "FFQ_STATEMENT_ACTIVE"
    remedy = "Wait until its status is SUCCEEDED"


class NotSorted(FfqPlanningError):
    """The parts of a step are not sorted by the columns of `mergeBy`."""

    code = "FFQ_NOT_SORTED"
    remedy = (
        "Write every step with a sortBy that begins with these columns, or read without mergeBy "
        "and sort the rows in the engine"
    )


class TicketStale(FfqPlanningError):
    """Storage no longer holds what the ticket was made for."""

    code = "FFQ_TICKET_STALE"
    remedy = "Ask the service for new flight information, and start the read again"


class StepExpired(FfqPlanningError):
    """Retention has deleted the step's data."""

    code = "FFQ_STEP_EXPIRED"
    remedy = (
        "`ffq-spark versions ROOT` shows which versions have expired; read a step of another one"
    )


class NoCommonVersion(FfqPlanningError):
    """The exchanges have no batch of one stream in common."""

    code = "FFQ_NO_COMMON_VERSION"
    remedy = "Wait until the stream has written to all of them, or leave one out"


class NotRegistered(FfqPlanningError):
    """The attempt is not the one that the step record names."""

    code = "FFQ_NOT_REGISTERED"
    remedy = "Ask for the registered attempt; `ffq-spark attempts ROOT` shows it"


class NoAttempts(FfqPlanningError):
    """A map task has no complete attempt."""

    code = "FFQ_NO_ATTEMPTS"
    remedy = "Wait until the map task has finished; `ffq-spark attempts ROOT` lists the attempts"


class PartitionNotFound(FfqPlanningError):
    """The partition is outside the exchange, or missing from the attempt's index."""

    code = "FFQ_PARTITION_NOT_FOUND"
    remedy = "Ask for a partition that exists; `ffq-spark show ROOT` prints their number"
