"""Records of statements: ends that never change, and what expires."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.service.statements.records import StatementRecords
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
