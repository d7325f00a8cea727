"""Uploads: everything is stored when the block ends, or an error is raised."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from ffq_spark.store import uploads
from ffq_spark.store.uploads import ParallelUploads, SerialUploads


class Files:
    """Files in memory, with the thread that wrote each of them."""

    def __init__(self, refused: str = "") -> None:
        self.data: dict[str, bytes] = {}
        self.threads: dict[str, int] = {}
        self._refused = refused

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        if path == self._refused:
            raise OSError(f"{path} is refused")
        self.data[path] = b"".join(pieces)
        self.threads[path] = threading.get_ident()


@pytest.mark.parametrize("kind", [SerialUploads, ParallelUploads])
def test_all_files_are_written_when_the_block_ends(kind: Any) -> None:
    files = Files()
    with kind(files.write) as writer:
        for number in range(40):
            writer.write(f"f{number}", [b"a", bytes([number])])
    assert files.data == {f"f{number}": b"a" + bytes([number]) for number in range(40)}


def test_a_large_file_is_streamed_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_BYTES_IN_FLIGHT", 100)
    files = Files()
    with ParallelUploads(files.write) as writer:
        writer.write("small", [b"x" * 50])
        writer.write("large", (b"y" * 30 for _ in range(9)))
    assert (len(files.data["small"]), len(files.data["large"])) == (50, 270)
    assert files.threads["large"] == threading.get_ident() != files.threads["small"]


def test_a_failure_is_raised_when_the_block_ends() -> None:
    files = Files(refused="f")
    with pytest.raises(OSError, match="f is refused"), ParallelUploads(files.write) as writer:
        writer.write("f", [b"x"])


def test_no_file_is_begun_after_a_failure() -> None:
    files = Files(refused="f0")
    with pytest.raises(OSError, match="f0 is refused"), ParallelUploads(files.write) as writer:
        for number in range(10_000):
            writer.write(f"f{number}", [b"x"])
    assert len(files.data) < 10_000


def test_the_error_of_the_block_itself_comes_first() -> None:
    with pytest.raises(KeyError), ParallelUploads(Files(refused="f").write) as writer:
        writer.write("f", [b"x"])
        raise KeyError("mine")
