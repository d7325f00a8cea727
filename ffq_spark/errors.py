"""Every error the product raises, each with a stable code, a class and a remedy.

>>> try:
...     raise CorruptPart("5 of 6 rows", path="shuffle/1/0/0/1/part-0.ipc")
... except FfqError as error:
...     print(error.code, error.error_class.value)
FFQ_CORRUPT_PART io
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


class ErrorClass(Enum):
    """The five classes of FFQ; a service maps them to status codes."""

    CONFIG = "config"
    PLANNING = "planning"
    EXECUTION = "execution"
    IO = "io"
    UNSUPPORTED = "unsupported"


class Rows(Enum):
    """What becomes of the rows of a write that raised an error."""

    NEVER = "never"
    """The rows are not visible and never will be: the write may be run again."""
    PENDING = "pending"
    """The rows are committed; the next read or write shows them: do not run the write again."""
    VISIBLE = "visible"
    """The rows are visible: do not run the write again."""
    UNKNOWN = "unknown"
    """Storage did not answer whether the rows are committed: look before you run it again."""


class FfqError(Exception):
    """The root of all errors: ``[CODE] what is wrong: subject. What to do.``

    The code is part of the text because exceptions cross the JVM as text.
    """

    code: ClassVar[str] = "FFQ_ERROR"
    error_class: ClassVar[ErrorClass] = ErrorClass.EXECUTION
    remedy: ClassVar[str] = ""
    rows: ClassVar[Rows] = Rows.NEVER

    def __init__(self, message: str, *, path: str | None = None, option: str | None = None) -> None:
        self.message = message
        self.path = path
        self.option = option
        super().__init__(self._text())

    def _text(self) -> str:
        subject = [f"file {self.path}"] if self.path else []
        subject += [f"option {self.option}"] if self.option else []
        about = f" ({', '.join(subject)})" if subject else ""
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.message}{about}{remedy}"

    def __str__(self) -> str:
        return self._text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.path, self.option)


def _rebuild(kind: type[FfqError], message: str, path: str | None, option: str | None) -> FfqError:
    return kind(message, path=path, option=option)


class FfqConfigError(FfqError, ValueError):
    """Options or arguments that cannot be right."""

    error_class = ErrorClass.CONFIG


class FfqPlanningError(FfqError, LookupError):
    """What was asked for does not fit what storage holds."""

    error_class = ErrorClass.PLANNING


class FfqExecutionError(FfqError, RuntimeError):
    """The work started and must not be completed."""

    error_class = ErrorClass.EXECUTION


class FfqIoError(FfqError, OSError):
    """Storage failed, or holds bytes that are not what was written."""

    error_class = ErrorClass.IO


class FfqUnsupportedError(FfqError, NotImplementedError):
    """Valid elsewhere, not possible here."""

    error_class = ErrorClass.UNSUPPORTED


class BadOption(FfqConfigError):
    """An option's value is wrong, or an option that is needed is missing."""

    code = "FFQ_BAD_OPTION"


class UnknownOption(FfqConfigError):
    """No option has this name."""

    code = "FFQ_UNKNOWN_OPTION"


class KeyColumnMissing(FfqConfigError):
    """A column named in `keys`, `sortBy`, `columns` or `statistics` does not exist."""

    code = "FFQ_COLUMN_MISSING"


class BadRequest(FfqConfigError):
    """A ticket, descriptor or action that the service cannot take for one."""

    code = "FFQ_BAD_REQUEST"


class Unauthenticated(FfqConfigError):
    """The service does not know the caller: no token, or one that it did not give out."""

    code = "FFQ_UNAUTHENTICATED"
    remedy = "Give `ffq.connect` a token that the service knows"


class Forbidden(FfqConfigError):
    """The caller's token does not allow this, or not for this exchange."""

    code = "FFQ_FORBIDDEN"
    remedy = "Ask whoever runs the service for a token with this scope and root"


class ExchangeMismatch(FfqPlanningError):
    """A write, or a read's schema, does not fit the exchange's keys, partitions, hash or schema."""

    code = "FFQ_EXCHANGE_MISMATCH"
    remedy = "Write with the exchange's own settings, or to a new root"


class ExchangeNotFound(FfqPlanningError):
    """Nothing that can be read is at this root."""

    code = "FFQ_EXCHANGE_NOT_FOUND"
    remedy = "Check the path, or write to it first"


class StepNotFound(FfqPlanningError):
    """The step is not in the log."""

    code = "FFQ_STEP_NOT_FOUND"
    remedy = "`ffq-spark steps ROOT` lists the steps there are"


class QueryNotFound(FfqPlanningError):
    """No query, stage or map task of this number."""

    code = "FFQ_QUERY_NOT_FOUND"
    remedy = "`ffq-spark attempts ROOT` lists what there is"


