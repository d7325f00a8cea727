"""Adding tokens to a server's file, also from several processes at once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ffq_spark.errors import BadOption, StoreFailed
from ffq_spark.service.access import new_token, read_entries

_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


def add_token(
    path: str, name: str, scopes: Iterable[str], roots: Iterable[str] | None = None
) -> str:
    """Make a token, add its hash to a file of tokens, and return the secret once it is durable.

    A link is followed. The file keeps its owner and its readers; a new one is its owner's alone.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     secret = add_token(f"{place}/tokens.json", "etl", ["read"])
    ...     [entry["name"] for entry in read_entries(f"{place}/tokens.json")]
    ['etl']
    """
    secret, entry = new_token(name, scopes, roots)
    file = os.path.realpath(path)
    try:
        with _locked(os.path.dirname(file)) as directory:
            entries = read_entries(file) if os.path.exists(file) else []
            if any(known["name"] == name for known in entries):
                raise BadOption(f"{name!r} has a token already", option="tokens")
            _replace(file, [*entries, entry])
            os.fsync(directory)
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise StoreFailed(f"cannot add a token: {told}", path=path) from error
    return secret


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[int]:
    """Hold the lock of a directory, which leaves no file behind; the kernel frees it at exit."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(file: str, entries: Sequence[Any]) -> None:
    """Write the entries to a new file that only its owner can open, and put it in place."""
    directory, name = os.path.split(file)
    descriptor, aside = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".tmp")
    try:
        with open(descriptor, "w", encoding="utf-8") as target:
            json.dump(entries, target, indent=2)
            target.flush()
            _keep_access(file, target.fileno())
            os.fsync(target.fileno())
        os.replace(aside, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)
        raise


def _keep_access(file: str, descriptor: int) -> None:
    """Give a file's successor its owner, its group and its readers."""
    with contextlib.suppress(FileNotFoundError):
        old, new = os.stat(file), os.fstat(descriptor)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | old.st_mode & _OTHERS_READ)
