"""Read, swap and damage the bytes of parts on local storage, in either layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ffq_spark import Exchange


@dataclass(frozen=True)
class StoredPart:
    """The location of one part's bytes: its own file, or a range of a packed file."""

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
        """Replace the part's bytes; the bytes after the part move."""
        whole = self.file.read_bytes()
        self.file.write_bytes(whole[: self.start] + data + whole[self.start + self.size :])

    def destroy(self) -> None:
        """Delete the part's file, or overwrite the part with zeros in a shared file."""
        if self.is_alone:
            self.file.unlink()
        else:
            self.put(bytes(self.size))


def stored_parts(root: str, **options: Any) -> list[StoredPart]:
    """List the parts that a read with these options opens, in the order of the read."""
    return [
        StoredPart(Path(root, part["file"]), part["offset"], part["bytes"], part["reduce"])
        for part in Exchange(root).parts(**options).to_pylist()
    ]


def swap(one: StoredPart, other: StoredPart) -> None:
    """Exchange the bytes of two parts; parts of one file must be neighbours."""
    first, second = one.read(), other.read()
    if one.file != other.file:
        one.put(second)
        other.put(first)
        return
    assert other.start == one.start + one.size
    StoredPart(one.file, one.start, one.size + other.size, one.partition).put(second + first)


def rows_in(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file that holds one or more Arrow streams."""
    source = pa.BufferReader(file.read_bytes())
    while source.tell() < source.size():
        yield from pa.ipc.open_stream(source).read_all().to_pylist()
