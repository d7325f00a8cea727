"""Statements without Spark: expiry, closing while storage fails, several servers."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ffq_spark as ffq
from ffq_spark.errors import FfqError, QueryNotFound, StatementActive, StoreFailed
from ffq_spark.exchange.ledger import leases
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import UNRESTRICTED
from ffq_spark.service.statements import statements as statements_module
from ffq_spark.service.statements.records import StatementRecords
from ffq_spark.service.statements.statements import Statements


class NoSpark:
    """Jobs that wait until they are canceled."""

    def __init__(self, *_: Any) -> None:
        self.canceled = threading.Event()

    def run(self, *_: Any) -> None:
        assert self.canceled.wait(60)

    def cancel(self, query: int) -> None:
        self.canceled.set()


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements_module, "SparkJobs", NoSpark)


@pytest.mark.usefixtures("without_spark")
def test_a_sweep_that_fails_is_not_repeated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = []

    def delete_expired(*given: Any) -> None:
        swept.append(given)
        raise StoreFailed("away")

    monkeypatch.setattr(StatementRecords, "delete_expired", delete_expired)
    queries = Statements(None, str(tmp_path), ServeOptions())
    time.sleep(1.5)
    queries.close()
    assert len(swept) == 1


@pytest.mark.usefixtures("without_spark")
def test_storage_that_fails_does_not_keep_queries_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = Statements(None, str(tmp_path), ServeOptions(sql=True, max_queries=1))
    running, _ = (queries.submit(UNRESTRICTED, "select 1", None) for _ in range(2))
    while queries.status(UNRESTRICTED, running)["state"] != "RUNNING":
        time.sleep(0.01)

    def away(*_: Any) -> Any:
        raise StoreFailed("away")

    monkeypatch.setattr(StatementRecords, "end", away)
    monkeypatch.setattr(StatementRecords, "ended", away)
    queries.close(seconds=5)
    assert queries._jobs.canceled.is_set()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("without_spark")
def test_a_service_hangs_up_even_if_its_queries_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StoreFailed("away")

    served = ffq.serve({"x": str(tmp_path)}, spark=object(), port=0)
    ended = served._statements.close  # type: ignore[union-attr]
    monkeypatch.setattr(Statements, "close", away)
    with pytest.raises(StoreFailed):
        served.close()
    ended()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.server.port))


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("without_spark")
def test_a_query_of_another_server_runs_until_it_ends_or_its_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWALS", 300)
    first, second = (Statements(None, str(tmp_path), ServeOptions(sql=True)) for _ in range(2))
    query = first.submit(UNRESTRICTED, "select 1", None)
    assert second.status(UNRESTRICTED, query)["state"] == "RUNNING"
    path = tmp_path / f"{query}.submitted.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "submitted_at_ms": 1}))
    while not list(tmp_path.glob("*.alive.json")):
        time.sleep(0.01)
    assert second.status(UNRESTRICTED, query)["state"] == "RUNNING"
    assert second.cancel(UNRESTRICTED, query, "by the other")["state"] == "CANCELED"
    while list(tmp_path.glob("*.alive.json")):
        time.sleep(0.01)
    assert first.status(UNRESTRICTED, query)["message"] == "by the other"
    lost = json.dumps({**json.loads(path.read_text()), "query": 5})
    (tmp_path / "5.submitted.json").write_text(lost)
    assert second.status(UNRESTRICTED, 5)["state"] == "FAILED"
    first.close()
    second.close()


@pytest.mark.usefixtures("without_spark")
def test_a_result_that_does_not_exist_says_what_to_do(tmp_path: Path) -> None:
    statements = Statements(None, str(tmp_path), ServeOptions(sql=True))
    active = statements.submit(UNRESTRICTED, "select 1", None)
    cases: list[tuple[str, type[FfqError], str]] = [
        (str(active), StatementActive, f"statement {active} has not ended. Wait until its status"),
        ("7", QueryNotFound, "no statement 7, or its result has expired. Submit the statement"),
        ("daily", QueryNotFound, "'daily' is not the number of a statement. Ask for the exchange"),
    ]
    for name, error, text in cases:
        with pytest.raises(error, match=text) as caught:
            statements.require_result(UNRESTRICTED, name)
        assert "ffq-spark attempts" not in str(caught.value)
    statements.close()


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("without_spark")
def test_a_statement_that_takes_too_long_fails_with_its_limit(tmp_path: Path) -> None:
    statements = Statements(None, str(tmp_path), ServeOptions(sql=True, query_timeout=0))
    query = statements.submit(UNRESTRICTED, "select 1", None)
    while (status := statements.status(UNRESTRICTED, query))["state"] != "FAILED":
        time.sleep(0.01)
    limit = f"statement {query} ran longer than 0 s (option queryTimeout). Raise `queryTimeout`"
    assert status["message"].startswith(f"[FFQ_TIMED_OUT] {limit}")
    statements.close()
