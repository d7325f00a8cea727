"""Write many files: one after the other to local disk, several at once to an object store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from ffq_spark.store.multipart import chained

_THREADS = 8
_BYTES_IN_FLIGHT = 32 << 20

Write = Callable[[str, Iterable[Any]], None]


class SerialUploads:
    """Writes files one after the other; on local disk the page cache already runs in parallel."""

    def __init__(self, write: Write) -> None:
        self.write = write

    def __enter__(self) -> SerialUploads:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ParallelUploads:
    """Writes small files in threads, within a limit of bytes in flight, and streams large files.

    The calling thread produces the pieces of all files, in order. After the first failed write no
    other one starts, because each would be retried for as long.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ffq-upload")
        self._failure: Exception | None = None
        self._free = _BYTES_IN_FLIGHT
        self._changed = threading.Condition()

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        head: list[bytes] = []
        size, rest = 0, iter(pieces)
        for piece in rest:
            head.append(bytes(piece))
            size += len(piece)
            if size > _BYTES_IN_FLIGHT // 2:
                self._write(path, chained(head, rest))
                return
        self._reserve(size)
        self._raise_failure()
        self._pool.submit(self._send, path, head, size)

    def _reserve(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send(self, path: str, pieces: list[bytes], size: int) -> None:
        try:
            if self._failure is None:
                self._write(path, pieces)
        except Exception as error:
            self._failure = error
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()

    def __enter__(self) -> ParallelUploads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            self._raise_failure()
