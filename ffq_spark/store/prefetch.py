"""Fetching ranges: one after the other, or many at once under byte credits; always in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ffq_spark.store.credits import Credits

THREADS = 8

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Fetch = Callable[[Request], Answer]
Size = Callable[[Any], int]


@dataclass
class ReadTotals:
    """What a read has asked of storage so far."""

    requests: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    """The most that was asked for at one time and not yet given on."""
    waited_seconds: float = 0.0
    """How long there was nothing to give on."""


def one(_: Any) -> int:
    """How many ranges most requests ask for."""
    return 1


def fetch_in_turn(
    fetch: Fetch[Request, Answer],
    requests: Iterable[Request],
    size: Size,
    totals: ReadTotals,
    count: Size = one,
) -> Iterator[tuple[Request, Answer]]:
    """One request at a time: local files, where the page cache is the fastest queue there is."""
    for request in requests:
        totals.peak_bytes = max(totals.peak_bytes, size(request))
        yield request, _timed(partial(fetch, request), size(request), count(request), totals)


def fetch_ahead(
    fetch: Fetch[Request, Answer],
    requests: Iterable[Request],
    size: Size,
    totals: ReadTotals,
    credits: Credits,
    count: Size = one,
    threads: int = THREADS,
) -> Iterator[tuple[Request, Answer]]:
    """As many requests at once as threads and credits allow.

    A request's bytes count until the next answer is taken: the user has then given this one on. An
    error comes up where its answer would have.

    >>> totals = ReadTotals()
    >>> list(fetch_ahead(str.upper, ["a", "b", "c"], len, totals, Credits(2)))
    [('a', 'A'), ('b', 'B'), ('c', 'C')]
    >>> totals.requests, totals.peak_bytes
    (3, 2)
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ffq-fetch")
    source = iter(requests)
    waiting = next(source, None)
    under_way: deque[tuple[Request, Future[Answer]]] = deque()
    try:
        while True:
            while waiting is not None and credits.charge(size(waiting)):
                under_way.append((waiting, pool.submit(fetch, waiting)))
                waiting = next(source, None)
            totals.peak_bytes = max(totals.peak_bytes, credits.peak)
            if not under_way:
                return
            request, future = under_way.popleft()
            yield request, _timed(future.result, size(request), count(request), totals)
            del future
            credits.repay(size(request))
    finally:
        # Nothing goes on behind the back of a reader that has stopped.
        pool.shutdown(wait=True, cancel_futures=True)


def _timed(answer: Callable[[], Answer], size: int, requests: int, totals: ReadTotals) -> Answer:
    started = time.perf_counter()
    try:
        return answer()
    finally:
        totals.waited_seconds += time.perf_counter() - started
        totals.requests += requests
        totals.bytes += size
