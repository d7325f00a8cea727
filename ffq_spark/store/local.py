"""Local and mounted file systems, by plain system calls."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterable

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
        directory, name = os.path.split(target)
        aside = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.tmp")
        self._write(aside, [memoryview(data)])
        try:
            os.link(aside, target)
        finally:
            os.unlink(aside)

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        self._write(self.url(path), pieces)

    def _write(self, target: str, pieces: Iterable[memoryview]) -> None:
        with _open_new(target) as file:
            for piece in pieces:
                written = 0
                while written < len(piece):
                    written += file.write(piece[written:])

    def list(self, path: str) -> list[Entry]:
        try:
            with os.scandir(self.url(path)) as children:
                return [_entry(child) for child in children if not child.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.url(path))


def _open_new(target: str) -> io.FileIO:
    try:
        return io.FileIO(target, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return io.FileIO(target, "wb")


def _entry(child: os.DirEntry[str]) -> Entry:
    is_dir = child.is_dir()
    return Entry(child.name, is_dir, 0 if is_dir else child.stat().st_size)


def _read_exactly(descriptor: int, length: int) -> bytes:
    pieces = []
    while length > 0 and (piece := os.read(descriptor, length)):
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
