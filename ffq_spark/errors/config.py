"""Errors of class `config`: options, arguments and requests."""

from __future__ import annotations

from ffq_spark.errors.base import ErrorClass, FfqError, Rows


class FfqConfigError(FfqError, ValueError):
    """Options or arguments that are not valid."""

    error_class = ErrorClass.CONFIG
    rows = Rows.NEVER


class BadOption(FfqConfigError):
    """The value of an option or argument is wrong, or a required one is missing."""

    code = "FFQ_BAD_OPTION"
    remedy = "Correct the value; docs/options.md describes every option"


class UnknownOption(FfqConfigError):
    """No option has this name."""

    code = "FFQ_UNKNOWN_OPTION"
    remedy = "Correct the name; docs/options.md lists every option"


class KeyColumnMissing(FfqConfigError):
    """A column named in `keys`, `sortBy`, `mergeBy`, `columns` or `statistics` does not exist."""

    code = "FFQ_COLUMN_MISSING"
    remedy = "Name columns of the schema, in its spelling"


class BadRequest(FfqConfigError):
    """The service cannot parse or accept a ticket, descriptor or action."""

    code = "FFQ_BAD_REQUEST"
    remedy = "Correct the request; docs/service.md describes every one"


class Unauthenticated(FfqConfigError):
    """The service does not know the caller: the token is missing or not valid."""

    code = "FFQ_UNAUTHENTICATED"
    remedy = "Give `ffq.connect` a token that the service knows"


class Forbidden(FfqConfigError):
    """The caller's token does not allow this request, or not for this exchange."""

    code = "FFQ_FORBIDDEN"
    remedy = "Ask the operator of the service for a token with this scope and root"
