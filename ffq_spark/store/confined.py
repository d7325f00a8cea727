"""A local root that refuses links out of it, for a service whose callers are not trusted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from ffq_spark.store.backend import Entry
from ffq_spark.store.local import LocalBackend


def leads_outside(root: str, name: str) -> bool:
    """Return whether a path below a local root leads out of it through a link or `..`.

    >>> leads_outside("/data", "x"), leads_outside("/data", "../x")
    (False, True)
    """
    real = os.path.join(os.path.realpath(root), "")
    return not os.path.realpath(os.path.join(root, name)).startswith(real)


class ConfinedBackend(LocalBackend):
    """A local directory that refuses paths and links that lead out of it.

    >>> ConfinedBackend("/data/x").read("../y")
    Traceback (most recent call last):
    PermissionError: a link or name that leads out of the root
    """

    # A service has many threads, and Arrow's allocator keeps freed memory for each of them.
    _reuses_memory = False

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._real = os.path.join(os.path.realpath(root), "")

    def _check(self, path: str) -> None:
        if not os.path.join(os.path.realpath(self.url(path)), "").startswith(self._real):
            raise PermissionError("a link or name that leads out of the root")

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | pa.Buffer:
        self._check(path)
        return super().read(path, start, length)

    def create(self, path: str, data: bytes) -> None:
        self._check(path)
        super().create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._check(path)
        super().replace(path, data)

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        self._check(path)
        super().write(path, pieces)

    def scan(self, path: str) -> Iterator[Entry]:
        self._check(path)
        yield from super().scan(path)
