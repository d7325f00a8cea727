"""FFQ's own directories, built byte by byte, are read by FFQ's rules, with stricter checks."""

from __future__ import annotations

import shutil
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest

from ffq_spark.errors import (
    BadOption,
    CorruptIndex,
    CorruptPart,
    ExchangeNotFound,
    NoAttempts,
    NotRegistered,
    QueryNotFound,
    Unsupported,
)
from ffq_spark.exchange.exchange import Exchange

QUERY = (1 << 62) + 12345
SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([list(keys), [f"row {key}" for key in keys]], schema=SCHEMA)


def keys(exchange: Exchange, **options: object) -> list[int]:
    return sorted(exchange.read(**options).read_all()["k"].to_pylist())  # type: ignore[arg-type]


@pytest.fixture(params=["v1", "none", "lz4", "zstd"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    """Write two map tasks with rows and one without; partition 1 is empty, 2 has two batches."""
    tasks = [{0: [batch(1, 2)], 2: [batch(3), batch(4, 5)]}, {2: [batch(6)]}, {}]
    for map_task, parts in enumerate(tasks):
        attempt = (QUERY, 0, map_task, 1)
        if request.param == "v1":
            ffq.write_v1(tmp_path, attempt, parts)
        else:
            ffq.write_v2(tmp_path, attempt, parts, request.param)
    return Exchange(str(tmp_path))


def test_every_row_of_both_versions_is_read(golden: Exchange) -> None:
    table = golden.read().read_all()
    assert table.schema == SCHEMA
    assert (
        sorted(table.to_pylist(), key=lambda row: row["k"])
        == pa.table(batch(1, 2, 3, 4, 5, 6)).to_pylist()
    )
    assert keys(golden, partitions=[2]) == [3, 4, 5, 6]
    assert keys(golden, partitions=[1]) == []
    assert golden.verify().ok


def test_a_look_at_the_root_tells_what_can_be_known(golden: Exchange) -> None:
    info = golden.info()
    assert (info.keys, info.partitions, info.rows, info.parts, info.steps) == ((), 3, 6, 3, 0)
    states = [(a.query, a.map_task, a.attempt, a.complete) for a in golden.attempts()]
    assert states == [(QUERY, map_task, 1, True) for map_task in range(3)]


def test_metadata_columns_tell_where_a_row_was(golden: Exchange) -> None:
    rows = golden.read(columns=["k"], metadata_columns=True).read_all().to_pylist()
    (six,) = [row for row in rows if row["k"] == 6]
    assert six == {
        "k": 6,
        "_ffq_step": None,
        "_ffq_query": QUERY,
        "_ffq_map_task": 1,
        "_ffq_attempt": 1,
        "_ffq_partition": 2,
    }


def test_there_are_neither_steps_nor_keys(golden: Exchange) -> None:
    for options in ({"steps": "latest"}, {"as_of_step": 1}):
        with pytest.raises(BadOption, match="no step log"):
            golden.read(**options)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="no keys"):
        golden.lookup(1)


# --- attempts ----------------------------------------------------------------------------------


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """Write complete attempts 1 and 3, no attempt 2, and attempt 4 without an index."""
    ffq.write_v1(tmp_path, (7, 0, 0, 1), {0: [batch(1)]})
    ffq.write_v1(tmp_path, (7, 0, 0, 3), {0: [batch(3)]})
    ffq.write_v1(tmp_path, (7, 0, 0, 4), {0: [batch(4)]}, index=False)
    return tmp_path


def test_the_largest_complete_attempt_counts(attempts: Path) -> None:
    exchange = Exchange(str(attempts))
    for attempt in (None, 0, "latest", "registered"):
        assert keys(exchange, attempt=attempt) == [3]
    ffq.write_v1(attempts, (7, 0, 0, 10), {0: [batch(10)]})
    assert keys(exchange) == [10]


def test_an_attempt_can_be_asked_for(attempts: Path) -> None:
    exchange = Exchange(str(attempts))
    assert keys(exchange, attempt=1) == [1]
    assert keys(exchange, attempt="3", query=7) == [3]


@pytest.mark.parametrize("attempt", [2, 4, 99])
def test_an_attempt_that_is_not_complete_is_not_registered(attempts: Path, attempt: int) -> None:
    text = "map output not registered for requested attempt"
    with pytest.raises(NotRegistered, match=text):
        Exchange(str(attempts)).read(attempt=attempt)


def test_a_map_task_without_a_complete_attempt_is_never_left_out(attempts: Path) -> None:
    ffq.write_v1(attempts, (7, 0, 1, 1), {0: [batch(8)]}, index=False)
    with pytest.raises(NoAttempts, match="no shuffle attempts found for map task") as caught:
        Exchange(str(attempts)).read()
    assert caught.value.path == str(attempts / "shuffle/7/0/1")
    (attempts / "shuffle/7/0/2").mkdir()
    shutil.rmtree(attempts / "shuffle/7/0/1")
    assert keys(Exchange(str(attempts))) == [3]


@pytest.mark.parametrize(
    "name", ["_tmp-9", "009", "+9", "9x", "-9", str(1 << 32), ".9", "nine", "٩"]
)
def test_names_that_are_no_attempts_are_ignored(attempts: Path, name: str) -> None:
    source = ffq.write_v1(attempts, (7, 0, 0, 9), {0: [batch(9)]})
    source.rename(source.with_name(name))
    exchange = Exchange(str(attempts))
    assert keys(exchange) == [3]
    assert [state.attempt for state in exchange.attempts()] == [1, 3, 4]


def test_other_names_beside_queries_stages_and_maps_are_ignored(attempts: Path) -> None:
    for place in ("shuffle", "shuffle/7", "shuffle/7/0"):
        for name in ("_tmp", "007"):
            (attempts / place / name / "0").mkdir(parents=True)
        (attempts / place / "8").write_bytes(b"a file")
    assert keys(Exchange(str(attempts))) == [3]


# --- the choice of the query -------------------------------------------------------------------


def test_several_queries_or_stages_must_be_told_apart(attempts: Path) -> None:
    ffq.write_v1(attempts, (8, 0, 0, 1), {0: [batch(80)]})
    ffq.write_v1(attempts, (8, 5, 0, 1), {0: [batch(85)]})
    exchange = Exchange(str(attempts))
    with pytest.raises(BadOption, match="one of: 7, 8") as caught:
        exchange.read()
    assert caught.value.option == "query"
    with pytest.raises(BadOption, match="one of: 0, 5") as caught:
        exchange.read(query=8)
    assert caught.value.option == "stage"
    assert keys(exchange, query=7) == [3]
    assert keys(exchange, query=8, stage=5) == [85]
    for wrong in ({"query": 9}, {"query": 8, "stage": 1}):
        with pytest.raises(QueryNotFound):
            exchange.read(**wrong)


def test_query_numbers_are_exact(tmp_path: Path) -> None:
    near = [(1 << 63) - 1, (1 << 63) - 2, (1 << 53) + 1, 1 << 53]
    for number, query in enumerate(near):
        ffq.write_v1(tmp_path, (query, 0, 0, 1), {0: [batch(number)]})
    for number, query in enumerate(near):
        table = Exchange(str(tmp_path)).read(query=query, metadata_columns=True).read_all()
        assert (table["k"].to_pylist(), table["_ffq_query"].to_pylist()) == ([number], [query])


def test_a_query_number_beyond_63_bits_is_refused_clearly(tmp_path: Path) -> None:
    ffq.write_v1(tmp_path, ((1 << 64) - 1, 0, 0, 1), {0: [batch(1)]})
    with pytest.raises(Unsupported, match=str((1 << 64) - 1)):
        Exchange(str(tmp_path)).read()


def test_nothing_is_an_error_of_its_own(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ExchangeNotFound, match=str(path)):
            Exchange(str(path)).read()


# --- indexes -----------------------------------------------------------------------------------


def test_index_bin_is_preferred_and_index_json_is_enough(attempts: Path) -> None:
    place, exchange = attempts / "shuffle/7/0/0/3", Exchange(str(attempts))
    document = (place / "index.json").read_bytes()
    (place / "index.json").write_bytes(b"not read")
    assert keys(exchange) == [3]
    (place / "index.bin").unlink()
    with pytest.raises(CorruptIndex, match="index json decode failed") as caught:
        exchange.read()
    assert caught.value.path == str(place / "index.json")
    (place / "index.json").write_bytes(document)
    assert keys(exchange) == [3]


def test_a_bad_index_bin_is_never_papered_over(attempts: Path) -> None:
    place = attempts / "shuffle/7/0/0/3"
    (place / "index.bin").write_bytes(b"FFQX" + bytes(8))
    with pytest.raises(CorruptIndex, match=r"invalid index\.bin magic") as caught:
        Exchange(str(attempts)).read()
    assert caught.value.path == str(place / "index.bin")


@pytest.mark.parametrize(
    "file", ["shuffle/7/0/0/1/part-0.ipc", "../part-0.ipc", "/etc/hostname", "part-0.ipc"]
)
def test_an_index_may_only_name_files_of_its_own_attempt(attempts: Path, file: str) -> None:
    document = ffq.index_json((7, 0, 0, 3), 1, [ffq.entry_v1(0, file, 10, 1, 1)])
    ffq.write_index(attempts / "shuffle/7/0/0/3", document)
    with pytest.raises(CorruptIndex, match=file):
        Exchange(str(attempts)).read()


def test_an_index_of_another_attempt_is_refused(attempts: Path) -> None:
    ffq.write_index(attempts / "shuffle/7/0/0/3", ffq.index_json((7, 0, 0, 1), 1, []))
    with pytest.raises(CorruptIndex, match="shuffle/7/0/0/1"):
        Exchange(str(attempts)).read()


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_frame_that_contradicts_its_adler32_is_refused(tmp_path: Path, codec: str) -> None:
    place = ffq.write_v2(tmp_path, (7, 0, 0, 1), {0: [batch(1, 2, 3)]}, codec)
    part, exchange = place / "part-0.ipc", Exchange(str(tmp_path))
    good = part.read_bytes()
    for position in range(ffq.FRAME_HEADER_BYTES, len(good)):
        part.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptPart) as caught:
            keys(exchange)
        assert caught.value.path == str(part)
