"""The frames of a version 2 index must match the file byte for byte, read in any pieces."""

from __future__ import annotations

import zlib
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import CorruptPart
from ffq_spark.format.chunks import ChunkSums, check_chunks
from ffq_spark.format.index import Chunk

FRAMES = (b"first frame", b"second", b"the third one")
PART = b"".join(FRAMES)


def chunks_of(frames: tuple[bytes, ...]) -> list[Chunk]:
    starts = accumulate((len(frame) for frame in frames), initial=0)
    return [
        Chunk(start, len(frame), len(frame), len(frame), 1, 1, zlib.adler32(frame))
        for start, frame in zip(starts, frames, strict=False)
    ]


@given(cuts=st.lists(st.integers(0, len(PART)), max_size=9).map(sorted))
def test_a_part_in_any_pieces_passes(cuts: list[int]) -> None:
    sums = ChunkSums(chunks_of(FRAMES), len(PART), "part")
    for start, end in zip([0, *cuts], [*cuts, len(PART)], strict=True):
        sums.update(pa.py_buffer(PART[start:end]))


@given(place=st.integers(0, len(PART) - 1))
def test_a_changed_byte_is_found_in_its_frame(place: int) -> None:
    damaged = bytearray(PART)
    damaged[place] ^= 1
    frame = max(chunk.offset_bytes for chunk in chunks_of(FRAMES) if chunk.offset_bytes <= place)
    with pytest.raises(CorruptPart, match=f"in the frame at byte {frame}") as caught:
        check_chunks(pa.py_buffer(bytes(damaged)), chunks_of(FRAMES), "the/part")
    assert caught.value.path == "the/part"


@pytest.mark.parametrize(
    ("frames", "size", "text"),
    [
        (FRAMES, len(PART) + 1, "longer than the index's chunks"),
        (FRAMES, len(PART) - 1, "do not cover the file"),
        (FRAMES[:2], len(PART), "longer than the index's chunks"),
        ((b"", *FRAMES), len(PART), "do not cover the file"),
    ],
)
def test_chunks_of_another_length_are_refused(
    frames: tuple[bytes, ...], size: int, text: str
) -> None:
    with pytest.raises(CorruptPart, match=text):
        ChunkSums(chunks_of(frames), size, "part")


def test_chunks_with_a_gap_are_refused() -> None:
    first, _, third = chunks_of(FRAMES)
    with pytest.raises(CorruptPart, match="do not cover the file"):
        ChunkSums([first, third], len(PART), "part")
