"""Reading damaged storage raises an error that names the file, and never returns wrong rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_rows import failure, read, rows, write
from stored_parts import stored_parts, swap

pytestmark = pytest.mark.spark

PAYLOADS = [("arrow", "none"), ("arrow", "lz4"), ("ffqs", "none"), ("ffqs", "zstd")]


def frame(spark: Any) -> Any:
    return spark.range(0, 2000, 1, 1).selectExpr("id", "id % 40 AS k", "HEX(id * 7919) AS s")


@pytest.fixture(scope="module")
def originals(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, str]:
    """Write an exchange of two parts in each payload."""
    roots = {}
    for payload, compression in PAYLOADS:
        root = str(tmp_path_factory.mktemp("original") / "exchange")
        write(frame(spark), root, keys="k", partitions=2, payload=payload, compression=compression)
        roots[payload, compression] = root
    return roots


@pytest.fixture(params=PAYLOADS, ids="-".join)
def copy(request: pytest.FixtureRequest, originals: dict[Any, str], tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.copytree(originals[request.param], target)
    return target


def part(root: Path) -> Path:
    return stored_parts(str(root))[0].file


def assert_unreadable(spark: Any, root: Path, path: Path, code: str = "FFQ_CORRUPT_PART") -> None:
    message = failure(read(spark, str(root)).collect)
    assert code in message
    assert str(path) in message


def test_a_copy_reads_as_the_original(spark: Any, copy: Path) -> None:
    """An exchange contains no absolute paths, so its copy is readable before a test damages it."""
    assert rows(read(spark, str(copy))) == rows(frame(spark))
    assert len(stored_parts(str(copy))) == 2


def test_a_missing_part_is_an_error(spark: Any, copy: Path) -> None:
    path = part(copy)
    path.unlink()
    assert_unreadable(spark, copy, path)
    # A count of all rows comes from the manifest. A count with a filter reads the parts, and must
    # not mistake a missing part for an empty one.
    assert "FFQ_CORRUPT_PART" in failure(read(spark, str(copy)).where("id >= 0").count)


def batch_ends(data: bytes) -> list[int]:
    """Return the offsets at which an Arrow stream could be cut between two messages."""
    import pyarrow as pa

    source = pa.BufferReader(data)
    reader = pa.ipc.MessageReader.open_stream(source)
    ends = []
    for message in iter(lambda: _next(reader), None):
        ends.append(source.tell())
        assert message.type in ("schema", "record batch")
    return ends


def _next(reader: Any) -> Any:
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


def cuts(data: bytes) -> list[int]:
    """Return lengths for a cut: empty, within the head, between batches, near the end."""
    if data[:4] == b"FFQS":
        first_frame = 24 + int.from_bytes(data[16:24], "little")
        assert first_frame < len(data)
        return [0, 10, first_frame, len(data) - 1]
    ends = batch_ends(data)
    assert len(ends) > 2
    return [0, ends[0], ends[1], len(data) - 1]


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_a_cut_part_is_an_error_wherever_it_is_cut(spark: Any, root: str, payload: str) -> None:
    """A cut between two Arrow batches or frames is an error, although the rest is a valid part."""
    # Parts have batches of 16 MiB, so these 20 MB make a second batch.
    large = spark.range(0, 20, 1, 1).selectExpr("id", "REPEAT('x', 1000000) AS s")
    write(large, root, partitions=1, payload=payload)
    path = part(Path(root))
    data = path.read_bytes()
    for length in cuts(data):
        path.write_bytes(data[:length])
        assert_unreadable(spark, Path(root), path)
        assert "FFQ_CORRUPT_PART" in failure(read(spark, root, verify="counts").collect)
    path.write_bytes(data + b"\x00")
    assert_unreadable(spark, Path(root), path)
    path.write_bytes(data)
    assert read(spark, root).count() == 20


def test_a_flipped_bit_is_an_error_wherever_it_is(spark: Any, copy: Path) -> None:
    path = part(copy)
    data = path.read_bytes()
    for share in (0.0, 0.5, 0.999):
        flipped = bytearray(data)
        flipped[int(share * len(data))] ^= 0x10
        path.write_bytes(flipped)
        assert_unreadable(spark, copy, path)


def test_parts_that_changed_places_are_an_error(spark: Any, copy: Path) -> None:
    """Each part is valid by itself, but belongs to the other partition."""
    swap(*stored_parts(str(copy)))
    message = failure(read(spark, str(copy)).collect)
    assert "FFQ_CORRUPT_PART" in message


def flip_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": flip_in_the_middle,
    "cut": cut_in_half,
    "empty": empty,
    "missing": Path.unlink,
}


@pytest.fixture
def plain(originals: dict[Any, str], tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.copytree(originals["arrow", "none"], target)
    return target


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_manifest_is_an_error(spark: Any, plain: Path, damage: str) -> None:
    """Without its manifest, the rows of a step are unknown."""
    (path,) = (plain / "_ffq/manifests").iterdir()
    DAMAGE[damage](path)
    assert_unreadable(spark, plain, path, "FFQ_CORRUPT_RECORD")


@pytest.mark.parametrize("damage", ["cut", "empty"])
@pytest.mark.parametrize("record", ["format.json", "exchange.json", "steps/*.json"])
def test_a_damaged_record_is_an_error(spark: Any, plain: Path, record: str, damage: str) -> None:
    (path,) = (plain / "_ffq").glob(record)
    DAMAGE[damage](path)
    message = failure(lambda: read(spark, str(plain)).collect())
    assert "FFQ_CORRUPT_RECORD" in message
    assert str(path) in message


def test_a_hole_in_the_log_is_an_error(spark: Any, plain: Path) -> None:
    """A log without one of its middle steps is not read as a shorter log."""
    for _ in range(2):
        write(frame(spark).limit(5), str(plain))
    path = sorted((plain / "_ffq/steps").iterdir())[1]
    path.unlink()
    message = failure(lambda: read(spark, str(plain)).collect())
    assert "FFQ_" in message
    assert str(path) in message


def test_a_step_whose_counts_were_edited_is_an_error(spark: Any, plain: Path) -> None:
    """The step holds its manifest's checksum, so neither of the two can be replaced alone."""
    (path,) = (plain / "_ffq/steps").iterdir()
    record = json.loads(path.read_text())
    record["body"]["manifest_checksum"] ^= 1
    path.write_text(json.dumps(record))
    (manifest,) = (plain / "_ffq/manifests").iterdir()
    assert_unreadable(spark, plain, manifest, "FFQ_CORRUPT_RECORD")
