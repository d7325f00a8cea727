"""Arrow messages from pyarrow are decoded correctly, and damaged ones raise a ValueError."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.format.messages import PREFIX, batch_head, describe, metadata_value

BATCH = pa.record_batch({"k": [1, 2, 3], "name": ["a", None, "ccc"]})
MESSAGE = BATCH.serialize().to_pybytes()


def description(message: bytes) -> bytes:
    _, length = PREFIX.unpack_from(message)
    return message[PREFIX.size : PREFIX.size + length]


def test_a_head_ends_where_the_body_begins() -> None:
    head = batch_head(memoryview(MESSAGE))
    assert head.length == PREFIX.size + len(description(MESSAGE))
    # k has no validity, but values; name has validity, offsets and values.
    assert head.buffers == 5


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_description_tells_the_sizes_of_the_body(compression: str | None) -> None:
    batch = pa.record_batch({"k": [7] * 10_000})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()[len(batch.schema.serialize()) :].to_pybytes()
    described = describe(description(data))
    assert described.is_batch
    assert bool(described.packed) == bool(compression)
    body = memoryview(data)[PREFIX.size + len(description(data)) :]
    if compression:
        assert described.body_bytes < 80_000 <= described.unpacked_bytes(body)


def test_a_schema_is_no_batch() -> None:
    data = BATCH.schema.serialize().to_pybytes()
    assert not describe(description(data)).is_batch
    with pytest.raises(ValueError, match="no batch"):
        batch_head(memoryview(data))


def test_metadata_of_a_batch_is_found_by_its_key() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH, custom_metadata={b"a": b"1", b"b": b"2"})
    data = sink.getvalue()[len(BATCH.schema.serialize()) :].to_pybytes()
    assert metadata_value(memoryview(data), b"b") == b"2"
    with pytest.raises(ValueError, match="the metadata has no c"):
        metadata_value(memoryview(data), b"c")


@given(st.data())
def test_damage_raises_a_value_error_or_is_not_noticed(data: st.DataObject) -> None:
    """Damage raises no other error than ValueError."""
    damaged = bytearray(MESSAGE)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for work in (batch_head, lambda view: metadata_value(view, b"k")):
        try:
            work(memoryview(damaged)[:cut])
        except ValueError:
            continue
