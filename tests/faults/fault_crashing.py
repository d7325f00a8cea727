"""A store that kills its process before, during or after one chosen change."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ffq_spark.format import paths
from ffq_spark.store import Store

Moment = Literal["before", "during", "after"]


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class CrashPoint:
    """When to crash: before, during or after the n-th change (from 1) or a change of a path."""

    change: int | str
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.change}"

    def met(self, number: int, path: str) -> bool:
        if isinstance(self.change, int):
            return number == self.change
        return self.change in path


class CrashingStore(Store):
    """Counts changes of storage (create, write, delete, probe) and crashes at its point."""

    def __init__(
        self,
        root: str,
        options: Mapping[str, Any] | None,
        point: CrashPoint,
        die: Callable[[], None] = kill_me,
    ) -> None:
        super().__init__(root, options)
        self._point = point
        self._die = die
        self._changes = 0
        self._lock = threading.Lock()

    def _met(self, path: str) -> bool:
        with self._lock:
            self._changes += 1
            met = self._point.met(self._changes, path)
        if met and self._point.moment == "before":
            self._die()
        return met

    def _after(self, met: bool) -> None:
        if met and self._point.moment == "after":
            self._die()

    def _during(self, met: bool) -> bool:
        return met and self._point.moment == "during"

    def create_once(self, path: str, data: bytes) -> bool:
        met = self._met(path)
        if self._during(met):
            self._die_before_link()
        created = super().create_once(path, data)
        self._after(met)
        return created

    def probe_create_once(self) -> str:
        met = self._met(paths.PROBES)
        if self._during(met):
            self._die_before_link()
        answer = super().probe_create_once()
        self._after(met)
        return answer

    def _die_before_link(self) -> None:
        """Die when a local record's temporary file is written and not yet linked."""
        os.link = lambda *_, **__: self._die()  # type: ignore[assignment]

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        met = self._met(path)
        super().write(path, self._cut(pieces) if self._during(met) else pieces)
        self._after(met)

    def _cut(self, pieces: Iterable[Any]) -> Iterator[Any]:
        for piece in pieces:
            yield memoryview(piece)[: len(piece) // 2]
            self._die()

    def delete(self, path: str) -> None:
        met = self._met(path)
        if self._during(met):
            self._die()
        super().delete(path)
        self._after(met)
