"""Read a server's credential files, and refuse files that other users could change."""

from __future__ import annotations

import os
import stat

from ffq_spark.errors import BadOption

_GROUP_OR_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_trusted(path: str, option: str) -> bytes:
    """Read a file; raise BadOption if its group or others may write or replace it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     os.chmod(file.name, 0o666)
    ...     read_trusted(file.name, "tokens")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ffq_spark.errors.BadOption: [FFQ_BAD_OPTION] other users may write to ...: review its content, \
then run `chmod go-w` on it (option tokens). Correct the value; docs/options.md describes every \
option
    """
    try:
        with open(path, "rb") as file:
            # Check the open file: the path may name another one by now.
            mode = os.fstat(file.fileno()).st_mode
            directories = {
                os.path.dirname(p) for p in (os.path.abspath(path), os.path.realpath(path))
            }
            if os.name == "posix":
                _refuse(path, bool(mode & _GROUP_OR_OTHERS_WRITE), option)
                for directory in sorted(directories):
                    _refuse(directory, _is_replaceable(directory), option)
            return file.read()
    except OSError as error:
        raise BadOption(
            f"cannot read {path}: {error.strerror or type(error).__name__}", option=option
        ) from None


def _is_replaceable(directory: str) -> bool:
    """Return whether every user may replace files in a directory (not if sticky, like /tmp)."""
    mode = os.stat(directory).st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _refuse(path: str, is_open: bool, option: str) -> None:
    if is_open:
        raise BadOption(
            f"other users may write to {path}: review its content, then run `chmod go-w` on it",
            option=option,
        )
