"""The offsets of a batch come from the Spark checkpoint, written before the batch ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from ffq_spark.errors import NoOffsets
from ffq_spark.exchange.write.lineage import batch_offsets, parse_offsets
from ffq_spark.format.records import Offsets


def write_offsets(checkpoint: Path, batch: int, *offsets: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    text = "\n".join(["v1", '{"batchWatermarkMs":0}', *offsets])
    (checkpoint / "offsets" / str(batch)).write_text(text)


def test_a_batch_lies_between_its_offsets_and_those_before(tmp_path: Path) -> None:
    write_offsets(tmp_path, 0, '{"step":3}')
    write_offsets(tmp_path, 1, '{"step":5}')
    assert batch_offsets(str(tmp_path), 0) == Offsets((), ('{"step":3}',))
    assert batch_offsets(str(tmp_path), 1) == Offsets(('{"step":3}',), ('{"step":5}',))


@pytest.mark.parametrize("missing", [1, 2])
def test_offsets_that_are_missing_are_named(tmp_path: Path, missing: int) -> None:
    for batch in {1, 2} - {missing}:
        write_offsets(tmp_path, batch, '{"step":3}')
    with pytest.raises(NoOffsets, match=f"offsets/{missing}"):
        batch_offsets(str(tmp_path), 2)


def test_a_source_without_an_offset_has_an_empty_one() -> None:
    assert parse_offsets("v1\n{}\n-\n7", "offsets/0") == ("", "7")


def test_named_sources_are_put_in_their_order() -> None:
    assert parse_offsets("v2\n{}\n1:b\n0:a:c\n10:-", "offsets/0") == ("a:c", "b", "")


def test_another_version_is_refused() -> None:
    with pytest.raises(NoOffsets, match="v3"):
        parse_offsets("v3\n{}\n-", "offsets/0")
