"""Cancellation in two steps: any process requests it, and the initiator cancels its Spark job."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_processes import App, wait_for
from test_driver_loss import wait_for_parts

from ffq_spark import Exchange
from ffq_spark.exchange.ledger.cancel import read_cancel
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.store import Store

pytestmark = pytest.mark.spark


def test_a_request_ends_the_job_and_the_outcome_says_who_and_why(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    exchange = Exchange(root)
    with App(root, tmp_path / "gate", lease=30) as app:
        query = wait_for_parts(root, set())
        wait_for(lambda: app.stewards, 30, "the steward's start")
        with ThreadPoolExecutor(8) as pool:
            asked = list(pool.map(lambda n: exchange.cancel(query, f"reason {n}"), range(8)))
        wait_for(lambda: app.process.poll() is not None, 120, "the application's end")
        log = app.log.read_text()
    assert len({record.message for record in asked}) == 1
    outcome = Ledger(Store(root)).outcome(query)
    request = read_cancel(Store(root), query)
    assert outcome is not None and request is not None
    assert (outcome.outcome.name, outcome.message) == ("CANCELED", asked[0].message)
    assert (outcome.who, outcome.code) == (request.who, request.code)
    assert "FFQ_CANCELED" in log and log.count(asked[0].message) >= 1
    assert exchange.status(query)[0].state.name == "CANCELED"
