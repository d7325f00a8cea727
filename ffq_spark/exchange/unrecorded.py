"""Cleaning a root that has no records: FFQ's rule, and the safe form of it.

An index that cannot be read is told among the problems, its attempt is kept, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange import attempts
from ffq_spark.format import layout
from ffq_spark.format.index import MapTaskIndex
from ffq_spark.format.layout import AttemptId
from ffq_spark.store import Store


def stale_by_ffq(
    store: Store, queries: Sequence[int], ttl_ms: int, now: int, problems: list[str]
) -> Iterator[AttemptId]:
    """What FFQ removes: older than the largest attempt, with an `index.json`, past the TTL."""
    for ids in _map_tasks(store, queries):
        for id in ids[:-1]:
            index = _index_json(store, id, problems)
            if index is not None and index.created_at_ms + ttl_ms <= now:
                yield id


def stale_without_records(
    store: Store, queries: Sequence[int], ttl_ms: int, now: int, problems: list[str]
) -> Iterator[AttemptId]:
    """Complete attempts past the TTL that a larger complete one has replaced.

    The largest complete attempt stays whatever its age, and so does everything that is not
    complete: it may be under way, and nothing tells when it began.
    """
    for ids in _map_tasks(store, queries):
        complete = [(id, index) for id in ids if (index := _index(store, id, problems)) is not None]
        for id, index in complete[:-1]:
            if index.created_at_ms + ttl_ms <= now:
                yield id


def _map_tasks(store: Store, queries: Sequence[int]) -> Iterator[list[AttemptId]]:
    for query in queries:
        for stage in attempts.numbers(store, f"{layout.DATA}/{query}"):
            tasks: dict[int, list[AttemptId]] = {}
            for id in attempts.stored_attempts(store, query, stage):
                tasks.setdefault(id.map_task, []).append(id)
            yield from tasks.values()


def _index_json(store: Store, id: AttemptId, problems: list[str]) -> MapTaskIndex | None:
    data = store.read_optional(id.index_json)
    try:
        return None if data is None else MapTaskIndex.from_json(data, store.url(id.index_json))
    except CorruptIndex as error:
        problems.append(str(error))
        return None


def _index(store: Store, id: AttemptId, problems: list[str]) -> MapTaskIndex | None:
    try:
        return attempts.read_index(store, id)
    except CorruptIndex as error:
        problems.append(str(error))
        return None
