"""Frames keep their streams unchanged, and wrong headers are refused."""

from __future__ import annotations

import ffq_reference as ffq
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import CorruptPart
from ffq_spark.format import frames

streams = st.lists(st.tuples(st.binary(min_size=1), st.sampled_from(frames.CODECS)), min_size=1)


@given(streams=streams)
def test_the_streams_of_a_part_come_back_in_order(streams: list[tuple[bytes, str]]) -> None:
    encoded = (frames.encode(pa.py_buffer(stream), codec) for stream, codec in streams)
    part = pa.py_buffer(b"".join(encoded))
    assert frames.is_framed(part)
    assert frames.is_compressed(part) == (streams[0][1] != "none")
    assert [bytes(s) for s in frames.decode(part, "part")] == [stream for stream, _ in streams]


@pytest.mark.parametrize("codec", frames.CODECS)
def test_frames_that_ffq_writes_are_read(codec: str) -> None:
    part = pa.py_buffer(ffq.frame(b"some stream" * 9, codec))
    assert [bytes(stream) for stream in frames.decode(part, "part")] == [b"some stream" * 9]


def test_a_header_names_codec_and_lengths() -> None:
    frame = frames.encode(pa.py_buffer(bytes(1000)), "zstd")
    header = frames.decode_header(frame[: frames.HEADER_BYTES], "part")
    assert header == ("zstd", 1000, len(frame) - frames.HEADER_BYTES)


def test_a_header_that_is_no_frames_names_its_place_if_that_is_known() -> None:
    for position, place in ((None, ""), (0, " at byte 0")):
        with pytest.raises(CorruptPart) as caught:
            frames.decode_header(bytes(frames.HEADER_BYTES), "the/part", position)
        assert caught.value.message == f"no frame of a known kind{place}"
        assert caught.value.path == "the/part"


def test_an_arrow_stream_and_an_empty_part_are_not_framed() -> None:
    assert not frames.is_framed(pa.py_buffer(b"\xff\xff\xff\xff"))
    assert not frames.is_framed(pa.py_buffer(b""))


def test_a_part_that_is_only_a_cut_header_is_not_compressed() -> None:
    assert not frames.is_compressed(pa.py_buffer(b"FFQS\x01\x02"))
