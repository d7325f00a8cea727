"""Errors of class `io`: storage and network failures, and corrupt files."""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows


class FfqIoError(FfqError, OSError):
    """A storage failure, or bytes that differ from what was written."""

    error_class = ErrorClass.IO
    rows = Rows.NEVER


class CorruptPart(FfqIoError):
    """A part is missing, or its bytes, rows or checksum differ from the manifest."""

    code = "FFQ_CORRUPT_PART"
    remedy = "Restore the file, or write the step again; `ffq-spark verify ROOT` lists all damage"


class CorruptIndex(FfqIoError):
    """An index cannot be read, or contradicts its own path."""

    code = "FFQ_CORRUPT_INDEX"
    remedy = "Restore the file, or write the step again"


class CorruptRecord(FfqIoError):
    """A record or manifest under `_ffq/` cannot be read, or differs from the committed one."""

    code = "FFQ_CORRUPT_RECORD"
    remedy = "Restore the file; records are never repaired by guessing"


class StoreFailed(FfqIoError):
    """The storage, or the local disk, failed an operation."""

    code = "FFQ_STORE_FAILED"
    remedy = "Check the path, the permissions and the connection, then try again"


class NoAnswer(FfqIoError):
    """A Spark application did not answer, or its answer is not Spark's."""

    code = "FFQ_NO_ANSWER"
    remedy = "Check the address: that of the application's UI (spark.ui.enabled) or history server"


class Unavailable(FfqIoError):
    """The service cannot be reached, is shutting down, or has no room for another call."""

    code = "FFQ_UNAVAILABLE"
    remedy = "Try again in a moment"
