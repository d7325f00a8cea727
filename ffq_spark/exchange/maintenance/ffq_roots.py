"""Stale attempts of a root without records, by FFQ's own rule or by a safer one.

An attempt with an unreadable index is kept, and the error is added to the report's problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.resolution import complete_attempts
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.format import paths
from ffq_spark.format.index import MapTaskIndex
from ffq_spark.format.paths import AttemptId
from ffq_spark.store import Store

MapTaskId = tuple[int, int, int]


def stale_by_ffq(
    store: Store, task: MapTaskId, ttl_ms: int, now: int, report: GcReport
) -> Iterator[AttemptId]:
    """Yield the attempts that FFQ deletes: not the largest, with an `index.json` past the TTL."""
    for id in reversed(list(stored.stored_attempts(store, *task))[:-1]):
        index = _index_json(store, id, report)
        if index is not None and index.created_at_ms + ttl_ms <= now:
            yield id


def stale_without_records(
    store: Store, task: MapTaskId, ttl_ms: int, now: int, report: GcReport
) -> Iterator[AttemptId]:
    """Yield the complete attempts past the TTL that a larger complete attempt replaces.

    The largest complete attempt is kept whatever its age. So is every incomplete attempt: it may
    still be written, and its start is not recorded.
    """
    ids = list(stored.stored_attempts(store, *task))
    is_replaced = False
    for index in complete_attempts(store, ids, lambda error: report.add_problem(str(error))):
        if is_replaced and index.created_at_ms + ttl_ms <= now:
            yield index.id
        is_replaced = True


def map_tasks(store: Store, queries: Sequence[int]) -> Iterator[MapTaskId]:
    """Yield every map task of these queries, in ascending order."""
    for query in queries:
        for stage in stored.numbers(store, f"{paths.DATA}/{query}"):
            for map_task in stored.numbers(store, f"{paths.DATA}/{query}/{stage}"):
                yield query, stage, map_task


def _index_json(store: Store, id: AttemptId, report: GcReport) -> MapTaskIndex | None:
    data = store.read_optional(id.index_json)
    try:
        return None if data is None else MapTaskIndex.from_json(data, store.url(id.index_json))
    except CorruptIndex as error:
        report.add_problem(str(error))
        return None
