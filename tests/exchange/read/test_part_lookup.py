"""One part of one attempt: its bytes in any pieces, and the attempts that may be fetched."""

from __future__ import annotations

from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from conftest import Place
from gc_scene import Scene
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ffq_spark.errors import CorruptRecord, NoAttempts, NotRegistered, PartitionNotFound
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.read import part_lookup
from ffq_spark.exchange.read.part_lookup import registered_part
from ffq_spark.format.paths import AttemptId
from ffq_spark.store import Store

QUERY = (1 << 62) + 12345


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": keys, "name": [f"row {key}" for key in keys]})


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


@pytest.fixture(params=["v1", "none", "lz4", "zstd"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Exchange:
    """Write a map task with rows in the partitions 0 and 2, as FFQ writes it."""
    attempt, parts = (QUERY, 0, 0, 1), {0: [batch(1, 2)], 2: [batch(3), batch(4, 5)]}
    if request.param == "v1":
        ffq.write_v1(tmp_path, attempt, parts)
    else:
        ffq.write_v2(tmp_path, attempt, parts, request.param)
    return Exchange(str(tmp_path))


def test_a_fetch_gives_the_files_own_bytes(golden: Exchange) -> None:
    place = Path(golden.root) / "shuffle" / str(QUERY) / "0"
    expected = (place / "0/1/part-2.ipc").read_bytes()
    assert golden.fetch(QUERY, 0, 2) == expected
    assert golden.fetch(QUERY, 0, 2, attempt=1) == expected
    with pytest.raises(PartitionNotFound, match="partition 1 not found in shuffle index"):
        golden.fetch(QUERY, 0, 1)
    with pytest.raises(NoAttempts, match="no shuffle attempts found for map task"):
        golden.fetch(QUERY, 3, 0)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunk=st.integers(1, 700), beyond=st.integers(0, 1000))
def test_chunks_of_any_size_join_to_the_same_bytes(
    golden: Exchange, chunk: int, beyond: int
) -> None:
    whole = golden.fetch(QUERY, 0, 2)
    starts = range(0, len(whole), chunk)
    pieces = [golden.fetch(QUERY, 0, 2, start_offset=at, max_bytes=chunk) for at in starts]
    assert b"".join(pieces) == whole
    assert golden.fetch(QUERY, 0, 2, start_offset=starts[-1]) == pieces[-1]
    assert golden.fetch(QUERY, 0, 2, start_offset=len(whole) + beyond, max_bytes=chunk) == b""


def test_a_map_task_can_be_fetched_before_the_others_are_complete(tmp_path: Path) -> None:
    """Attempt 3 is the latest one with an index; the other map task has none yet."""
    for attempt in (1, 3, 4):
        ffq.write_v1(tmp_path, (7, 0, 0, attempt), {0: [batch(attempt)]}, index=attempt != 4)
    ffq.write_v1(tmp_path, (7, 0, 1, 1), {0: [batch(8)]}, index=False)
    expected = (tmp_path / "shuffle/7/0/0/3/part-0.ipc").read_bytes()
    exchange = Exchange(str(tmp_path))
    assert exchange.fetch(7, 0, 0) == expected
    assert exchange.fetch(7, 0, 0, attempt=3) == expected
    with pytest.raises(NoAttempts, match="no shuffle attempts found for map task"):
        exchange.fetch(7, 1, 0)
    for attempt in (2, 4, 99):
        with pytest.raises(NotRegistered, match="not registered for requested attempt"):
            exchange.fetch(7, 0, 0, attempt=attempt)


def test_only_the_registered_attempt_of_a_step_is_fetched(scene: Scene) -> None:
    """Attempt 2 is larger and complete."""
    step, _ = scene.twins()
    query = step.body.query
    assert {scene.exchange.fetch(query, 0, 0, attempt=n) for n in (0, 1)} == {
        scene.exchange.fetch(query, 0, 0)
    }
    with pytest.raises(NotRegistered, match="map output not registered for requested attempt"):
        scene.exchange.fetch(query, 0, 0, attempt=2)
    for stage, map_task in ((1, 0), (0, 5)):
        with pytest.raises(NoAttempts):
            scene.exchange.fetch(query, map_task, 0, stage=stage)


def test_size_and_checksum_of_a_committed_part_come_from_its_manifest(root: str) -> None:
    scene = Scene(Place(root))
    step = scene.write()
    (listed, *_) = scene.exchange.parts(partitions=0).to_pylist()
    part = registered_part(scene.store, AttemptId(step.body.query, 0, 0, 0), 0)
    assert (part.file, part.bytes, part.checksum) == tuple(
        listed[name] for name in ("file", "bytes", "checksum")
    )
    assert part.checksum is not None


def test_the_manifests_of_two_steps_are_cached_each_by_its_checksum(root: str) -> None:
    """Clients fetch all parts of a step, one after the other."""
    scene = Scene(Place(root))
    steps = [scene.write() for _ in range(3)]
    part_lookup._manifests.clear()
    read: list[str] = []

    class Counting(Store):
        def read_optional(self, path: str) -> bytes | None:
            read.append(path)
            return super().read_optional(path)

    def fetch(number: int) -> bool:
        """Fetch a part of a step; return whether its manifest was read."""
        read.clear()
        body = steps[number].body
        registered_part(Counting(root), AttemptId(body.query, 0, 0, 0), 0)
        return body.manifest in read

    assert [fetch(number) for number in (0, 0, 1, 0, 2, 0, 1)] == [
        *(True, False, True, False, True, False, True)
    ]
    scene.store.write(steps[2].body.manifest, [b"another"])
    with pytest.raises(CorruptRecord, match="differs from the committed one"):
        fetch(2)
