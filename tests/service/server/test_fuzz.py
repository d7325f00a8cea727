"""Any request gets an answer or a coded error, in time, and no content from outside the root."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight
from service_scene import rows, write

import ffq_spark as ffq

CANARY = "canary-5f1d"
# A call that takes longer has hung.
OPTIONS = flight.FlightCallOptions(timeout=60)


class Target:
    """A service over one root, beside another exchange that callers must never see."""

    def __init__(self, place: Path) -> None:
        self.root = place / "served" / "x"
        outside = place / "outside"
        canary = pa.record_batch({"id": [1], "group": [1], "name": [CANARY]})
        write(str(outside), canary)
        exchange = write(str(self.root), rows(0, 500))
        (self.root.parent / "link").symlink_to(outside)
        self.outside = outside
        self.before = self.beside()
        self.query = exchange.steps()[0].body.query
        served = {"lake": str(self.root.parent), "x": str(self.root)}
        self.service = ffq.serve(served, port=0, writable=True, drain_seconds=0, max_wait=5)
        self.client = flight.FlightClient(self.service.url)
        (ticket,) = ffq.connect(self.service.url).exchange("x").tasks()
        self.task = json.loads(ticket)
        self.fetch = {
            "kind": "fetch",
            "exchange": "x",
            "query": self.query,
            "map_task": 0,
            "attempt": 0,
            "reduce": 1,
            "start_offset": 0,
            "max_bytes": 0,
            "raw": True,
        }
        self.read = {"kind": "read", "exchange": "x", "columns": ["id"], "key": [5]}

    def beside(self) -> dict[str, bytes]:
        """Return the content of all files outside the root."""
        return {str(p): p.read_bytes() for p in self.outside.rglob("*") if p.is_file()}

    def close(self) -> None:
        self.client.close()
        self.service.close()

    def ask(self, call: Any) -> None:
        """Make a call; expect an answer or a coded error, without content from outside the root."""
        try:
            answer = repr(call())
        except (flight.FlightError, pa.ArrowException) as error:
            answer = str(error)
            assert answer.startswith("[FFQ_"), answer
            assert not answer.startswith("[FFQ_ERROR]"), answer
            assert "Traceback" not in answer and ".py" not in answer, answer
        assert CANARY not in answer and str(self.root.parent.parent) not in answer, answer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    fuzzed = Target(tmp_path_factory.mktemp("fuzz"))
    yield fuzzed
    fuzzed.close()


NAMES = st.sampled_from(
    [
        *(
            "x",
            "lake",
            "lake/x",
            "lake/link",
            "results",
            "results/1",
            "..",
            "../outside",
            "lake/..",
        ),
        *("x/../../outside", "%2e%2e/outside", "file:///etc/passwd", "/etc/passwd", "x/shuffle"),
        *("lake/x/_ffq", "x\x00", "memory://x", "\ud800", "", "x" * 300, "lake/../../outside"),
    ]
)
NUMBERS = st.one_of(
    st.integers(-2, 10), st.sampled_from([1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, 10**40])
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), NAMES, st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *("kind", "exchange", "columns", "partitions", "steps", "as_of_step", "query", "stage"),
        *("attempt", "key", "metadata_columns", "consolidate", "first", "count", "check", "skip"),
        *("map_task", "reduce", "start_offset", "max_bytes", "chunk_bytes", "raw", "max_tasks"),
        *("split", "shard", "shards"),
        *(
            "min_tasks",
            "target_partition_bytes",
            "map_tasks",
            "reason",
            "schema",
            "options",
            "mode",
        ),
        *("sql", "view", "more", "merge_by", "__class__"),
    ]
)
ACTIONS = st.one_of(
    st.sampled_from(
        [
            *("SubmitQuery", "GetQueryStatus", "CancelQuery", "BeginQuery", "RegisterMapOutput"),
            *("CommitQuery", "AbortQuery", "Heartbeat", "Check", "Health"),
        ]
    ),
    st.text(string.printable, max_size=12),
)


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


@st.composite
def requests(draw: st.DrawFn) -> bytes | dict[str, Any]:
    """Draw bytes, any JSON, or changes to a valid request."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.binary(max_size=200))
    if kind == 1:
        return encoded(draw(VALUES))
    if kind == 2:
        return encoded(draw(st.dictionaries(FIELDS, VALUES, max_size=8)))
    return draw(st.dictionaries(FIELDS, VALUES, min_size=0, max_size=3))


