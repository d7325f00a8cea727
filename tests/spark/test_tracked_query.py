"""When the steward reads the state of a query from storage, and when it forgets the query."""

from __future__ import annotations

import pytest

from ffq_spark.spark.tracked_query import LATE_BEATS, TrackedQuery


@pytest.fixture
def query() -> TrackedQuery:
    return TrackedQuery(7, "/root", pieces=0)


def test_an_open_query_needs_storage_until_it_is_canceled(query: TrackedQuery) -> None:
    assert query.needs_storage and not query.is_done
    query.is_canceled = True
    assert not query.needs_storage
    query.flush_due = True
    assert query.needs_storage


def test_an_ended_query_needs_storage_twice_unless_it_is_closed(query: TrackedQuery) -> None:
    """Storage is read once at the end, and once when no late task can begin the query any more."""
    query.ended_ms = 1
    assert query.needs_storage
    query.was_searched = True
    assert not query.needs_storage
    query.beats_left = 0
    assert query.needs_storage
    query.is_closed = True
    assert not query.needs_storage


def test_a_closed_query_is_done_after_late_beats_and_late_events(query: TrackedQuery) -> None:
    query.ended_ms, query.is_closed = 1, True
    assert not query.is_done
    query.beats_left = 0
    assert query.is_done
    query.pending.append({"event": "task_end"})
    assert not query.is_done


def test_a_reopened_query_is_open_again(query: TrackedQuery) -> None:
    query.ended_ms, query.was_searched, query.is_closed, query.beats_left = 1, True, True, 0
    query.reopen()
    assert query.needs_storage and not query.is_done
    assert query.ended_ms is None and query.beats_left == LATE_BEATS
