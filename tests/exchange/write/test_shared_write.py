"""A step that several processes write through storage; the service's tests cover more cases."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark import Exchange
from ffq_spark.errors import (
    AttemptExists,
    BadCommit,
    BadOption,
    Canceled,
    Fenced,
    QueryEnded,
    QueryExists,
    QueryNotFound,
    ReplayMismatch,
    StoreUnsafe,
)
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.write import map_outputs
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import LeaseRecord, Outcome
from ffq_spark.store import Entry, Store
from ffq_spark.store.local import LocalBackend

SCHEMA = pa.schema([("k", pa.int64())])
GIVEN = {"keys": "k", "partitions": "4"}


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


DAY_MS = 24 * 3_600_000


class Behind(Store):
    """A store that hides the query's outcome from the first read."""

    looked = False

    def read_optional(self, path: str) -> bytes | None:
        hidden = path.endswith(".outcome.json") and not self.looked
        self.looked |= hidden
        return None if hidden else super().read_optional(path)


def batch(first: int, count: int = 5) -> pa.RecordBatch:
    return pa.record_batch([list(range(first, first + count))], schema=SCHEMA)


def test_any_process_goes_on_where_another_ended(store: Store) -> None:
    query = SharedWrite.begin(store, SCHEMA, GIVEN).query
    for map_task in range(3):
        SharedWrite.open(Store(store.root), query).put(map_task, [batch(10 * map_task)])
    step = SharedWrite.open(store, query).commit(map_tasks=3)
    assert step is not None and step.body.rows == 15
    assert SharedWrite.open(store, query).commit(map_tasks=3) == step
    keys = sorted(Exchange(store.root).read().read_all()["k"].to_pylist())
    assert keys == [10 * task + n for task in range(3) for n in range(5)]


def test_the_newest_registered_attempt_counts(store: Store) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN)
    attempts = [write.put(0, [batch(first)]).id.attempt for first in (0, 100)]
    assert attempts == [1, 2]
    with pytest.raises(AttemptExists):
        write.put(0, [batch(200)], attempt=2)
    write.commit(map_tasks=1)
    assert min(Exchange(store.root).read().read_all()["k"].to_pylist()) == 100


@pytest.mark.parametrize("map_tasks", [1, 3])
def test_a_commit_counts_the_map_tasks(store: Store, map_tasks: int) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN)
    for map_task in range(2):
        write.put(map_task, [batch(0)])
    with pytest.raises(BadCommit):
        write.commit(map_tasks)
    assert write.commit(2) is not None


def test_a_query_that_ended_takes_nothing_more(store: Store) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN)
    assert write.abort("given up").outcome is Outcome.ABORTED
    with pytest.raises(QueryEnded):
        write.put(0, [batch(0)])
    with pytest.raises(QueryEnded):
        write.commit(0)


def test_a_request_to_cancel_ends_the_query(store: Store) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN)
    request_cancel(store, write.query, "too slow")
    with pytest.raises(Canceled, match="too slow"):
        write.put(0, [batch(0)])
    with pytest.raises(QueryEnded, match="CANCELED"):
        write.put(0, [batch(0)])


def test_a_lease_lasts_until_the_commit(store: Store) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN, lease_seconds=60)
    write.put(0, [batch(0)])
    assert len(store.list(paths.LEASES)) == 1
    write.commit(1)
    assert store.list(paths.LEASES) == []


def test_a_refused_query_takes_no_lease(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(error: type[Exception], mode: str = "append", **options: str) -> None:
        store = Store(root)
        with pytest.raises(error):
            SharedWrite.begin(store, SCHEMA, {**GIVEN, **options}, mode=mode, lease_seconds=60)
        assert store.list(paths.LEASES) == []

    refuse(BadOption, mode="upsert")
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "create_once", "")
        refuse(StoreUnsafe)
    SharedWrite.begin(Store(root), SCHEMA, {**GIVEN, "query": "7"})
    refuse(QueryExists, query="7")


