"""What the service keeps of callers' queries, and what of it goes after its time."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ffq_spark as ffq
from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.exchange.ledger import leases
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import UNRESTRICTED
from ffq_spark.service.statements import statements as statements_module
from ffq_spark.service.statements.records import StatementRecords
from ffq_spark.service.statements.statements import Statements
from ffq_spark.store import Store


def nobody(query: int) -> bool:
    return False


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_only_queries_with_a_record_are_removed(tmp_path: Path) -> None:
    records = StatementRecords(Store(str(tmp_path)))
    for name in ("2024/01/rows.parquet", "7.csv", "8.tar/rows", "9.ended.json.bak"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("somebody else's")
    others = files(tmp_path)
    ended, lost = 5, 6
    for query in (ended, lost):
        records.submit(query, "one")
        (tmp_path / str(query)).mkdir()
        (tmp_path / str(query) / "rows").write_text("a result")
    records.end(ended, QueryState.SUCCEEDED, "", "one")
    time.sleep(0.01)
    records.delete_expired(0, nobody)
    assert files(tmp_path) == others


def test_a_query_whose_record_cannot_be_read_stays_and_the_others_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = StatementRecords(Store(str(tmp_path)))
    for query in (5, 6, 7):
        records.submit(query, "one")
    (tmp_path / "6.ended.json").write_text("no JSON")
    with caplog.at_level(logging.WARNING):
        records.delete_expired(0, nobody)
    assert files(tmp_path) == {"6.submitted.json", "6.ended.json"}
    assert "query 6" in caplog.text


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


def test_a_query_of_a_server_that_lives_is_not_removed_by_another(tmp_path: Path) -> None:
    first, second = (StatementRecords(Store(str(tmp_path))) for _ in range(2))
    first.submit(5, "one")
    path = tmp_path / "5.submitted.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "submitted_at_ms": 1}))
    first.renew()
    second.delete_expired(0, nobody)
    assert path.exists()
    first.release()
    second.delete_expired(0, nobody)
    assert files(tmp_path) == set()


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
