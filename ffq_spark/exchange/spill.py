"""Bytes on local disk that are used as if they were in memory, and take none while nobody looks."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa


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

    def __init__(self, fill: Callable[[BinaryIO], None]) -> None:
        with tempfile.TemporaryFile(prefix="ffq-", dir=spill_directory()) as file:
            fill(file)
            file.flush()
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.data = pa.py_buffer(self._map)

    @classmethod
    def of_pieces(cls, pieces: Iterable[Any]) -> Spilled:
        """These bytes."""

        def fill(file: BinaryIO) -> None:
            for piece in pieces:
                file.write(piece)

        return cls(fill)

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Spilled:
        """An Arrow stream of batches, of which there is at least one."""

        def fill(file: BinaryIO) -> None:
            source = iter(batches)
            first = next(source)
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), first.schema) as writer:
                for batch in chain([first], source):
                    writer.write_batch(batch)

        return cls(fill)

    def forget(self) -> None:
        """Let go of the pages that were used so far; whoever uses one again gets it again."""
        self._map.madvise(mmap.MADV_DONTNEED)