def test_a_heartbeat_renews_the_lease_of_a_query_that_runs(store: Store) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN, lease_seconds=60)
    leases.release(store, write._record.initiator)
    write.heartbeat()
    assert len(store.list(paths.LEASES)) == 1
    request_cancel(store, write.query, "too slow")
    with pytest.raises(Canceled, match="too slow"):
        write.heartbeat()
    leases.release(store, write._record.initiator)
    with pytest.raises(QueryEnded, match="CANCELED"):
        write.heartbeat()
    assert store.list(paths.LEASES) == []


def test_a_query_that_ends_during_an_examination_registers_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN, lease_seconds=60)
    output = write_attempt(store, write._job, 0, 1, [batch(0)])

    def examine(*arguments: object) -> AttemptOutput:
        write.abort("meanwhile")
        return output

    monkeypatch.setattr(map_outputs, "examine", examine)
    with pytest.raises(QueryEnded, match="ABORTED"):
        write.register(0, 1)
    assert map_outputs.read_output(store, output.id) is None
    assert store.list(paths.LEASES) == []


def test_a_query_that_nobody_began_is_not_found(store: Store) -> None:
    with pytest.raises(QueryNotFound, match=r"query 7 is not a shared write .* Begin one first$"):
        SharedWrite.open(store, 7)


def test_two_calls_of_one_commit_give_one_answer(root: str) -> None:
    """The second call begins before the first has ended, and finds its own batch in the log."""
    options = {**GIVEN, "streamId": "s", "batch": "0"}
    upload = SharedWrite.begin(Store(root), SCHEMA, options)
    upload.put(0, [batch(0)])
    steps = [SharedWrite.open(store(root), upload.query).commit(1) for store in (Store, Behind)]
    assert [step.step for step in steps if step] == [1, 1]


def test_a_commit_that_lost_its_batch_says_so_however_often_it_is_asked(root: str) -> None:
    """The query is committed but never becomes a step: another run of the batch was faster."""

    class Late(Store):
        """A store that hides the batch record until somebody tries to create it."""

        seen = False

        def read_optional(self, path: str) -> bytes | None:
            hidden = path == paths.stream_batch("s", 1, 0) and not self.seen
            return None if hidden else super().read_optional(path)

        def create_once(self, path: str, data: bytes) -> bool:
            self.seen |= path == paths.stream_batch("s", 1, 0)
            return super().create_once(path, data)

    options = {**GIVEN, "streamId": "s", "batch": "0"}
    for store, count in ((Store(root), 5), (Late(root), 7), (Late(root), 5)):
        upload = SharedWrite.begin(store, SCHEMA, options)
        upload.put(0, [batch(0, count)])
        if count == 7:
            for _ in range(2):
                with pytest.raises(ReplayMismatch, match="first 5 rows"):
                    upload.commit(1)
        else:
            first = store.__class__ is Store
            for _ in range(2):
                step = upload.commit(1)
                assert (step is not None) == first
    assert Exchange(root).info().rows == 5


@pytest.mark.parametrize("discarded", [False, True])
def test_a_commit_beside_a_request_to_cancel_gives_the_answer_of_the_other_call(
    root: str, discarded: bool
) -> None:
    """The second call finds the request, and no outcome yet; the first call then ends the query."""

    class Asked(Store):
        """A store where a cancel is requested once a commit has begun."""

        def list(self, path: str) -> list[Entry]:
            if path == paths.PENDING:
                request_cancel(self, upload.query, "too slow")
            return super().list(path)

        def create_once(self, path: str, data: bytes) -> bool:
            if path.startswith(paths.MANIFESTS):
                request_cancel(self, upload.query, "too slow")
            return super().create_once(path, data)

    options = {**GIVEN, "streamId": "s", "batch": "0"} if discarded else GIVEN
    if discarded:
        first = SharedWrite.begin(Store(root), SCHEMA, options)
        first.put(0, [batch(0)])
        first.commit(1)
    upload = SharedWrite.begin(Store(root), SCHEMA, options)
    upload.put(0, [batch(0)])
    steps = [SharedWrite.open(store(root), upload.query).commit(1) for store in (Asked, Behind)]
    assert [step and step.step for step in steps] == ([None, None] if discarded else [1, 1])
    assert Exchange(root).info().rows == 5


