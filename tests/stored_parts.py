"""The bytes of parts on local storage, whatever the layout: to look at, to swap, to damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ffq_spark import Exchange


@dataclass(frozen=True)
class StoredPart:
    """Where the bytes of one part lie: in a file of their own, or in one that others share."""

    file: Path
    start: int
    size: int
    partition: int

    @property
    def is_alone(self) -> bool:
        return self.file.stat().st_size == self.size

    def read(self) -> bytes:
        return self.file.read_bytes()[self.start : self.start + self.size]

    def put(self, data: bytes) -> None:
        """Other bytes in the part's place; what follows it in its file moves."""
        there = self.file.read_bytes()
        self.file.write_bytes(there[: self.start] + data + there[self.start + self.size :])

    def destroy(self) -> None:
        """The part's file goes, or, where other parts share it, what its bytes say."""
        if self.is_alone:
            self.file.unlink()
        else:
            self.put(bytes(self.size))


def stored_parts(root: str, **options: Any) -> list[StoredPart]:
    """The parts that a read with these options would open, in its order."""
    return [
        StoredPart(Path(root, part["file"]), part["offset"], part["bytes"], part["reduce"])
        for part in Exchange(root).parts(**options).to_pylist()
    ]


def swap(one: StoredPart, other: StoredPart) -> None:
    """Give each of two parts the other's bytes; in one file they must be neighbours."""
    first, second = one.read(), other.read()
    if one.file != other.file:
        one.put(second)
        other.put(first)
        return
    assert other.start == one.start + one.size
    StoredPart(one.file, one.start, one.size + other.size, one.partition).put(second + first)


def rows_in(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file that holds one Arrow stream, or several one behind the other."""
    source = pa.BufferReader(file.read_bytes())
    while source.tell() < source.size():
        yield from pa.ipc.open_stream(source).read_all().to_pylist()
