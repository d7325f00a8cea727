"""Spill bytes to local disk and use them as mapped memory, which can be released at any time."""

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
from ffq_spark.exchange.compute.batch_sizes import compact


def spill_directory() -> str:
    """Return Spark's directory for temporary files, or else the system's."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.path.isdir(first) else tempfile.gettempdir()


class Spilled:
    """An unnamed, memory-mapped file; `forget` releases the pages that were used.

    >>> spilled = Spilled.of_pieces([b"ab", pa.py_buffer(b"c")])
    >>> spilled.forget()
    >>> spilled.data.to_pybytes()
    b'abc'
    """

    def __init__(self, fill: Callable[[SpillFile], None]) -> None:
        with _disk_errors():
            file = tempfile.TemporaryFile(  # noqa: SIM115
                prefix="ffq-", dir=spill_directory(), buffering=0
            )
        with file:
            fill(SpillFile(file))
            with _disk_errors():
                # mmap refuses empty files.
                size = file.tell()
                self._map = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else None
        self.data = pa.py_buffer(self._map or b"")

    @classmethod
    def of_pieces(cls, pieces: Iterable[Any]) -> Spilled:
        """Spill the concatenation of some bytes."""

        def fill(file: SpillFile) -> None:
            for piece in pieces:
                file.write(piece)

        return cls(fill)

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Spilled:
        """Spill at least one batch as an Arrow stream."""
        return cls(lambda file: file.write_stream(batches))

    def copy(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Copy a batch of the file into memory: mapped pages would hold their neighbours too."""
        copy = compact(batch)
        self.forget()
        return copy

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the batches of an Arrow stream, one at a time.

        >>> batch = pa.record_batch({"k": [1, 2]})
        >>> [read.num_rows for read in Spilled.of_batches([batch, batch]).batches()]
        [2, 2]
        """
        for batch in pa.ipc.open_stream(self.data):
            yield self.copy(batch)

    def forget(self) -> None:
        """Release the pages that were used so far; they are read again when they are used again."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


class SpillFile(io.RawIOBase):
    """A writable stream to the file that is being spilled."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        """Write all bytes, even if single writes are short."""
        left = memoryview(data)
        with _disk_errors():
            while left:
                left = left[self._file.write(left) :]
        return len(data)

    def write_stream(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write at least one batch as an Arrow stream."""
        source = iter(batches)
        first = next(source)
        with pa.ipc.new_stream(pa.PythonFile(self, "w"), first.schema) as writer:
            for batch in chain([first], source):
                writer.write_batch(batch)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise StoreFailed for an error of the disk, which must not be taken for a corrupt part."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        message = f"cannot spill to local disk in {spill_directory()}: {reason}"
        raise StoreFailed(message) from error
