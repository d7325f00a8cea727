"""The clock that gc trusts on a machine whose own clock is ahead."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from gc_scene import HOUR_MS, Scene
from s3_uploads import begin_upload, uploads_of
from stepping import FakeTime

from ffq_spark.exchange.maintenance.clock import trusted_now_ms
from ffq_spark.format import ids
from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store


@pytest.fixture
def s3_place(s3: Any) -> Place:
    return Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set this machine's clock more than an hour ahead of all others."""
    monkeypatch.setattr(ids, "time", FakeTime(now_ms() + HOUR_MS + 60_000))


def test_a_clock_that_is_ahead_takes_no_upload_from_a_live_writer(
    s3_place: Place, request: pytest.FixtureRequest
) -> None:
    scene = Scene(s3_place)
    query = scene.begin(lease_seconds=300)
    scene.attempt(query)
    begin_upload(s3_place, f"shuffle/{query.query}/0/1/1/part-0.ipc")
    request.getfixturevalue("ahead")
    report = scene.exchange.gc(ttl=0, retention=0)
    assert (report.leftovers, report.fenced, report.files) == (0, [], 0)
    assert len(uploads_of(s3_place)) == 1


def test_a_clock_that_is_ahead_takes_no_file_from_a_live_writer(
    root: str, request: pytest.FixtureRequest
) -> None:
    scene = Scene(Place(root))
    query = scene.begin(lease_seconds=300)
    scene.attempt(query)
    aside = Path(root, "_ffq/queries/.1.json.0a.tmp")
    aside.write_text("half")
    before = scene.everything()
    request.getfixturevalue("ahead")
    for dry_run in (True, False):
        report = scene.exchange.gc(ttl=0, retention=0, dry_run=dry_run)
        assert (report.leftovers, report.fenced, report.files) == (0, [], 0)
    assert scene.everything() == before and aside.exists()
    assert scene.exchange.check() == {}


class OtherClock(Store):
    """A store whose clock is `ahead_ms` ahead of this machine's clock, or unknown."""

    ahead_ms: int | None = None

    def clock_ms(self) -> int | None:
        return None if self.ahead_ms is None else now_ms() + self.ahead_ms


@pytest.mark.parametrize(
    ("ahead_ms", "expected"),
    [(None, 0), (HOUR_MS, 0), (0, 0), (-25_000, 0), (-40_000, -40_000), (-HOUR_MS, -HOUR_MS)],
)
def test_the_storages_time_counts_where_it_is_clearly_earlier(
    root: str, ahead_ms: int | None, expected: int
) -> None:
    store = OtherClock(root)
    store.ahead_ms = ahead_ms
    assert abs(trusted_now_ms(store) - now_ms() - expected) < 5_000
