"""Files that decide whom a server lets in: nobody else may be able to change them."""

from __future__ import annotations

import os
import stat

from ffq_spark.errors import BadOption

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_trusted(path: str, option: str) -> bytes:
    """Read a file, after refusing one that its group or others may write or replace.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     os.chmod(file.name, 0o666)
    ...     read_trusted(file.name, "tokens")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ffq_spark.errors.BadOption: [FFQ_BAD_OPTION] others may write to ...: look through it, then \
run `chmod go-w` on it (option tokens)
    """
    try:
        with open(path, "rb") as file:
            # Of the open file: the name may lead to another one by now.
            mode = os.fstat(file.fileno()).st_mode
            directories = {os.path.dirname(os.path.abspath(path)), _real_directory(path)}
            if os.name == "posix":
                _refuse(path, bool(mode & _OTHERS_WRITE), option)
                for directory in sorted(directories):
                    _refuse(directory, _anybody_may_replace(directory), option)
            return file.read()
    except OSError as error:
        raise BadOption(f"{path}: {type(error).__name__}", option=option) from None


def _real_directory(path: str) -> str:
    return os.path.dirname(os.path.realpath(path))


def _anybody_may_replace(directory: str) -> bool:
    """Whether everybody may replace files in a directory: not where it is sticky, as /tmp is."""
    mode = os.stat(directory).st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _refuse(path: str, is_open: bool, option: str) -> None:
    if is_open:
        remedy = "look through it, then run `chmod go-w` on it"
        raise BadOption(f"others may write to {path}: {remedy}", option=option)
