"""gc of roots without records: FFQ's own rule, and the safer rule."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark import Exchange
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.store import Store

NOW = 2_000_000_000_000
TTL = 10_000
OLD, YOUNG = NOW - TTL, NOW - TTL + 1
SCHEMA = pa.schema([("k", pa.int64())])


@dataclass(frozen=True)
class Attempt:
    """The content of an attempt's directory; `index` is whole, broken or missing."""

    number: int
    created_at_ms: int
    index: str = "whole"


def make(root: Path, attempts: list[Attempt], place: tuple[int, int, int] = (7, 0, 0)) -> None:
    for attempt in attempts:
        rows = {0: [pa.record_batch([[attempt.number]], schema=SCHEMA)]}
        id = (*place, attempt.number)
        whole = attempt.index != "missing"
        directory = ffq.write_v1(root, id, rows, created_at_ms=attempt.created_at_ms, index=whole)
        if attempt.index == "broken":
            (directory / "index.json").write_text("{")
            (directory / "index.bin").write_bytes(b"FFQI")


def left(root: Path, place: str = "7/0/0") -> set[int]:
    return {int(path.name) for path in (root / "shuffle" / place).glob("*")}


def gc(root: Path, rule: str = "registered", now: int = NOW) -> GcReport:
    return collect_garbage(Store(str(root)), ttl_ms=TTL, now=now, rule=rule)


def ffq_keeps(attempts: list[Attempt]) -> set[int]:
    """Return the attempts that FFQ keeps, by the description of its rule."""
    largest = max(attempt.number for attempt in attempts)
    return {
        attempt.number
        for attempt in attempts
        if attempt.number == largest
        or attempt.index != "whole"
        or not attempt.created_at_ms + TTL <= NOW
    }


def safe_keeps(attempts: list[Attempt]) -> set[int]:
    """Return the attempts that the safe rule keeps: always the largest *complete* attempt."""
    complete = [attempt.number for attempt in attempts if attempt.index == "whole"]
    return {
        attempt.number
        for attempt in attempts
        if attempt.number == max(complete, default=0)
        or attempt.index != "whole"
        or not attempt.created_at_ms + TTL <= NOW
    }


ATTEMPTS = st.lists(
    st.builds(
        Attempt,
        st.integers(1, 12) | st.just((1 << 32) - 1),
        st.sampled_from([0, OLD - 1, OLD, YOUNG, NOW + 1]),
        st.sampled_from(["whole", "whole", "whole", "broken", "missing"]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda attempt: attempt.number,
)


@pytest.mark.parametrize(("rule", "keeps"), [("ffq", ffq_keeps), ("registered", safe_keeps)])
@settings(max_examples=150, deadline=None)
@given(tasks=st.lists(ATTEMPTS, min_size=1, max_size=3))
def test_the_rule_is_the_rule_for_every_map_task(
    rule: str, keeps: Callable[[list[Attempt]], set[int]], tasks: list[list[Attempt]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for map_task, attempts in enumerate(tasks):
            make(root, attempts, (7, 3, map_task))
        report = gc(root, rule)
        expected = [keeps(attempts) for attempts in tasks]
        assert [left(root, f"7/3/{m}") for m in range(len(tasks))] == expected
        gone = sum(len(attempts) for attempts in tasks) - sum(len(kept) for kept in expected)
        assert report.attempts == gone
        again = gc(root, rule)
        assert (again.attempts, again.files, again.bytes) == (0, 0, 0)


def test_the_ttl_of_ffq_is_inclusive(tmp_path: Path) -> None:
    make(tmp_path, [Attempt(1, OLD), Attempt(2, YOUNG), Attempt(3, 0)])
    assert gc(tmp_path, "ffq", NOW - 1).attempts == 0
    names: list[str] = []
    collect_garbage(Store(str(tmp_path)), ttl_ms=TTL, now=NOW, rule="ffq", on_removed=names.append)
    assert names == ["shuffle/7/0/0/1"]
    assert left(tmp_path) == {2, 3}


def test_the_rule_of_ffq_keeps_the_largest_attempt_even_if_it_is_not_complete(
    tmp_path: Path,
) -> None:
    make(tmp_path, [Attempt(1, OLD), Attempt(2, OLD, "missing")])
    gc(tmp_path, "ffq")
    assert left(tmp_path) == {2}


def test_the_rule_of_ffq_goes_by_index_json_alone(tmp_path: Path) -> None:
    make(tmp_path, [Attempt(1, OLD), Attempt(2, OLD), Attempt(3, OLD)])
    (tmp_path / "shuffle/7/0/0/1/index.json").unlink()
    (tmp_path / "shuffle/7/0/0/2/index.bin").unlink()
    gc(tmp_path, "ffq")
    assert left(tmp_path) == {1, 3}


def test_the_newest_complete_attempt_never_goes_and_is_the_one_that_is_read(
    tmp_path: Path,
) -> None:
    make(tmp_path, [Attempt(1, 0), Attempt(2, 0), Attempt(3, 0, "missing")])
    for ttl in (0, TTL):
        collect_garbage(Store(str(tmp_path)), ttl_ms=ttl, now=NOW)
        assert left(tmp_path) == {2, 3}
        assert Exchange(str(tmp_path)).read().read_all()["k"].to_pylist() == [2]


@pytest.mark.parametrize("rule", ["ffq", "registered"])
def test_a_corrupt_index_is_reported_and_stops_nothing(tmp_path: Path, rule: str) -> None:
    make(tmp_path, [Attempt(1, OLD, "broken"), Attempt(2, OLD)], (5, 0, 0))
    make(tmp_path, [Attempt(1, OLD), Attempt(2, OLD)], (6, 0, 0))
    report = gc(tmp_path, rule)
    (problem,) = report.problems
    assert "FFQ_CORRUPT_INDEX" in problem and "shuffle/5/0/0/1" in problem
    assert left(tmp_path, "5/0/0") == {1, 2} and left(tmp_path, "6/0/0") == {2}


def test_names_that_are_no_attempts_to_ffq_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    make(tmp_path, [Attempt(1, OLD), Attempt(2, OLD)])
    odd = ["_tmp-9", "007", str(1 << 32)]
    for name in odd:
        (tmp_path / "shuffle/7/0/0" / name).mkdir()
    gc(tmp_path, "ffq")
    assert {p.name for p in (tmp_path / "shuffle/7/0/0").glob("*")} == {"2", *odd}
