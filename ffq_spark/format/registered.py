"""The registered attempts of a step, one for each map task, stored as runs of map tasks.

A step may have a hundred thousand map tasks. So a run takes 24 bytes of memory, and the JSON is
parsed run by run, without a tree of Python objects.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

Run = tuple[int, int, int]

_KEY = re.compile(rb'"registered":\s*\[(?=\s*\[)')
_NUMBER = rb"\s*(0|[1-9][0-9]{0,17})\s*"
_RUN = re.compile(rb"\s*\[" + rb",".join([_NUMBER] * 3) + rb"\]\s*([,\]])")


class Registered:
    """Runs (first map task, last map task, attempt), ascending and without overlaps.

    >>> registered = Registered.of({0: 1, 1: 1, 2: 65537, 3: 1})
    >>> list(registered), registered.get(1), registered.get(4)
    ([(0, 1, 1), (2, 2, 65537), (3, 3, 1)], 1, None)
    """

    __slots__ = ("_attempts", "_firsts", "_lasts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._firsts, self._lasts, self._attempts = array("q"), array("q"), array("q")
        end = -1
        for first, last, attempt in runs:
            if not end < first <= last < 1 << 63 or not 0 <= attempt < 1 << 63:
                run = f"map tasks {first} to {last} by attempt {attempt}"
                raise ValueError(f"{run} is no run that can follow map task {end}")
            self._firsts.append(first)
            self._lasts.append(last)
            self._attempts.append(attempt)
            end = last

    @classmethod
    def of(cls, attempts: Mapping[int, int]) -> Registered:
        """Create the runs from a mapping of map tasks to attempts."""
        return cls(_runs(attempts))

    def __iter__(self) -> Iterator[Run]:
        return zip(self._firsts, self._lasts, self._attempts, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registered) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self._columns))

    def __repr__(self) -> str:
        return f"Registered({list(self)!r})"

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._firsts, self._lasts, self._attempts

    def get(self, map_task: int) -> int | None:
        """Return the registered attempt of a map task, or None if it has none."""
        position = bisect_right(self._firsts, map_task) - 1
        if position < 0 or map_task > self._lasts[position]:
            return None
        return self._attempts[position]


def _runs(attempts: Mapping[int, int]) -> Iterator[Run]:
    run: Run | None = None
    for map_task in sorted(attempts):
        attempt = attempts[map_task]
        if run is not None and run[1:] == (map_task - 1, attempt):
            run = run[0], map_task, attempt
            continue
        if run is not None:
            yield run
        run = map_task, map_task, attempt
    if run is not None:
        yield run


def take_registered(record: bytes) -> tuple[bytes, Registered | None]:
    """Split a step record into its JSON without the runs, and the runs.

    If the runs have another form than this version writes, return the whole JSON and None.

    >>> take_registered(b'{"registered": [[0, 3, 1]], "stage": 0}')
    (b'{"registered": [], "stage": 0}', Registered([(0, 3, 1)]))
    """
    # Quotation marks inside JSON strings are escaped, so this match is a key and no string value.
    key = _KEY.search(record)
    if key is None:
        return record, None
    end = key.end()

    def runs() -> Iterator[Run]:
        nonlocal end
        more = True
        while more:
            match = _RUN.match(record, end)
            if match is None:
                raise ValueError("the record holds something other than runs of map tasks")
            end, more = match.end(), match[4] == b","
            yield int(match[1]), int(match[2]), int(match[3])

    try:
        registered = Registered(runs())
    except ValueError:
        return record, None
    return record[: key.end()] + b"]" + record[end:], registered
