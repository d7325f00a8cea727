"""Every error that the product raises, each with a stable code, a class and a remedy.

>>> try:
...     raise CorruptPart("5 of 6 rows", path="shuffle/1/0/0/1/part-0.ipc")
... except FfqError as error:
...     print(error.code, error.error_class.value)
FFQ_CORRUPT_PART io
"""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows
from ffq_spark.errors.config import (
    BadOption,
    BadRequest,
    FfqConfigError,
    Forbidden,
    KeyColumnMissing,
    Unauthenticated,
    UnknownOption,
)
from ffq_spark.errors.execution import (
    AlreadyCommitted,
    BadCommit,
    Canceled,
    CommittedUnconfirmed,
    CommitUnknown,
    DuplicateBatch,
    Fenced,
    FfqExecutionError,
    Lost,
    Misplaced,
    NoOffsets,
    QueryFailed,
    Replaced,
    ReplayMismatch,
    StepGap,
    StreamOwned,
    TimedOut,
)
from ffq_spark.errors.io import (
    CorruptIndex,
    CorruptPart,
    CorruptRecord,
    FfqIoError,
    NoAnswer,
    StoreFailed,
    Unavailable,
)
from ffq_spark.errors.planning import (
    AttemptExists,
    Conflict,
    ExchangeMismatch,
    ExchangeNotFound,
    FfqPlanningError,
    NoAttempts,
    NoCommonVersion,
    NotRegistered,
    NotSorted,
    PartitionNotFound,
    QueryEnded,
    QueryExists,
    QueryNotFound,
    StatementActive,
    StepExpired,
    StepNotFound,
    TicketStale,
)
from ffq_spark.errors.unsupported import (
    FfqUnsupportedError,
    FutureFormat,
    StoreUnsafe,
    Unsupported,
    UnsupportedType,
)

__all__ = [
    "AlreadyCommitted",
    "AttemptExists",
    "BadCommit",
    "BadOption",
    "BadRequest",
    "Canceled",
    "CommitUnknown",
    "CommittedUnconfirmed",
    "Conflict",
    "CorruptIndex",
    "CorruptPart",
    "CorruptRecord",
    "DuplicateBatch",
    "ErrorClass",
    "ExchangeMismatch",
    "ExchangeNotFound",
    "Fenced",
    "FfqConfigError",
    "FfqError",
    "FfqExecutionError",
    "FfqIoError",
    "FfqPlanningError",
    "FfqUnsupportedError",
    "Forbidden",
    "FutureFormat",
    "KeyColumnMissing",
    "Lost",
    "Misplaced",
    "NoAnswer",
    "NoAttempts",
    "NoCommonVersion",
    "NoOffsets",
    "NotRegistered",
    "NotSorted",
    "PartitionNotFound",
    "QueryEnded",
    "QueryExists",
    "QueryFailed",
    "QueryNotFound",
    "Replaced",
    "ReplayMismatch",
    "Rows",
    "StatementActive",
    "StepExpired",
    "StepGap",
    "StepNotFound",
    "StoreFailed",
    "StoreUnsafe",
    "StreamOwned",
    "TicketStale",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "UnknownOption",
    "Unsupported",
    "UnsupportedType",
    "every_error",
]


def every_error() -> list[type[FfqError]]:
    """List the error classes that have a code of their own, in the order of their codes.

    >>> every_error()[0].code
    'FFQ_ALREADY_COMMITTED'
    """
    declared = [value for value in map(globals().get, __all__) if isinstance(value, type)]
    coded = [error for error in declared if issubclass(error, FfqError) and "code" in vars(error)]
    return sorted((error for error in coded if error is not FfqError), key=lambda e: e.code)


# Tracebacks and pickles name this package, whichever of its modules declares an error.
for _name in __all__:
    globals()[_name].__module__ = __name__