def test_a_commit_that_fails_beside_another_call_gives_its_answer(root: str) -> None:
    """The second call sees neither the outcome nor the map output."""

    class Blind(Behind):
        def read_optional(self, path: str) -> bytes | None:
            return None if path.endswith(paths.OUTPUT) else super().read_optional(path)

    upload = SharedWrite.begin(Store(root), SCHEMA, GIVEN)
    upload.put(0, [batch(0)])
    steps = [SharedWrite.open(store(root), upload.query).commit(1) for store in (Store, Blind)]
    assert [step.step for step in steps if step] == [1, 1]


def test_a_commit_of_a_lost_query_says_how_it_ended(root: str) -> None:
    """The query is fenced after the commit has begun, and gc deletes the map outputs."""

    class Collected(Store):
        def scan(self, path: str) -> Iterator[Entry]:
            if path.startswith(f"{paths.DATA}/"):
                collect_garbage(Store(root), ttl_ms=0, now=now_ms() + 2 * DAY_MS)
            return super().scan(path)

    upload = SharedWrite.begin(Store(root), SCHEMA, GIVEN)
    upload.put(0, [batch(0)])
    with pytest.raises(Fenced, match="LOST"):
        SharedWrite.open(Collected(root), upload.query).commit(1)


def test_a_commit_keeps_the_lease(root: str) -> None:
    """Thousands of map outputs may take longer to read than the lease lasts."""

    class Slow(Store):
        """A store whose reads of map outputs take until the lease is renewed."""

        renewed = 0

        def read_optional(self, path: str) -> bytes | None:
            if path.endswith(paths.OUTPUT):
                before, deadline = lease(), time.monotonic() + 10
                assert before.expires_at_ms > now_ms(), "the lease has lapsed"
                while lease() == before:
                    assert time.monotonic() < deadline, "the lease is not renewed"
                    time.sleep(0.01)
                self.renewed += 1
            return super().read_optional(path)

    def lease() -> LeaseRecord:
        found = leases.read(Store(root), upload._record.initiator)
        assert found is not None
        return found

    upload = SharedWrite.begin(Store(root), SCHEMA, GIVEN, lease_seconds=1)
    for map_task in range(2):
        upload.put(map_task, [batch(map_task)])
    old = LeaseRecord(upload._record.initiator, 1, now_ms() - DAY_MS)
    Store(root).replace(paths.lease(old.initiator), old.encode())
    store = Slow(root)
    assert SharedWrite.open(store, upload.query).commit(2) is not None
    assert store.renewed == 2 and store.list(paths.LEASES) == []


def test_a_commit_lists_and_reads_map_tasks_at_once(store: Store) -> None:
    meeting = threading.Barrier(2)

    class Remote(Store):
        """A store whose requests for a map task wait for a request for another one."""

        def scan(self, path: str) -> Iterator[Entry]:
            if path.count("/") == paths.ATTEMPT_DEPTH - 2:
                meeting.wait(10)
            return super().scan(path)

        def read_optional(self, path: str) -> bytes | None:
            if path.endswith(paths.OUTPUT):
                meeting.wait(10)
            return super().read_optional(path)

    write = SharedWrite.begin(store, SCHEMA, GIVEN)
    for map_task in range(2):
        write.put(map_task, [batch(map_task)])
    assert SharedWrite.open(Remote(store.root), write.query).commit(2) is not None


def test_the_lease_is_renewed_before_files_are_examined(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SharedWrite.begin(store, SCHEMA, GIVEN, lease_seconds=60)
    output = write_attempt(store, write._job, 0, 1, [batch(0)])
    initiator = write._record.initiator
    leases.release(store, initiator)

    def examine(*_: Any) -> AttemptOutput:
        assert leases.is_taken(store, initiator)
        return output

    monkeypatch.setattr(map_outputs, "examine", examine)
    write.register(0, 1)
    assert write.commit(1) is not None