@st.composite
def damaged(draw: st.DrawFn, right: dict[str, Any]) -> bytes:
    """Draw a request that is valid except for some bytes or fields."""
    request = draw(requests())
    if isinstance(request, bytes):
        return request
    changed = {**right, **request}
    for name in draw(st.lists(st.sampled_from(sorted(right)), max_size=1)):
        changed.pop(name, None)
    data = bytearray(encoded(changed))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def one_call(draw: Any, target: Target) -> Any:
    """Draw any call that a caller can make."""
    client = target.client
    kind = draw(st.integers(0, 6))
    if kind in (0, 1):
        ticket = draw(damaged(target.task if kind else target.fetch))
        return lambda: client.do_get(flight.Ticket(ticket), OPTIONS).read_all().to_pylist()
    if kind == 2:
        command = flight.FlightDescriptor.for_command(draw(damaged(target.read)))
        return lambda: (
            client.get_flight_info(command, OPTIONS),
            client.get_schema(command, OPTIONS),
        )
    if kind == 3:
        path = [name.encode(errors="replace") for name in draw(st.lists(NAMES, max_size=3))]
        place = flight.FlightDescriptor.for_path(*path)
        return lambda: client.get_flight_info(place, OPTIONS)
    if kind == 4:
        criteria = draw(
            st.one_of(st.binary(max_size=20), NAMES.map(lambda n: n.encode(errors="replace")))
        )
        return lambda: list(client.list_flights(criteria, OPTIONS))
    if kind == 5:
        body = draw(damaged({"exchange": "x", "query": target.query}))
        action = flight.Action(draw(ACTIONS), body)
        return lambda: [r.body.to_pybytes() for r in client.do_action(action, OPTIONS)]
    place = {"kind": "attempt", "exchange": "x", "query": target.query, "map_task": 0}
    upload = flight.FlightDescriptor.for_command(draw(damaged(place)))
    return lambda: uploaded(client, upload)


def uploaded(client: Any, descriptor: Any) -> Any:
    batch = rows(0, 3)
    writer, answers = client.do_put(descriptor, batch.schema, OPTIONS)
    try:
        writer.write_batch(batch)
        writer.write_metadata(b'{"rows": 3}')
        writer.done_writing()
        answers.read()
    finally:
        writer.close()


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=300, suppress_health_check=QUIET)
@given(data=st.data())
def test_no_call_crashes_hangs_or_sees_outside(target: Target, data: st.DataObject) -> None:
    target.ask(one_call(data.draw, target))


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=QUIET)
@given(data=st.data())
def test_no_call_of_many_crashes_hangs_or_sees_outside(target: Target, data: st.DataObject) -> None:
    target.ask(one_call(data.draw, target))


def test_after_all_that_the_service_gives_exact_rows(target: Target) -> None:
    connection = ffq.connect(target.service.url)
    table = pa.Table.from_batches(list(connection.stream(encoded(target.task))))
    assert sorted(table["id"].to_pylist()) == list(range(500))
    assert connection.health()["readers"] == 0
    assert target.beside() == target.before


def test_the_fuzz_would_notice_a_secret(target: Target) -> None:
    """Check that the assertions of `Target.ask` can fail."""
    with pytest.raises(AssertionError):
        target.ask(lambda: CANARY)

    def leak() -> None:
        raise flight.FlightInternalError("[FFQ_ERROR] x")

    with pytest.raises(AssertionError):
        target.ask(leak)
