"""Fetch byte ranges, one request at a time or ahead under byte credits; always in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from ffq_spark.store.credits import Credits

THREADS = 8


class RangeRequest(Protocol):
    """Byte ranges of one file that are fetched together."""

    @property
    def file(self) -> str: ...

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """Start and length of each range."""
        ...

    @property
    def length(self) -> int:
        """The bytes that are charged for the request."""
        ...


Request = TypeVar("Request", bound=RangeRequest)
Buffers: TypeAlias = "list[pa.Buffer] | None"
"""The bytes of each range, or None if there is no such file."""
ReadRanges = Callable[[str, Sequence[tuple[int, int]]], Buffers]


@dataclass
class ReadTotals:
    """What a read has requested from storage so far."""

    requests: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    """The most bytes that were requested and not yet used at one time."""
    waited_seconds: float = 0.0
    """The time for which the reader waited for bytes."""


def fetch_in_turn(
    read: ReadRanges, requests: Iterable[Request], totals: ReadTotals
) -> Iterator[tuple[Request, Buffers]]:
    """Fetch one request at a time; for local files the page cache reads ahead."""
    for request in requests:
        totals.peak_bytes = max(totals.peak_bytes, request.length)
        yield request, _timed(partial(read, request.file, request.spans), request, totals)


def fetch_ahead(
    read: ReadRanges,
    requests: Iterable[Request],
    totals: ReadTotals,
    credits: Credits,
    threads: int = THREADS,
) -> Iterator[tuple[Request, Buffers]]:
    """Fetch as many requests at once as threads and credits allow.

    The bytes of a request stay charged until the caller takes the next answer, because it is then
    done with this one. An error is raised in place of the answer.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ffq-fetch")
    source = iter(requests)
    waiting = next(source, None)
    under_way: deque[tuple[Request, Future[Buffers]]] = deque()
    try:
        while True:
            while waiting is not None and credits.charge(waiting.length):
                under_way.append((waiting, pool.submit(read, waiting.file, waiting.spans)))
                waiting = next(source, None)
            totals.peak_bytes = max(totals.peak_bytes, credits.peak)
            if not under_way:
                return
            request, future = under_way.popleft()
            yield request, _timed(future.result, request, totals)
            del future
            credits.repay(request.length)
    finally:
        # If the reader stops early, leave no thread running.
        pool.shutdown(wait=True, cancel_futures=True)


def _timed(answer: Callable[[], Buffers], request: RangeRequest, totals: ReadTotals) -> Buffers:
    started = time.perf_counter()
    try:
        return answer()
    finally:
        totals.waited_seconds += time.perf_counter() - started
        totals.requests += len(request.spans)
        totals.bytes += request.length
