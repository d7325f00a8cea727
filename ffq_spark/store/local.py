"""The backend for local and mounted file systems. It uses plain system calls."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ffq_spark.format.paths import RECORDS
from ffq_spark.store.backend import Directory, Entry, Leftover, Skip

# What link(2) answers on file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)
_SMALL = 64 << 10
_LARGEST_PIECE = 1 << 30


class LocalBackend:
    """A local directory. Records are written to a temporary file, then linked into place."""

    create_once = "link"

    # Read files into memory that Arrow has already used: the page faults of fresh memory cost
    # several times as much as the copy.
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
            available = os.fstat(file.fileno()).st_size - start
            expected = available if length is None else min(length, available)
            if expected <= _SMALL or not self._reuses_memory:
                return file.read() if length is None else _read_exactly(file.fileno(), length)
            data = _read_reusing(file, expected)
            # A file on a mounted file system may have more bytes than the size that it reports.
            rest = file.read() if length is None else b""
            return b"".join([data, rest]) if rest else data

    def create(self, path: str, data: bytes) -> None:
        target = self.url(path)
        temporary = self._write_temporary(target, data)
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                message = f"the file system refuses hard links: {error.strerror}"
                raise NotImplementedError(message) from error
            raise
        finally:
            # gc deletes a temporary file that stays, or that of a process suspended for long.
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def replace(self, path: str, data: bytes) -> None:
        target = self.url(path)
        os.replace(self._write_temporary(target, data), target)

    def _write_temporary(self, target: str, data: bytes) -> str:
        directory, name = os.path.split(target)
        temporary = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.tmp")
        self._write(temporary, [memoryview(data)])
        return temporary

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
        # No context manager: it costs as much as a system call, and gc deletes a million files.
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
                # The directory is not empty: gc keeps some of its files, or a writer added one.
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
        """Read the time off a new file, because the server of a mount dates the files."""
        temporary = self.url(f"{RECORDS}/.clock.{secrets.token_hex(8)}.tmp")
        try:
            io.FileIO(temporary, "wb").close()
            modified_ms = os.stat(temporary).st_mtime_ns // 1_000_000
            os.unlink(temporary)
        except OSError:
            # The root has no records, or this process may not write to them.
            return None
        return modified_ms

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        # Only records are written to a temporary file first; data may be a million files.
        for directory, _, names in os.walk(self.url(RECORDS)):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):
                    full = os.path.join(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(full).st_mtime_ns // 1_000_000 < before_ms:
                            yield Leftover(os.path.relpath(full, self.url("")))

    def delete_leftover(self, leftover: Leftover) -> None:
        self.delete(leftover.path)

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
        # A file that is deleted during the listing must not end it.
        with contextlib.suppress(FileNotFoundError):
            if not child.name.startswith("."):
                is_dir = child.is_dir()
                yield Entry(child.name, is_dir, 0 if is_dir else child.stat().st_size)


def _read_exactly(descriptor: int, length: int) -> bytes:
    pieces = []
    # os.read allocates the whole length first, and a damaged record may ask for far too much.
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