class QueryExists(FfqPlanningError):
    """The query number is taken: each is used once, for ever."""

    code = "FFQ_QUERY_EXISTS"
    remedy = "Leave the option `query` out, or give a new number"


class QueryEnded(FfqPlanningError):
    """The query has an outcome, which never changes."""

    code = "FFQ_QUERY_ENDED"


class TicketStale(FfqPlanningError):
    """What a ticket was made for is no longer what storage holds."""

    code = "FFQ_TICKET_STALE"
    remedy = "Ask for the flight's information again, and start the read anew"


class StepExpired(FfqPlanningError):
    """The step's data was removed after its retention."""

    code = "FFQ_STEP_EXPIRED"
    remedy = "`ffq-spark steps ROOT` lists the steps that can still be read"


class NoCommonVersion(FfqPlanningError):
    """The exchanges hold no batch of one stream in common."""

    code = "FFQ_NO_COMMON_VERSION"
    remedy = "Wait until the stream has written to all of them, or leave one out"


class Canceled(FfqExecutionError):
    """The query was canceled; nothing of it becomes visible."""

    code = "FFQ_CANCELED"


class QueryFailed(FfqExecutionError):
    """A query that was given to the service failed on Spark."""

    code = "FFQ_QUERY_FAILED"


class TimedOut(FfqExecutionError):
    """A query took longer than it may; its job was canceled."""

    code = "FFQ_TIMED_OUT"
    remedy = "Give it more time by `queryTimeout`, or let it do less"


class NotRegistered(FfqPlanningError):
    """The attempt is not the one that the step record names."""

    code = "FFQ_NOT_REGISTERED"


class NoAttempts(FfqPlanningError):
    """A map task without any complete attempt."""

    code = "FFQ_NO_ATTEMPTS"


class PartitionNotFound(FfqPlanningError):
    """The partition is outside the exchange, or not in the attempt's index."""

    code = "FFQ_PARTITION_NOT_FOUND"


class Fenced(FfqExecutionError):
    """Another process ended this query first; nothing of it becomes visible."""

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
    """The batch is in the log already; nothing of this run becomes visible."""

    code = "FFQ_DUPLICATE_BATCH"
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
        "only if that says FAILED or CANCELED; a batch of a stream may be run again in any case"
    )
    rows = Rows.UNKNOWN


class ReplayMismatch(FfqExecutionError):
    """A batch that was run again gave other rows than the first time."""

    code = "FFQ_REPLAY_MISMATCH"
    remedy = (
        "If the rows are new, number the batch anew, or set a new `streamRun` and "
        "`takeover=true`; if the batch was run again, make the query deterministic (no rand(), "
        "current_timestamp() or unstable order), or set `onMismatch=warn` to keep the first rows"
    )


class NoOffsets(FfqExecutionError):
    """The offsets that a batch was made from cannot be found."""

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


class CorruptPart(FfqIoError):
    """A part's bytes, rows or checksum differ from the manifest, or it is gone."""

    code = "FFQ_CORRUPT_PART"
    remedy = "Restore the file, or write the step again; `ffq-spark verify ROOT` lists all damage"


class CorruptIndex(FfqIoError):
    """An index that cannot be read, or that contradicts its own place."""

    code = "FFQ_CORRUPT_INDEX"
    remedy = "Restore the file, or write the step again"


class CorruptRecord(FfqIoError):
    """A record or manifest under `_ffq/` that cannot be read or is not what was committed."""

    code = "FFQ_CORRUPT_RECORD"
    remedy = "Restore the file; records are never repaired by guessing"


class StoreFailed(FfqIoError):
    """The storage, or the local disk, did not do what it was asked."""

    code = "FFQ_STORE_FAILED"


class NoAnswer(FfqIoError):
    """A Spark application did not answer, or not as Spark does."""

    code = "FFQ_NO_ANSWER"
    remedy = "Check the address: that of the application's UI (spark.ui.enabled) or history server"


class Unavailable(FfqIoError):
    """The service cannot be reached, is shutting down, or has no room for another call."""

    code = "FFQ_UNAVAILABLE"
    remedy = "Try again in a moment"


class StoreUnsafe(FfqUnsupportedError):
    """The store cannot create a file only if it does not exist yet."""

    code = "FFQ_STORE_UNSAFE"
    remedy = (
        "Use another store, or set unsafeCommit=true if there is only ever one writer at a time"
    )


class FutureFormat(FfqUnsupportedError):
    """The exchange was written in a format newer than this version understands."""

    code = "FFQ_FUTURE_FORMAT"
    remedy = "Upgrade ffq_spark"


class UnsupportedType(FfqUnsupportedError):
    """A column type that Arrow, or the chosen hash, cannot carry."""

    code = "FFQ_UNSUPPORTED_TYPE"


class Unsupported(FfqUnsupportedError):
    """A request that this version does not serve."""

    code = "FFQ_UNSUPPORTED"
