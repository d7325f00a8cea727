"""A part's bytes are divided into streams of one batch each, even if sizes in it are damaged."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.checked_pieces import HeldBytes
from ffq_spark.exchange.read.part_streams import split_streams
from ffq_spark.format.messages import batch_head
from ffq_spark.format.payload import Codec

BATCHES = [pa.record_batch({"a": list(range(n, n + 50))}) for n in (0, 50, 100)]


@pytest.mark.parametrize("limit", [1, 1 << 20], ids=["on disk", "in memory"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_the_streams_have_the_batches_of_the_part(
    payload: str, compression: str, limit: int
) -> None:
    codec = Codec(BATCHES[0].schema, payload, compression)
    part = HeldBytes(pa.py_buffer(codec.stream(*BATCHES)), "part-0.ipc")
    streams = list(split_streams(part, limit, "part-0.ipc"))
    assert all((stream.spilled is not None) == (limit == 1) for stream in streams)
    assert part.left == 0


def test_sizes_that_damage_made_up_are_errors_of_the_part() -> None:
    part = "part-0.ipc"
    empty = b"FFQS" + bytes([1, 1, 0, 0]) + struct.pack("<QQ", 1 << 40, 0)
    with pytest.raises(CorruptPart, match="0 bytes in a frame"):
        list(split_streams(HeldBytes(pa.py_buffer(empty), part), 100, part))
    batch = pa.record_batch({"a": range(4_243)})
    codec = Codec(batch.schema, "arrow", "zstd")
    data, start = bytearray(codec.stream(batch)), len(codec.header)
    head = batch_head(memoryview(data)[start:])
    for buffer in range(head.buffers):
        struct.pack_into("<q", data, start + head.buffers_at + 16 * buffer, 1 << 40)
    with pytest.raises(CorruptPart, match="not a readable Arrow stream"):
        list(split_streams(HeldBytes(pa.py_buffer(data), part), 1 << 20, part))
