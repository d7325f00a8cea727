"""Bytes on local disk that are used as if they were in memory, and take none while nobody looks."""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from ffq_spark.errors import StoreFailed


def spill_directory() -> str:
    """Where Spark keeps its own temporary files, else the system's place."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.path.isdir(first) else tempfile.gettempdir()


class Spilled:
    """A file without a name, mapped: its pages come when they are used, and go with `forget`.

    >>> spilled = Spilled.of_pieces([b"ab", pa.py_buffer(b"c")])
    >>> spilled.forget()
    >>> spilled.data.to_pybytes()
    b'abc'
    """

    def __init__(self, fill: Callable[[SpillFile], None]) -> None:
        with _disk_blamed():
            file = tempfile.TemporaryFile(  # noqa: SIM115
                prefix="ffq-", dir=spill_directory(), buffering=0
            )
        with file:
            fill(SpillFile(file))
            with _disk_blamed():
                # Nothing cannot be mapped.
                size = file.tell()
                self._map = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else None
        self.data = pa.py_buffer(self._map or b"")

    @classmethod
    def of_pieces(cls, pieces: Iterable[Any]) -> Spilled:
        """These bytes."""

        def fill(file: SpillFile) -> None:
            for piece in pieces:
                file.write(piece)

        return cls(fill)

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Spilled:
        """An Arrow stream of batches, of which there is at least one."""
        return cls(lambda file: file.write_stream(batches))

    def forget(self) -> None:
        """Let go of the pages that were used so far; whoever uses one again gets it again."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


class SpillFile(io.RawIOBase):
    """What is spilled on its way to disk."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        """Write all of these bytes."""
        left = memoryview(data)
        with _disk_blamed():
            while left:
                left = left[self._file.write(left) :]
        return len(data)

    def write_stream(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write an Arrow stream of batches, of which there is at least one."""
        source = iter(batches)
        first = next(source)
        with pa.ipc.new_stream(pa.PythonFile(self, "w"), first.schema) as writer:
            for batch in chain([first], source):
                writer.write_batch(batch)


@contextmanager
def _disk_blamed() -> Iterator[None]:
    """An error of the disk is not one of the bytes, and names no path: callers may be elsewhere."""
    try:
        yield
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise StoreFailed(f"cannot keep bytes on local disk meanwhile: {told}") from error
