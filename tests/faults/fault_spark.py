"""Spark writes with injected faults; each row contains the attempt that wrote it.

The module is pickled by value for the executors, because they cannot import the tests.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import StructType

from ffq_spark import Exchange
from ffq_spark.spark.source import FfqShuffleSource
from ffq_spark.spark.writer import ExchangeWriter, TaskMessage
from ffq_spark.store import Store

cloudpickle.register_pickle_by_value(sys.modules[__name__])

POISON = -1
PATIENCE = 120.0
COLUMNS = "k long, v long, map_task long, number long, attempt long"


@dataclass(frozen=True)
class Attempt:
    """An attempt: `number` is Spark's attempt number, `id` the number in the directory's path."""

    map_task: int
    number: int
    id: int

    @classmethod
    def here(cls) -> Attempt:
        task = TaskContext.get()
        assert task is not None
        return cls(task.partitionId(), task.attemptNumber(), task.taskAttemptId() + 1)


Hook = Callable[[Attempt], Any]


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until the condition returns a true value, and return the value."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.02)
    return value


def comes_first(folder: str, name: str, text: object = "") -> bool:
    """Return whether no process has called this before; the first caller stores a text."""
    target = Path(folder, name)
    own = target.with_suffix(f".{os.getpid()}")
    own.write_text(str(text))
    try:
        os.link(own, target)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def left(folder: str, name: str) -> str:
    """Wait for the text that the first caller of `comes_first` stores, and return it."""
    return wait_for(Path(folder, name).exists) and Path(folder, name).read_text()


def has_ended(root: str) -> bool:
    """Return whether a write below the root has an outcome."""
    return any(Path(root).glob("_ffq/queries/*.outcome.json"))


def finished(root: str, map_task: int) -> set[int]:
    """Return the attempts of a map task that have an index."""
    indexes = Path(root).glob(f"shuffle/*/*/{map_task}/*/index.bin")
    return {int(path.parent.name) for path in indexes}


def labelled(poisoned: Hook) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Add the attempt to each row, and replace values by POISON if the hook returns true.

    The whole input is read before the hook is called, so the hook may wait for any time.
    """

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt, keys = Attempt.here(), [k for batch in batches for k in batch["k"].to_pylist()]
        poison = poisoned(attempt)
        yield pa.record_batch(
            {
                "k": pa.array(keys, pa.int64()),
                "v": pa.array([POISON if poison else k for k in keys], pa.int64()),
                "map_task": pa.array([attempt.map_task] * len(keys), pa.int64()),
                "number": pa.array([attempt.number] * len(keys), pa.int64()),
                "attempt": pa.array([attempt.id] * len(keys), pa.int64()),
            }
        )

    return label


class HookedStore(Store):
    """A store that calls a hook after each file."""

    def __init__(self, root: str, stored: Callable[[str], Any]) -> None:
        super().__init__(root)
        self._stored = stored

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        super().write(path, pieces)
        self._stored(path)


class HookedWriter(ExchangeWriter):
    """A writer that calls hooks after each file and at the end of a task."""

    def __init__(
        self, made: ExchangeWriter, written: Hook, stored: Callable[[str], Any] | None
    ) -> None:
        super().__init__(made._store, made._job, made._options)
        self._written = written
        self._stored = stored

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        if self._stored is not None:
            self._store = HookedStore(self._store.root, self._stored)
        message = super().write(iterator)
        self._written(Attempt.here())
        return message


def hooked_source(
    written: Hook = lambda _: None, stored: Callable[[str], Any] | None = None
) -> type[FfqShuffleSource]:
    """Return the real source, under its own name, with hooks in each task's write."""

    class HookedSource(FfqShuffleSource):
        def writer(self, schema: StructType, overwrite: bool) -> HookedWriter:
            return HookedWriter(super().writer(schema, overwrite), written, stored)

    return HookedSource


def save(frame: Any, root: str, mode: str = "append") -> None:
    options = {"keys": "k", "partitions": "3"}
    frame.write.format("ffqshuffle").mode(mode).options(**options).save(root)


def check_rows(root: str, rows: int) -> dict[int, int]:
    """Check that each row is visible once, not poisoned, and written by a registered attempt.

    Returns the registered attempt of each map task.
    """
    exchange = Exchange(root)
    registered = {a.map_task: a.attempt for a in attempts(root, "registered")}
    table = exchange.read(metadata_columns=True).read_all().to_pylist()
    assert Counter((row["k"], row["v"]) for row in table) == Counter((k, k) for k in range(rows))
    for row in table:
        assert row["attempt"] == registered[row["map_task"]]
        assert (row["_ffq_map_task"], row["_ffq_attempt"]) == (row["map_task"], row["attempt"])
    report = exchange.verify()
    assert report.ok
    assert report.rows == rows
    return registered


def attempts(root: str, state: str) -> list[Any]:
    """Return the attempts in this state."""
    return [attempt for attempt in Exchange(root).attempts() if attempt.state == state]


def stored_rows(root: str, map_task: int, attempt: int) -> list[dict[str, int]]:
    """Return the rows in an attempt's files, even if the attempt is not registered."""
    # Imported here, because the executors cannot import the module.
    from stored_parts import rows_in

    files = Path(root).glob(f"shuffle/*/*/{map_task}/{attempt}/part*.ipc")
    return [row for file in files for row in rows_in(file)]
