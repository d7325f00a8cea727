"""A long log is as fast as a short one, and agrees with its records and manifests."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from gc_scene import OPTIONS, SCHEMA, Scene, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options
from stepping import Files, Process, kill_points, open_store

from ffq_spark.errors import CorruptRecord, StepExpired
from ffq_spark.exchange.compute.pruning import Predicate, matching_hashes, may_match
from ffq_spark.exchange.ledger import log_checkpoint
from ffq_spark.exchange.ledger.log_checkpoint import LogCheckpoint
from ffq_spark.exchange.ledger.log_spans import Span
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.maintenance import versions
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import manifest, paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.payload import checksum
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

pytestmark = pytest.mark.usefixtures("small_checkpoints")


def checkpoint_files(files: Files) -> list[str]:
    return sorted(path for path in files if path.endswith(".arrows"))


def planned(store: Store, **options: Any) -> pa.Table:
    return take_snapshot(store, ReadOptions(**options)).parts()


# --- reading through log checkpoints -------------------------------------------------------------


class Naive:
    """A reader that uses only records and manifests, as the reference for log checkpoints."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.steps: list[StepRecord] = []
        while (path := paths.step(len(self.steps) + 1)) in files:
            self.steps.append(StepRecord.decode(files[path], path))

    def visible(self, number: int) -> list[int]:
        base = self.steps[number - 1].base
        restores = self.steps[base - 1].body.restores
        return [*(self.visible(restores) if restores else ()), *range(base, number + 1)]

    def parts(self, numbers: list[int], predicates: list[Predicate]) -> list[dict[str, Any]]:
        exchange = ExchangeRecord.decode(self.files[paths.EXCHANGE], paths.EXCHANGE)
        hashes = matching_hashes(exchange, predicates)
        allowed = None if hashes is None else set(hashes.partitions(exchange.partitions).tolist())
        rows = []
        for number in numbers:
            body = self.steps[number - 1].body
            table = manifest.decode(self.files[body.manifest], body.manifest)
            places = zip(table["file"].to_pylist(), table["offset"].to_pylist(), strict=True)
            last = dict(sorted(places))
            table = table.filter(pa.array(may_match(table, predicates)))
            table = table.select([field.name for field in manifest.PART_FIELDS])
            for row in table.to_pylist():
                ends_file = row["offset"] == last[row["file"]]
                own = {"step": number, "query": body.query, "modulus": body.partitions}
                rows.append({**own, **row, "ends_file": ends_file})
        wanted = [row for row in rows if allowed is None or row["reduce"] in allowed]
        return sorted(wanted, key=lambda row: (row["reduce"], row["step"], row["map_task"]))


STATISTICS = st.sampled_from([("none",), ("k",), ("v",), ("v", "k"), ("all",)])
CHANGES = st.lists(
    st.tuples(st.sampled_from(["append"] * 6 + ["replace", "rollback"]), STATISTICS),
    min_size=1,
    max_size=22,
)
DAMAGE = st.lists(st.tuples(st.integers(0, 50), st.sampled_from("dfctsx")), max_size=4)
PREDICATES = st.lists(
    st.sampled_from(
        [
            Predicate("k", "in", (3, 8)),
            Predicate("k", "in", (None,)),
            Predicate("v", "<", (40,)),
            Predicate("v", ">=", (60,)),
            Predicate("v", "in", (None, 33)),
            Predicate("v", "in", ("no number",)),
            Predicate("other", "in", (1,)),
        ]
    ),
    max_size=2,
)


def make_history(files: Files, changes: list[tuple[str, tuple[str, ...]]]) -> None:
    store = open_store(files)
    for number, (kind, statistics) in enumerate(changes, start=1):
        if kind == "rollback" and number > 1:
            versions.rollback(store, (number * 7) % (number - 1) + 1)
            continue
        columns = [[None if number % 5 == 0 else number, number + 1], [number * 5, None]]
        # Every sixth step has no rows and therefore no parts.
        rows = slice(0 if number % 6 == 0 else 2)
        batch = pa.record_batch([pa.array(c[rows], pa.int64()) for c in columns], ["k", "v"])
        options = write_options(keys=("k",), partitions=2, statistics=statistics)
        mode = "replace" if kind == "replace" else "append"
        write_batches("/memory", [batch], options=options, mode=mode, store=store)


