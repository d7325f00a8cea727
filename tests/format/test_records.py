"""Records are read as they were written; damaged records and future versions are refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest
from arrow_strategies import kinds
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import CorruptRecord, FutureFormat
from ffq_spark.format.records import (
    FORMAT_VERSION,
    ExchangeRecord,
    FormatRecord,
    JsonRecord,
    Outcome,
    OutcomeRecord,
    RoutingRecord,
    StepBody,
    StepRecord,
)
from ffq_spark.format.registered import Registered

BODY = StepBody(
    query=5,
    mode="append",
    stage=0,
    rows=1,
    bytes=2,
    parts=1,
    registered=Registered([(0, 0, 1)]),
    manifest="_ffq/manifests/5.arrow",
    manifest_bytes=3,
    manifest_checksum=4,
    committed_at_ms=6,
)
attempts = st.dictionaries(st.integers(0, 50), st.integers(1, 3), max_size=20)
st.register_type_strategy(Registered, attempts.map(Registered.of))
bodies = st.builds(
    StepBody, partitions=st.integers(0, 10_000), sort_by=..., stream=..., offsets=...
)
st.register_type_strategy(StepBody, bodies)
steps = st.tuples(st.integers(1, 1 << 40), st.integers(0, 9), bodies).map(
    lambda drawn: StepRecord(
        step=drawn[0] + drawn[1],
        version=1,
        base=drawn[0],
        body=replace(drawn[2], mode="append" if drawn[1] else "replace"),
    )
)


@st.composite
def exchanges(draw: st.DrawFn) -> ExchangeRecord:
    names = draw(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
    schema = pa.schema([(name, draw(kinds())) for name in names])
    keys = names[: draw(st.integers(0, len(names)))]
    hash = draw(st.sampled_from(["spark", "ffq"]))
    return ExchangeRecord.of(schema, keys, draw(st.integers(1, 10_000)), hash, draw(st.text()))


st.register_type_strategy(ExchangeRecord, exchanges())


def instances(kind: type[JsonRecord]) -> st.SearchStrategy[JsonRecord]:
    if kind is StepRecord:
        return steps
    if kind is RoutingRecord:
        return st.builds(RoutingRecord, *[st.integers(1, 10_000)] * 3)
    return st.from_type(kind)


KINDS = sorted(JsonRecord.__subclasses__(), key=lambda kind: kind.__name__)
every_record = st.sampled_from(KINDS).flatmap(instances)


@given(every_record)
def test_every_record_reads_back_as_it_was(record: JsonRecord) -> None:
    assert type(record).decode(record.encode(), "file") == record


@given(every_record)
def test_unknown_keys_are_ignored(record: JsonRecord) -> None:
    document = json.loads(record.encode()) | {"later": {"a": 1}}
    assert type(record).decode(json.dumps(document).encode(), "file") == record


@given(every_record, st.data())
def test_a_record_cut_anywhere_names_its_file(record: JsonRecord, data: Any) -> None:
    text = record.encode().rstrip()
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(CorruptRecord) as caught:
        type(record).decode(text[:cut], "the/file.json")
    assert caught.value.path == "the/file.json"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"null", b'"x"', b"\xff", b"{}"])
def test_what_is_no_record_is_refused_with_its_file(kind: type[JsonRecord], data: bytes) -> None:
    with pytest.raises(CorruptRecord) as caught:
        kind.decode(data, "the/file.json")
    assert "the/file.json" in str(caught.value)


@given(every_record)
def test_a_field_of_another_kind_never_travels_into_the_program(record: JsonRecord) -> None:
    document = json.loads(record.encode())
    for field in fields(record):
        wrong: object = {"not": "this"} if document[field.name] is not None else 3
        data = json.dumps(document | {field.name: wrong}).encode()
        with pytest.raises(CorruptRecord, match="not a valid record"):
            type(record).decode(data, "the/file.json")


def test_a_step_begins_neither_before_the_first_nor_after_itself() -> None:
    """An appended step must not be its own base either, because it would hide earlier steps."""
    assert StepRecord.decode(StepRecord(1, 1, 1, BODY).encode(), "file").base == 1
    for base in (-1, 0, 2, 3):
        data = StepRecord(2, 1, base, BODY).encode()
        with pytest.raises(CorruptRecord, match="cannot begin"):
            StepRecord.decode(data, "file")


def test_an_exchange_needs_partitions_and_a_known_hash() -> None:
    record = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ("k",), 4)
    for wrong, values in (({"partitions": 0}, "0 and 'spark'"), ({"hash": "md5"}, "4 and 'md5'")):
        with pytest.raises(CorruptRecord) as caught:
            ExchangeRecord.decode(replace(record, **wrong).encode(), "the/file.json")
        rule = "partitions must be at least 1 and hash one of spark, ffq"
        assert caught.value.message == f"not a valid record: {rule}; the record has {values}"


def test_the_reason_of_a_nested_record_is_its_message() -> None:
    record = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ("k",), 4)
    data = replace(record, arrow_schema="?").encode()
    with pytest.raises(CorruptRecord) as caught:
        ExchangeRecord.decode(data, "the/file.json")
    prefix = "not a valid record: the Arrow schema cannot be read: "
    assert caught.value.message.startswith(prefix)


def test_an_outcome_that_does_not_exist_is_refused() -> None:
    record = OutcomeRecord(query=5, outcome=Outcome.COMMITTED, at_ms=1, nonce="n", step=BODY)
    data = record.encode().replace(b"COMMITTED", b"COMITTED")
    with pytest.raises(CorruptRecord, match="COMITTED"):
        OutcomeRecord.decode(data, "file")


@pytest.mark.parametrize("registered", [[[0, 1]], [["a", 1, 1]], [3], 3, [[0, 1, 1, 1]]])
def test_registered_attempts_are_runs_of_three_numbers(registered: object) -> None:
    document = json.loads(BODY.encode()) | {"registered": registered}
    with pytest.raises(CorruptRecord):
        StepBody.decode(json.dumps(document).encode(), "file")


def test_an_arrow_schema_that_cannot_be_read_is_refused() -> None:
    record = replace(ExchangeRecord.of(pa.schema([("k", pa.int64())]), [], 1), arrow_schema="AAAA")
    with pytest.raises(CorruptRecord, match="Arrow schema"):
        _ = record.schema


@pytest.mark.parametrize("work", ["check_reader", "check_writer"])
def test_a_future_format_is_refused(work: str) -> None:
    now = FormatRecord("link")
    getattr(now, work)("_ffq/format.json")
    later = FORMAT_VERSION + 1
    for future in (
        replace(now, min_reader=later, min_writer=later),
        replace(now, features=("deletion-vectors",)),
    ):
        with pytest.raises(FutureFormat) as caught:
            getattr(FormatRecord.decode(future.encode(), "f"), work)("_ffq/format.json")
        assert caught.value.path == "_ffq/format.json"


def test_what_only_writers_must_know_does_not_stop_readers() -> None:
    future = FormatRecord("link", format=FORMAT_VERSION + 1, min_writer=FORMAT_VERSION + 1)
    future.check_reader("f")
    with pytest.raises(FutureFormat, match="writing"):
        future.check_writer("f")


def test_an_append_extends_the_version_and_a_replace_begins_one() -> None:
    replacing = replace(BODY, mode="replace")
    first = StepRecord.following(None, BODY)
    second = StepRecord.following(first, BODY)
    third = StepRecord.following(second, replacing)
    fourth = StepRecord.following(third, BODY)
    places = [(s.step, s.version, s.base) for s in (first, second, third, fourth)]
    assert places == [(1, 1, 1), (2, 1, 1), (3, 2, 3), (4, 2, 3)]
