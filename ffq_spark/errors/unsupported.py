"""Errors of class `unsupported`: requests that the store, format or version does not support."""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows


class FfqUnsupportedError(FfqError, NotImplementedError):
    """A request that the store, the exchange's format or this version does not support."""

    error_class = ErrorClass.UNSUPPORTED
    rows = Rows.NEVER


class StoreUnsafe(FfqUnsupportedError):
    """The store cannot create a file only if it does not exist yet."""

    code = "FFQ_STORE_UNSAFE"
    remedy = "Use another store, or set unsafeCommit=true if only one writer runs at a time"


class FutureFormat(FfqUnsupportedError):
    """The exchange was written in a format newer than this version understands."""

    code = "FFQ_FUTURE_FORMAT"
    remedy = "Upgrade ffq_spark"


class UnsupportedType(FfqUnsupportedError):
    """Arrow, or the chosen hash, cannot carry a column type."""

    code = "FFQ_UNSUPPORTED_TYPE"
    remedy = "Cast the column to a supported type, or leave it out"


class Unsupported(FfqUnsupportedError):
    """This version does not serve the request."""

    code = "FFQ_UNSUPPORTED"
    remedy = "Change the request, or upgrade ffq_spark"
