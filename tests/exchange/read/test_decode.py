"""A part must have the committed number of rows in valid batches, or reading it is an error."""

from __future__ import annotations

import weakref

import pyarrow as pa
import pytest

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.decode import decode_part, validate
from ffq_spark.exchange.read.part import Part
from ffq_spark.format.payload import Codec, Decoder

SCHEMA = pa.schema([("k", pa.int64())])
BATCHES = [pa.record_batch({"k": [1, 2]}, SCHEMA), pa.record_batch({"k": [3]}, SCHEMA)]
DATA = pa.py_buffer(Codec(SCHEMA, "arrow", "none").stream(*BATCHES))
PART = Part("part-0.ipc", 0, len(DATA), rows=3, batches=2, checksum=0)


def decoded(part: Part, verify: str) -> list[int]:
    batches = decode_part(Decoder(SCHEMA), part, DATA, "part-0.ipc", verify)
    return [k for batch in batches for k in batch["k"].to_pylist()]


def test_rows_are_compared_with_what_was_committed() -> None:
    for wrong in (PART._replace(rows=2), PART._replace(batches=3)):
        for verify in ("full", "counts"):
            with pytest.raises(CorruptPart, match="3 rows in 2 batches instead of"):
                decoded(wrong, verify)
        assert decoded(wrong, "none") == [1, 2, 3]
    assert decoded(PART, "full") == [1, 2, 3]


def test_a_batch_is_not_held_while_the_user_has_it() -> None:
    batches = decode_part(Decoder(SCHEMA), PART, DATA, "part-0.ipc")
    batch = next(batches)
    gone = weakref.ref(batch)
    del batch
    assert gone() is None


def test_strings_of_spark_need_not_be_utf8_and_those_of_others_must() -> None:
    array = pa.array([b"\xff"], pa.binary()).view(pa.string())
    batch = pa.record_batch({"s": array})
    validate(batch, "part-0.ipc", full=True)
    with pytest.raises(CorruptPart, match="not valid Arrow data"):
        validate(batch, "part-0.ipc", full=True, any_bytes=False)
