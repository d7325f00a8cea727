"""The plan's request and its note: what the JVM finds in pickled tasks."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from ffq_spark.shared_names import PlanField
from ffq_spark.spark.plan_note import PlanNote, PlanRequest, place_mark, requested

WANTED = {
    "partitions": 8,
    "order": ["k"],
    "bounds": ["v"],
    "report": True,
    "filters": [{"column": "k", "op": "in", "values": [1]}],
}


def column(name: str, **metadata: str) -> StructField:
    return StructField(name, LongType(), True, metadata)


def test_a_request_is_found_on_whatever_column_has_it() -> None:
    note = {PlanField.REQUEST: json.dumps(WANTED)}
    request = requested(StructType([column("k"), column("v", **note)]))
    assert request == PlanRequest(8, ("k",), ("v",), True, tuple(WANTED["filters"]))
    assert requested(StructType([column("k", comment="ffq")])) is None


@pytest.mark.parametrize("text", ["plain", ">ffq\x01", "\x01ffq<", "ü😀\x80"])
def test_no_text_in_a_note_ends_or_begins_it(text: str) -> None:
    """The JVM searches the pickle for the marks and decodes what is between them."""
    begin, end = PlanField.BEGIN.encode(), PlanField.END.encode()
    data = pickle.dumps(PlanNote.of({"keys": [text]}))
    assert (data.count(begin), data.count(end)) == (1, 1)
    note = data[data.index(begin) + len(begin) : data.index(end)]
    assert json.loads(note) == {"keys": [text]}
    assert pickle.loads(data).text == begin + note + end


def test_a_place_tells_a_task_from_all_others() -> None:
    assert len({place_mark(n, count) for n, count in ((0, 1), (0, 11), (1, 1), (10, 11))}) == 4


def test_a_note_holds_no_number_that_json_has_not() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        PlanNote.of({"bounds": [float("nan")]})
