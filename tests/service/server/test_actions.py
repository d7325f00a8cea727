"""Actions are decoded, authorized and dispatched by name."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from service_scene import SCHEMA, rows, write

import ffq_spark as ffq
from ffq_spark.errors import BadRequest, Forbidden, Unsupported
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format.records import Outcome
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import UNRESTRICTED, Access
from ffq_spark.service.server.actions import Actions
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.permissions import Permissions
from ffq_spark.service.server.remote_writes import RemoteWrites
from ffq_spark.service.server.roots import Roots
from ffq_spark.store import Store

SCHEMA_TEXT = base64.b64encode(SCHEMA.serialize()).decode()
READER = Access("reader", frozenset({"read"}))


@pytest.fixture
def actions(root: str) -> Actions:
    write(root, rows(0, 10))
    roots, options = Roots({"x": root}), ServeOptions(writable=True)
    return Actions(roots, Permissions(), RemoteWrites(roots, options), Activity.start(options))


def run(actions: Actions, name: str, access: Access = UNRESTRICTED, **body: Any) -> Any:
    return actions.run(access, name, json.dumps(body).encode())


def test_an_unknown_action_lists_those_there_are(actions: Actions) -> None:
    with pytest.raises(BadRequest, match="unknown action: must be one of SubmitQuery, GetQuery"):
        run(actions, "NoSuchAction")


def test_every_action_is_described(actions: Actions) -> None:
    descriptions = dict(actions.descriptions())
    assert set(descriptions) == actions.names and all(descriptions.values())


@pytest.mark.parametrize(
    "name", ["BeginQuery", "RegisterMapOutput", "CommitQuery", "AbortQuery", "Heartbeat"]
)
def test_writes_need_the_scope_write_before_anything_is_looked_up(
    actions: Actions, name: str
) -> None:
    numbers = {
        "BeginQuery": {"schema": ""},
        "RegisterMapOutput": {"query": 5, "map_task": 0, "attempt": 1},
        "CommitQuery": {"query": 5, "map_tasks": 1},
    }
    body = {"exchange": "none", **numbers.get(name, {"query": 5})}
    with pytest.raises(Forbidden, match="'reader' lacks scope write for none"):
        run(actions, name, READER, **body)


def test_statements_need_a_spark_session(actions: Actions) -> None:
    for name, body in (
        ("SubmitQuery", {"view": "v"}),
        ("GetQueryStatus", {"query": 5}),
        ("CancelQuery", {"query": 5}),
    ):
        with pytest.raises(Unsupported, match="no Spark session"):
            run(actions, name, **body)


def test_health_needs_no_body(actions: Actions) -> None:
    assert actions.run(READER, "Health", b"") == {
        "status": "SERVING",
        "calls": 0,
        "readers": 0,
        "waiting": 0,
        "writers": 0,
        "queries": None,
    }


def test_check_names_no_query_of_a_finished_exchange_as_active(actions: Actions) -> None:
    (reason,) = run(actions, "Check", READER, exchange="x")["inactive"].values()
    assert reason == "COMMITTED"


def test_no_answer_shows_the_path_of_a_root(actions: Actions, root: str) -> None:
    """Outcomes and reports quote errors, which name files."""
    exchange = ffq.Exchange(root)
    (query,) = (step.body.query for step in exchange.steps())
    begun = run(actions, "BeginQuery", exchange="x", schema=SCHEMA_TEXT)["query"]
    failure = f"StoreFailed: [FFQ_STORE_FAILED] cannot read: OSError: minio (file {root}/_ffq/x)"
    Ledger(Store(root)).end(begun, Outcome.ABORTED, failure)
    Path(root, "_ffq", "queries", f"{query}.outcome.json").write_text("{")
    for name, body in (
        ("Check", {}),
        ("AbortQuery", {"query": begun}),
        ("GetQueryStatus", {"query": begun}),
    ):
        answer = json.dumps(run(actions, name, exchange="x", **body))
        assert "x/_ffq" in answer and root not in answer and "minio" not in answer
