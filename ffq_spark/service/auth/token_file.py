"""Add tokens to a server's file of tokens, safely from several processes at once."""

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
from ffq_spark.service.auth.tokens import new_token, read_entries
from ffq_spark.service.auth.trusted_files import resolve_trusted

_GROUP_AND_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH


def add_token(
    path: str, name: str, scopes: Iterable[str], roots: Iterable[str] | None = None
) -> str:
    """Create a token, add its hash to a file of tokens, and return the secret once it is durable.

    Symbolic links are followed. An existing file keeps its owner and read permissions; only its
    owner can open a new file. A file that other users could change or replace is refused.

    >>> with tempfile.TemporaryDirectory() as directory:
    ...     secret = add_token(f"{directory}/tokens.json", "etl", ["read"])
    ...     [entry["name"] for entry in read_entries(f"{directory}/tokens.json")]
    ['etl']
    """
    secret, entry = new_token(name, scopes, roots)
    try:
        file = resolve_trusted(path, "tokens")
        with _locked(os.path.dirname(file)) as directory:
            entries = read_entries(file) if os.path.exists(file) else []
            if any(existing["name"] == name for existing in entries):
                raise BadOption(
                    f"{path} has a token for {name!r} already: choose another name, or remove its "
                    "entry",
                    option="tokens",
                )
            _replace(file, [*entries, entry])
            os.fsync(directory)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreFailed(f"cannot add a token: {reason}", path=path) from error
    return secret


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[int]:
    """Lock a directory and yield its descriptor. The kernel unlocks it when the process ends."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(file: str, entries: Sequence[Any]) -> None:
    """Write the entries to a temporary file with mode 0600, and rename it to `file`."""
    directory, name = os.path.split(file)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".tmp")
    try:
        with open(descriptor, "w", encoding="utf-8") as target:
            json.dump(entries, target, indent=2)
            target.flush()
            _copy_access(file, target.fileno())
            os.fsync(target.fileno())
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _copy_access(file: str, descriptor: int) -> None:
    """Copy owner, group and read permissions from a file, if it exists, to an open one."""
    with contextlib.suppress(FileNotFoundError):
        old, new = os.stat(file), os.fstat(descriptor)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        readable = old.st_mode & _GROUP_AND_OTHERS_READ
        os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR | readable)
