"""The root of all errors, their classes, and what each error says about the rows of a write."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


class ErrorClass(Enum):
    """The five classes of errors; the service maps them to status codes."""

    CONFIG = "config"
    PLANNING = "planning"
    EXECUTION = "execution"
    IO = "io"
    UNSUPPORTED = "unsupported"


class Rows(Enum):
    """The fate of the rows of a write that raised an error."""

    NEVER = "never"
    """The rows are not visible and never will be: the write may be run again."""
    PENDING = "pending"
    """The rows are committed; the next read or write shows them: do not run the write again."""
    VISIBLE = "visible"
    """The rows are visible: do not run the write again."""
    UNKNOWN = "unknown"
    """Nobody answered whether the rows are committed: check before another run."""


class FfqError(Exception):
    """The root of all errors. The text reads ``[CODE] what is wrong (subject). What to do``.

    The code is part of the text because exceptions cross the JVM as text.
    """

    code: ClassVar[str] = "FFQ_ERROR"
    error_class: ClassVar[ErrorClass] = ErrorClass.EXECUTION
    remedy: str = ""
    """What to do about the error: a clause or two, without the final full stop.

    An error may bring a remedy of its own where that of its class does not fit.
    """
    rows: ClassVar[Rows] = Rows.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        option: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.message = message
        self.path = path
        self.option = option
        if remedy is not None:
            self.remedy = remedy
        super().__init__(self._text())

    def _text(self) -> str:
        subject = [f"file {self.path}"] if self.path else []
        subject += [f"option {self.option}"] if self.option else []
        about = f" ({', '.join(subject)})" if subject else ""
        # Messages that come back from a service end with their remedy.
        remedy = f". {self.remedy}" if self.remedy and self.remedy not in self.message else ""
        return f"[{self.code}] {self.message}{about}{remedy}"

    def __str__(self) -> str:
        return self._text()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.path, self.option, self.remedy)


def _rebuild(
    error: type[FfqError], message: str, path: str | None, option: str | None, remedy: str
) -> FfqError:
    return error(message, path=path, option=option, remedy=remedy)
