"""Spilled bytes are read back unchanged from one unnamed file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.compute.spill import Spilled, spill_directory


def test_pieces_are_joined_and_leave_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert spill_directory() == str(tmp_path)
    spilled = Spilled.of_pieces([b"ab", memoryview(b"cd"), pa.py_buffer(b"e")])
    assert spilled.data.to_pybytes() == b"abcde"
    assert list(tmp_path.iterdir()) == []
    spilled.forget()
    assert spilled.data.to_pybytes() == b"abcde"


def test_a_directory_of_spark_that_does_not_exist_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/no/such/directory")
    assert spill_directory() == tempfile.gettempdir()


def test_no_bytes_are_an_empty_buffer() -> None:
    spilled = Spilled.of_pieces([])
    spilled.forget()
    assert spilled.data.size == 0


def test_batches_come_back_as_a_stream() -> None:
    batches = [pa.record_batch({"a": [n]}) for n in range(3)]
    assert list(pa.ipc.open_stream(Spilled.of_batches(iter(batches)).data)) == batches


def test_a_full_disk_is_an_error_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        return open("/dev/full", "w+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreFailed, match="No space left on device") as caught:
        Spilled.of_pieces([b"a"])
    assert caught.value.path is None
    assert len(os.listdir("/proc/self/fd")) == before
