"""Paths below a root: FFQ's canonical decimals, and records whose names sort by number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.format import paths
from ffq_spark.format.ids import new_query, now_ms, query_time_ms
from ffq_spark.format.paths import AttemptId

u64 = st.integers(0, (1 << 64) - 1)


@given(u64, u64, u64, st.integers(1, paths.MAX_ATTEMPT), st.integers(0, (1 << 32) - 1))
def test_a_parts_path_holds_its_five_numbers(q: int, s: int, m: int, a: int, r: int) -> None:
    id = AttemptId(q, s, m, a)
    assert id.part(r) == f"shuffle/{q}/{s}/{m}/{a}/part-{r}.ipc"
    assert id.index_json == f"shuffle/{q}/{s}/{m}/{a}/index.json"
    assert id.index_bin == f"shuffle/{q}/{s}/{m}/{a}/index.bin"
    _, *numbers, name = id.part(r).split("/")
    assert [paths.parse_number(number) for number in numbers] == [q, s, m, a]
    assert paths.parse_part(name) == r


@pytest.mark.parametrize(
    "name", ["", "007", "00", "+5", "-1", " 1", "1 ", "1_0", "1.0", "1e3", "_tmp-1", "٣", "1\n"]
)
def test_only_canonical_decimals_are_numbers(name: str) -> None:
    assert paths.parse_number(name) is None
    assert paths.parse_part(f"part-{name}.ipc") is None


@pytest.mark.parametrize(
    "name", ["part-1", "part-1.ipc.tmp", "Part-1.ipc", "part1.ipc", "xpart-1.ipc", "part-1.ipc\n"]
)
def test_other_files_are_no_parts(name: str) -> None:
    assert paths.parse_part(name) is None


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_step_records_sort_by_name_as_by_number(one: int, two: int) -> None:
    names = [paths.step(number).rpartition("/")[2] for number in (one, two)]
    assert [paths.parse_step(name) for name in names] == [one, two]
    assert (names[0] < names[1]) == (one < two)


@pytest.mark.parametrize("name", ["1.json", "0" * 21 + ".json", "0" * 20, "x" + "0" * 19 + ".json"])
def test_other_files_are_no_step_records(name: str) -> None:
    assert paths.parse_step(name) is None


@given(u64)
def test_each_record_of_a_query_has_its_own_file_below_the_records(number: int) -> None:
    names = [
        paths.query(number),
        paths.outcome(number),
        paths.manifest(number),
        paths.pending(number),
    ]
    assert len(set(names)) == len(names)
    assert all(path.startswith("_ffq/") and str(number) in path for path in names)


@given(st.integers(0, paths.MAX_ATTEMPT - 1))
def test_an_attempt_is_one_more_than_sparks_task_attempt_id(task_attempt_id: int) -> None:
    assert paths.spark_attempt(task_attempt_id) == task_attempt_id + 1


def test_an_attempt_beyond_ffqs_32_bits_is_refused() -> None:
    assert paths.spark_attempt(paths.MAX_ATTEMPT - 1) == (1 << 32) - 1
    with pytest.raises(OverflowError):
        paths.spark_attempt(paths.MAX_ATTEMPT)


def test_query_numbers_are_new_and_hold_the_time() -> None:
    before = now_ms()
    numbers = [new_query() for _ in range(100)]
    after = now_ms()
    assert len(set(numbers)) == len(numbers)
    assert all(0 < number < 1 << 63 for number in numbers)
    assert all(before <= query_time_ms(number) <= after for number in numbers)


def test_later_query_numbers_are_larger() -> None:
    first = new_query()
    while now_ms() == query_time_ms(first):
        pass
    assert new_query() > first
