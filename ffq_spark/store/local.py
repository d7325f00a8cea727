"""Local and mounted file systems, by plain system calls."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ffq_spark.format.paths import RECORDS
from ffq_spark.store.backend import Directory, Entry, Skip

_SMALL = 64 << 10
_LARGEST_PIECE = 1 << 30


class LocalBackend:
    """A directory. A record appears whole or not at all: written aside, then linked into place."""

    create_once = "link"

    # Whether files are read into memory that Arrow has used before: fresh pages cost several
    # times what the copy does.
    _reuses_memory = True

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._inside = os.path.join(self._root, "")

    def url(self, path: str) -> str:
        return self._inside + path if path else self._root

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | pa.Buffer:
        with open(self.url(path), "rb", buffering=0) as file:
            if start:
                file.seek(start)
            there = os.fstat(file.fileno()).st_size - start
            known = there if length is None else min(length, there)
            if known <= _SMALL or not self._reuses_memory:
                return file.read() if length is None else _read_exactly(file.fileno(), length)
            found = _read_reusing(file, known)
            # To the end, also where a mounted file has more bytes than its size tells.
            rest = file.read() if length is None else b""
            return b"".join([found, rest]) if rest else found

    def create(self, path: str, data: bytes) -> None:
        target = self.url(path)
        aside = self._write_aside(target, data)
        try:
            os.link(aside, target)
        finally:
            # A collector may have taken it for abandoned, if this process slept long enough.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)

    def replace(self, path: str, data: bytes) -> None:
        target = self.url(path)
        os.replace(self._write_aside(target, data), target)

    def _write_aside(self, target: str, data: bytes) -> str:
        directory, name = os.path.split(target)
        aside = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.tmp")
        self._write(aside, [memoryview(data)])
        return aside

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        self._write(self.url(path), pieces)

    def _write(self, target: str, pieces: Iterable[memoryview]) -> None:
        with _open_new(target) as file:
            for piece in pieces:
                written = 0
                while written < len(piece):
                    written += file.write(piece[written:])

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.url(path))

    def delete_many(self, paths: Sequence[str]) -> None:
        # A context manager costs as much as a system call, and there may be a million.
        for path in paths:
            try:
                os.unlink(self._inside + path)
            except FileNotFoundError:
                continue

    def delete_directories(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                os.rmdir(self._inside + path)
            except OSError:
                # Not empty: something in it is kept, or has just come.
                continue

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        files: list[tuple[str, int]] = []
        try:
            with os.scandir(self.url(path)) as children:
                for child in children:
                    inner = f"{path}/{child.name}" if path else child.name
                    if child.is_dir(follow_symlinks=False):
                        if not skip(inner):
                            yield from self.tree(inner, skip)
                    # A link to a directory leads to what somebody keeps elsewhere.
                    elif not (child.is_symlink() and child.is_dir()):
                        try:
                            files.append((inner, child.stat(follow_symlinks=False).st_size))
                        except FileNotFoundError:
                            continue
        except (FileNotFoundError, NotADirectoryError):
            return
        yield Directory(path, files)

    def clock_ms(self) -> int | None:
        """The clock of a mounted file system is its server's."""
        aside = self.url(f"{RECORDS}/.clock.{secrets.token_hex(8)}.tmp")
        try:
            io.FileIO(aside, "wb").close()
            moment = os.stat(aside).st_mtime_ns // 1_000_000
            os.unlink(aside)
        except OSError:
            # Without records, or without permission to write.
            return None
        return moment

    def remove_leftovers(self, before_ms: int, spared: Skip, dry_run: bool) -> int:
        count = 0
        # Only records are written aside first; data may be a million files.
        for directory, _, names in os.walk(self.url(RECORDS)):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):
                    full = os.path.join(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(full).st_mtime_ns // 1_000_000 < before_ms:
                            count += 1
                            if not dry_run:
                                os.unlink(full)
        return count

    def scan(self, path: str) -> Iterator[Entry]:
        try:
            with os.scandir(self.url(path)) as children:
                yield from _entries(children)
        except (FileNotFoundError, NotADirectoryError):
            return


def _open_new(target: str) -> io.FileIO:
    try:
        return io.FileIO(target, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return io.FileIO(target, "wb")


def _entries(children: Iterable[os.DirEntry[str]]) -> Iterator[Entry]:
    for child in children:
        # One that is deleted while the others are listed must not hide them.
        with contextlib.suppress(FileNotFoundError):
            if not child.name.startswith("."):
                is_dir = child.is_dir()
                yield Entry(child.name, is_dir, 0 if is_dir else child.stat().st_size)


def _read_exactly(descriptor: int, length: int) -> bytes:
    pieces = []
    # A file may be far shorter than a record of it says, and memory is taken before it is read.
    while length > 0 and (piece := os.read(descriptor, min(length, _LARGEST_PIECE))):
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_reusing(file: io.FileIO, length: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(length)
    room, filled = memoryview(buffer), 0
    while filled < length and (count := file.readinto(room[filled:])):
        filled += count
    return buffer[:filled]
