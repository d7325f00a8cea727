"""Local and mounted file systems, by plain system calls."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence

from ffq_spark.store.backend import Entry


class LocalBackend:
    """A directory. A record appears whole or not at all: written aside, then linked into place."""

    create_once = "link"

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)

    def url(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with open(self.url(path), "rb", buffering=0) as file:
            if start:
                file.seek(start)
            return file.read() if length is None else _read_exactly(file.fileno(), length)

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
        for path in paths:
            self.delete(path)

    def delete_directory(self, path: str) -> None:
        shutil.rmtree(self.url(path), ignore_errors=True)
        # Empty parents go too, up to the data's own folder.
        parent = os.path.dirname(path)
        with contextlib.suppress(OSError):
            while "/" in parent:
                os.rmdir(self.url(parent))
                parent = os.path.dirname(parent)

    def walk(self, path: str) -> list[tuple[str, int]]:
        found = []
        for directory, _, names in os.walk(self.url(path)):
            for name in names:
                full = os.path.join(directory, name)
                with contextlib.suppress(FileNotFoundError):
                    found.append((os.path.relpath(full, self._root), os.stat(full).st_size))
        return found

    def remove_leftovers(self, path: str, before_ms: int, dry_run: bool) -> int:
        count = 0
        for directory, _, names in os.walk(self.url(path)):
            for name in names:
                full = os.path.join(directory, name)
                with contextlib.suppress(FileNotFoundError):
                    old = os.stat(full).st_mtime_ns // 1_000_000 < before_ms
                    if old and name.startswith(".") and name.endswith(".tmp"):
                        count += 1
                        if not dry_run:
                            os.unlink(full)
        return count

    def list(self, path: str) -> list[Entry]:
        try:
            with os.scandir(self.url(path)) as children:
                return list(_entries(children))
        except (FileNotFoundError, NotADirectoryError):
            return []


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
    while length > 0 and (piece := os.read(descriptor, length)):
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
