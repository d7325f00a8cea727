"""Large parts are verified as a whole, and verified again when they are read in pieces."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.checked_pieces import (
    PIECE_BYTES,
    HeldBytes,
    PartBytes,
    check_part,
    take,
)
from ffq_spark.exchange.read.part import list_parts
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.store import Store


def written(root: str, count: int) -> Exchange:
    batch = pa.record_batch(
        {"id": list(range(count)), "name": [f"{i:0100d}" for i in range(count)]}
    )
    write_batches(root, [batch], options=write_options(keys=("id",), partitions=2))
    return Exchange(root)


@pytest.mark.part_files
def test_a_file_that_changes_after_it_was_checked_is_an_error_before_its_bytes_are_used(
    root: str,
) -> None:
    part = next(list_parts(written(root, 20_000).parts()))
    assert part.bytes > 2 * PIECE_BYTES
    store, path = Store(root), Path(root, part.file)
    source = PartBytes(store, part, check_part(store, part))
    data = bytearray(path.read_bytes())
    data[PIECE_BYTES + 5] ^= 1
    path.write_bytes(data)
    assert take(source, PIECE_BYTES) == data[:PIECE_BYTES]
    with pytest.raises(CorruptPart, match="changed while it was read"):
        take(source, 1)


@pytest.mark.part_files
def test_a_part_is_checked_in_pieces_whatever_their_size(root: str) -> None:
    part = next(list_parts(written(root, 50).parts()))
    store, data = Store(root), Path(root, part.file).read_bytes()
    for piece_bytes in (7, 100, len(data), 2 * len(data)):
        checked = check_part(store, part, piece_bytes)
        assert checked.digest == part.checksum == xxhash.xxh3_64_intdigest(data)
        assert len(checked.pieces) == -(-len(data) // piece_bytes)
        source = PartBytes(store, part, checked, start=3)
        assert take(source, source.left) == data[3:]


@pytest.mark.part_files
def test_a_part_that_was_cut_or_has_grown_is_an_error(root: str) -> None:
    part = next(list_parts(written(root, 50).parts()))
    path = Path(root, part.file)
    data = path.read_bytes()
    for changed, message in ((data[:-1], "fewer than the"), (data + b"x", "longer than the")):
        path.write_bytes(changed)
        with pytest.raises(CorruptPart, match=message):
            check_part(Store(root), part)


def test_more_bytes_than_there_are_is_an_error_before_they_are_given_room() -> None:
    with pytest.raises(CorruptPart, match="ends inside a batch"):
        take(HeldBytes(pa.py_buffer(b"abc"), "part-0.ipc"), 1 << 62)