def damage(files: Files, where: int, how: str) -> None:
    """Delete, flip, cut, empty, swap or overwrite a log checkpoint."""
    names = checkpoint_files(files)
    if not names:
        return
    path = names[where % len(names)]
    good = files[path]
    flipped = bytearray(good)
    if flipped:
        flipped[where * 31 % len(good)] ^= 1 << where % 8
    other = files[names[(where + 1) % len(names)]]
    new = {"f": bytes(flipped), "c": good[: len(good) // 2], "t": b"", "s": other, "x": b"x" * 99}
    files[path] = new.get(how, good)
    if how == "d":
        del files[path]


@settings(max_examples=80)
@given(CHANGES, DAMAGE, PREDICATES, st.data())
def test_a_log_shows_the_same_with_whatever_checkpoints_it_has(
    changes: list[tuple[str, tuple[str, ...]]],
    damages: list[tuple[int, str]],
    predicates: list[Predicate],
    data: st.DataObject,
) -> None:
    files: Files = {}
    make_history(files, changes)
    for where, how in damages:
        damage(files, where, how)
    naive, store = Naive(files), open_store(files)
    last = len(changes)
    first = data.draw(st.integers(1, last))
    chosen: dict[str, Any] = {
        "": ({}, naive.visible(last)),
        "all": ({"steps": "all"}, list(range(1, last + 1))),
        "some": ({"steps": f"{first}..{last}"}, list(range(first, last + 1))),
        "then": ({"as_of_step": first}, naive.visible(first)),
    }
    for options, numbers in chosen.values():
        snapshot = take_snapshot(store, ReadOptions(**options))
        assert list(snapshot.steps) == [naive.steps[number - 1] for number in numbers]
        parts = snapshot.parts(predicates)
        assert parts.schema.equals(READ_SCHEMA)
        assert parts.to_pylist() == naive.parts(numbers, predicates)


def test_no_flipped_bit_of_a_checkpoint_changes_what_is_shown(files: Files) -> None:
    make_history(files, [("append", ("all",))] * 4)
    expected = Naive(files).parts([1, 2, 3, 4], [])
    path = paths.log_checkpoint(4, 4)
    good = files[path]
    for bit in range(0, len(good) * 8, 101):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        files[path] = bytes(flipped)
        snapshot = take_snapshot(open_store(files), ReadOptions())
        assert snapshot.parts().to_pylist() == expected
        assert [step.step for step in snapshot.steps] == [1, 2, 3, 4]


def test_steps_with_other_statistics_in_one_checkpoint_are_pruned_each_by_its_own(
    files: Files,
) -> None:
    make_history(files, [("append", (name,)) for name in ("none", "k", "v", "all")])
    naive = Naive(files)
    for predicate in (Predicate("v", "in", (None,)), Predicate("v", "<", (18,))):
        snapshot = take_snapshot(open_store(files), ReadOptions())
        parts = snapshot.parts([predicate]).to_pylist()
        assert parts == naive.parts([1, 2, 3, 4], [predicate])
        assert {1, 2} <= {row["step"] for row in parts} and len(parts) < len(snapshot.parts())


def test_a_checkpoint_keeps_only_certain_statistics_of_columns_with_a_leading_dot(
    files: Files,
) -> None:
    """Earlier versions may have stored those of another column. Pruning by them loses rows."""
    store = open_store(files)
    options = write_options(keys=(".a",), partitions=1, statistics=("all",))
    for number in range(4):
        batch = pa.record_batch({"a": [100 + number], ".a": [number]})
        write_batches("/memory", [batch], options=options, store=store)
    predicate = Predicate(".a", "<=", (1,))
    path, span = paths.log_checkpoint(4, 4), Span(4, 4)
    known = LogCheckpoint.decode(files[path], span, path)
    assert may_match(known.parts(), [predicate]).tolist() == [True, True, False, False]
    files[path] = as_written_before(files[path])
    doubtful = LogCheckpoint.decode(files[path], span, path)
    assert may_match(doubtful.parts(), [predicate]).tolist() == [True] * 4
    assert may_match(doubtful.parts(), [Predicate("a", "<=", (101,))]).sum() == 2
    again = LogCheckpoint.decode(LogCheckpoint.join([doubtful]).encode(), span, path)
    assert may_match(again.parts(), [predicate]).tolist() == [True] * 4


def as_written_before(data: bytes) -> bytes:
    """Return a log checkpoint without the mark that its statistics are of the right columns."""
    start = int.from_bytes(data[-16:-8], "little")
    parts = pa.ipc.open_stream(data).read_all()
    header = b"ffq_checkpoint"
    sink = pa.BufferOutputStream()
    plain = parts.replace_schema_metadata({header: parts.schema.metadata[header]})
    with pa.ipc.new_stream(sink, plain.schema) as writer:
        writer.write_table(plain)
    length = sink.tell().to_bytes(8, "little")
    content = bytes(sink.getvalue()) + data[start:-16] + length
    return content + checksum(pa.py_buffer(content)).to_bytes(8, "little")


def test_the_property_above_reads_checkpoints(files: Files) -> None:
    """The property also holds without log checkpoints, so this test shows that they are read."""
    make_history(files, [("append", ("k",))] * 21)
    operations: list[str] = []
    store = open_store(files, operations.append)
    take_snapshot(store, ReadOptions()).parts()
    opened = [path for path in operations if path.endswith(".arrows")]
    assert opened == [
        f"read {paths.log_checkpoint(size, last)}" for size, last in ((16, 16), (4, 20))
    ]
    assert sum(path.startswith(f"read {paths.MANIFESTS}") for path in operations) == 1


# --- writing log checkpoints ---------------------------------------------------------------------


def test_a_checkpoint_is_the_same_whatever_it_was_made_of(files: Files) -> None:
    make_history(files, [("append", (name,)) for name in ("none", "k", "v", "all") * 4])
    made = {path: files.pop(path) for path in checkpoint_files(files)}
    assert [path.split("/")[2] for path in made] == ["16", "4", "4", "4", "4", "8", "8"]
    for path in (paths.log_checkpoint(16, 16), paths.log_checkpoint(8, 8)):
        span = Span(int(path.split("/")[2]), int(path.split("/")[3].split(".")[0]))
        assert StepLog(open_store(files)).write_log_checkpoint(span)
        assert files[path] == made[path]


def test_a_record_is_kept_as_it_is_stored_with_what_a_later_version_added(
    files: Files, scene: Scene
) -> None:
    for _ in range(3):
        scene.write()
    document = json.loads(files[paths.step(2)]) | {"later": 1}
    files[paths.step(2)] = json.dumps(document).encode()
    scene.write()
    path = paths.log_checkpoint(4, 4)
    records = LogCheckpoint.decode(files[path], Span(4, 4), path).records
    assert records.to_pylist() == [files[paths.step(number)] for number in (1, 2, 3, 4)]


def test_a_damaged_manifest_is_not_papered_over(files: Files, scene: Scene) -> None:
    second = [scene.write() for _ in range(3)][1]
    good = files[second.body.manifest]
    files[second.body.manifest] = good[:-1] + b"?"
    scene.write()
    assert checkpoint_files(files) == [paths.log_checkpoint(4, 4)]
    with pytest.raises(CorruptRecord, match="differs from the committed one"):
        planned(scene.store)
    files[second.body.manifest] = good
    assert planned(scene.store).to_pylist() == Naive(files).parts([1, 2, 3, 4], [])


def test_what_cannot_be_written_or_is_too_large_fails_no_commit(
    files: Files, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(operation: str) -> None:
        if paths.LOG_CHECKPOINTS in operation and not operation.startswith("read"):
            raise PermissionError(operation)

    poor = Scene(scene.place, open_store(files, refuse))
    steps = [poor.write() for _ in range(4)]
    assert "no log checkpoint of the steps up to 4" in caplog.text
    assert checkpoint_files(files) == [] and paths.NEWEST not in files
    monkeypatch.setattr(log_checkpoint, "MAX_PARTS", 9)
    steps += [scene.write() for _ in range(4)]
    assert [path.split("/")[2] for path in checkpoint_files(files)] == ["4", "4"]
    assert planned(scene.store).to_pylist() == Naive(files).parts([s.step for s in steps], [])


def write_one(store: Store) -> StepRecord:
    return Scene(Place("/memory"), store).write()


def test_a_writer_that_dies_anywhere_is_made_good_by_the_next_ones(
    files: Files, scene: Scene
) -> None:
    for _ in range(7):
        scene.write()
    left = set()
    for copy in kill_points(files, write_one):
        left.add(len(checkpoint_files(copy)))
        store = open_store(copy)
        steps = list(take_snapshot(store, ReadOptions()).steps)
        assert len(steps) in (7, 8)
        assert planned(store).to_pylist() == Naive(copy).parts([s.step for s in steps], [])
        while len(steps) < 12:
            steps.append(write_one(store))
        assert [s.step for s in steps] == list(range(1, 13))
        assert len(checkpoint_files(copy)) == 4
        assert StepLog(store).last_number() == 12
    # The writer was killed before both log checkpoints, between them, and after both.
    assert left == {1, 2, 3}


def test_two_writers_that_complete_a_checkpoint_at_once_agree(files: Files, scene: Scene) -> None:
    for _ in range(6):
        scene.write()
    for operations in range(0, 60, 4):
        copy = dict(files)
        first, second = Process(copy, write_one), Process(copy, write_one)
        first.advance(operations)
        second.advance(60 - operations)
        steps = sorted(process.finish().step for process in (first, second))
        assert steps == [7, 8]
        assert len(checkpoint_files(copy)) == 3
        numbers = list(range(1, 9))
        assert planned(open_store(copy)).to_pylist() == Naive(copy).parts(numbers, [])


# --- expired steps -------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_the_data_of_an_expired_step_is_missed_where_a_checkpoint_still_lists_it(
    files: Files, scene: Scene, late: bool
) -> None:
    for mode in ("append", "append", "replace", "replace", "append"):
        scene.write(mode)
    made = dict(files)
    if late:
        del files[paths.log_checkpoint(4, 4)]
    assert scene.gc(now_ms(), retention_ms=0).expired == [1, 2]
    for number in (6, 7, 8) if late else ():
        assert scene.write().step == number
    assert paths.log_checkpoint(4, 4) in files
    assert (files[paths.log_checkpoint(4, 4)] == made[paths.log_checkpoint(4, 4)]) is not late
    for options in ({"as_of_step": 2}, {"steps": "1..4"}, {"steps": "all"}):
        with pytest.raises(StepExpired, match="step 1 was deleted"):
            planned(scene.store, **options)
    assert len(scene.ledger.log.read_many(range(1, 6))) == 5
    assert set(planned(scene.store)["step"].to_pylist()) == set(range(4, 9 if late else 6))
    assert scene.gc(now_ms(), retention_ms=0).expired == []


def test_a_step_that_is_only_marked_can_be_read_while_its_data_is_there(
    files: Files, scene: Scene
) -> None:
    for _ in range(4):
        scene.write()
    files[paths.expired(2)] = b"{}\n"
    assert planned(scene.store, as_of_step=4).to_pylist() == Naive(files).parts([1, 2, 3, 4], [])


# --- every kind of storage -----------------------------------------------------------------------


def test_it_is_the_same_on_every_storage(place: Place) -> None:
    scene = Scene(place)
    steps = [scene.write("replace" if number == 3 else "append") for number in range(1, 11)]
    store = scene.store
    assert [entry.name for entry in store.list(f"{paths.LOG_CHECKPOINTS}/4")] == [
        paths.log_checkpoint(4, last).rpartition("/")[2] for last in (4, 8)
    ]
    assert scene.rows() == rows_of(*steps[2:])
    assert scene.exchange.steps() == steps
    path = paths.log_checkpoint(8, 8)
    store.replace(path, store.read(path)[:-1])
    store.delete(paths.log_checkpoint(4, 4))
    store.replace(paths.NEWEST, b"?")
    assert scene.rows() == rows_of(*steps[2:])
    assert scene.exchange.verify(steps="all").ok
    assert SCHEMA.names[0] in OPTIONS.keys
