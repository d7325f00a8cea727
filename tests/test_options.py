"""Options: the sources of their values, and the errors for wrong values, which name the option."""

from __future__ import annotations

import time
from dataclasses import Field, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import BadOption, UnknownOption
from ffq_spark.options import (
    MAX_PARTITIONS,
    Options,
    ReadOptions,
    ServeOptions,
    WriteOptions,
    environment_name,
    partition_set,
    size,
    storage_options,
)

KINDS: tuple[type[Options], ...] = (WriteOptions, ReadOptions, ServeOptions)


# For every option: one valid value, and one or more invalid ones.
VALUES: dict[tuple[str, str], tuple[str, Any, tuple[str, ...]]] = {
    ("write", "keys"): ("a, b", ("a", "b"), ("", "a,", "a,,b", "a,a")),
    ("write", "partitions"): ("64", 64, ("0", "-1", "x", "1.5", str(MAX_PARTITIONS + 1))),
    ("write", "hash"): ("FFQ", "ffq", ("", "md5")),
    ("write", "compression"): ("zstd", "zstd", ("gzip", "")),
    ("write", "layout"): ("packed", "packed", ("folder", "")),
    ("write", "payload"): ("ffqs", "ffqs", ("parquet",)),
    ("write", "sortBy"): ("a", ("a",), (",", "a,a")),
    ("write", "statistics"): ("all", ("all",), ("", "a,a")),
    ("write", "maxBufferBytes"): ("64MiB", 64 << 20, ("0", "0m", "1.5g", "-1", "64 bananas", "")),
    ("write", "query"): ("7", 7, ("-1", "x", str(1 << 63))),
    ("write", "stage"): ("3", 3, ("-1", "x")),
    ("write", "initiator"): ("app-1", "app-1", ("", "a/b", "..", ".x", "a b")),
    ("write", "leaseSeconds"): ("60", 60, ("-1", "x")),
    ("write", "weightColumn"): ("w", "w", ()),
    ("write", "streamId"): ("nightly", "nightly", ("", "a/b", "..", ".x", "a b")),
    ("write", "batch"): ("17", 17, ("-1", "x")),
    ("write", "streamRun"): ("2026-11", "2026-11", ("", "a/b", "..", ".x", "a b")),
    ("write", "onMismatch"): ("Fail", "fail", ("", "panic")),
    ("write", "takeover"): ("true", True, ("yes",)),
    ("write", "requireOffsets"): ("true", True, ("1",)),
    ("write", "unsafeCommit"): ("TRUE", True, ("yes", "1", "")),
    ("read", "steps"): ("10..17", "10..17", ()),
    ("read", "asOfStep"): ("2", 2, ("0", "-1", "x")),
    ("read", "partitions"): ("0-2,7", frozenset({0, 1, 2, 7}), ("", "3-1", "x", "-1", "1-")),
    ("read", "columns"): ("a,b", ("a", "b"), ("", "a,,b", "a,a")),
    ("read", "attempt"): ("0", "latest", ("-1", "x", "")),
    ("read", "query"): ("7", 7, ("-1", "x")),
    ("read", "stage"): ("0", 0, ("-1", "x")),
    ("read", "verify"): ("counts", "counts", ("some",)),
    ("read", "credits"): ("1m", 1 << 20, ("0", "x")),
    ("read", "targetPartitionBytes"): ("1k", 1024, ("0", "x")),
    ("read", "minTasks"): ("4", 4, ("0", "x")),
    ("read", "maxTasks"): ("0", 0, ("-1", "x")),
    ("read", "split"): ("Hash", "hash", ("", "always")),
    ("read", "pruneByFilters"): ("true", True, ("yes",)),
    ("read", "consolidate"): ("true", True, ("yes",)),
    ("read", "mergeBy"): ("a, b", ("a", "b"), ("", "a,", "a,a")),
    ("read", "startingStep"): ("Latest", "latest", ("0", "-1", "newest", "")),
    ("read", "maxStepsPerTrigger"): ("3", 3, ("-1", "x")),
    ("read", "maxBytesPerTrigger"): ("1m", 1 << 20, ("0", "x")),
    ("read", "consumer"): ("a-1", "a-1", ("", "a/b")),
    ("read", "onReplace"): ("skip", "skip", ("ignore",)),
    ("read", "metadataColumns"): ("false", False, ("no",)),
    ("serve", "host"): ("::1", "::1", ()),
    ("serve", "port"): ("0", 0, ("-1", "65536", "x")),
    ("serve", "writable"): ("true", True, ("yes",)),
    ("serve", "tokens"): ("/a/b", "/a/b", ()),
    ("serve", "tlsCertificate"): ("/a", "/a", ()),
    ("serve", "tlsKey"): ("/a", "/a", ()),
    ("serve", "tlsClientCa"): ("/a", "/a", ()),
    ("serve", "insecure"): ("TRUE", True, ("1",)),
    ("serve", "serverCredits"): ("1g", 1 << 30, ("0", "x")),
    ("serve", "maxReaders"): ("8", 8, ("0", "10001", "x")),
    ("serve", "maxWriters"): ("8", 8, ("0", "x")),
    ("serve", "maxIdle"): ("60", 60, ("0", "x")),
    ("serve", "maxWait"): ("0", 0, ("-1", "x")),
    ("serve", "maxMessageBytes"): ("1m", 1 << 20, ("0", "x")),
    ("serve", "maxUploadBytes"): ("1m", 1 << 20, ("0", "x")),
    ("serve", "maxRequestBytes"): ("1k", 1 << 10, ("0", "x")),
    ("serve", "writeBufferBytes"): ("1m", 1 << 20, ("0", "x")),
    ("serve", "producerLease"): ("9", 9, ("0", "x")),
    ("serve", "sql"): ("true", True, ("on",)),
    ("serve", "maxQueries"): ("2", 2, ("0", "x")),
    ("serve", "maxQueued"): ("0", 0, ("-1", "x")),
    ("serve", "queryTimeout"): ("9", 9, ("0", "x")),
    ("serve", "resultsRoot"): ("s3://b/r", "s3://b/r", ()),
    ("serve", "resultsTtl"): ("9", 9, ("0", "x")),
    ("serve", "drainSeconds"): ("0", 0, ("-1", "x")),
    ("serve", "metricsPort"): ("0", 0, ("-1", "65536")),
    ("serve", "metricsHost"): ("::1", "::1", ()),
}  # fmt: skip


DECLARED = {
    (kind.purpose(), field.metadata["name"]): (kind, field)
    for kind in KINDS
    for field in kind.declared()
}


def label(value: Any) -> str:
    return value.metadata["name"] if isinstance(value, Field) else value.__name__


def case(kind: type[Options], field: Field[Any]) -> tuple[str, Any, tuple[str, ...]]:
    return VALUES[kind.purpose(), field.metadata["name"]]


def test_every_option_has_its_values_in_the_table_above() -> None:
    assert set(DECLARED) == set(VALUES)


@pytest.mark.parametrize(("kind", "field"), [DECLARED[key] for key in VALUES], ids=label)
class TestEveryOption:
    def test_a_right_value_is_parsed(self, kind: type[Options], field: Field[Any]) -> None:
        text, value, _ = case(kind, field)
        name = field.metadata["name"]
        for spelling in (name, name.lower(), name.upper()):
            assert getattr(kind.resolve({spelling: text}, {}, {}), field.name) == value

    def test_a_wrong_value_names_the_option(self, kind: type[Options], field: Field[Any]) -> None:
        for text in case(kind, field)[2]:
            with pytest.raises(BadOption) as caught:
                kind.resolve({field.metadata["name"]: text}, {}, {})
            assert caught.value.option == field.metadata["name"]
            assert repr(text) in str(caught.value)

    def test_a_wrong_value_says_what_is_right(self, kind: type[Options], field: Field[Any]) -> None:
        for text in case(kind, field)[2]:
            with pytest.raises(BadOption) as caught:
                kind.resolve({field.metadata["name"]: text}, {}, {})
            assert "invalid literal" not in str(caught.value)

    def test_without_any_value_it_has_its_default(
        self, kind: type[Options], field: Field[Any]
    ) -> None:
        assert getattr(kind.resolve({}, {}, {}), field.name) == field.default

    def test_conf_and_environment_count_unless_it_describes_one_call(
        self, kind: type[Options], field: Field[Any]
    ) -> None:
        text, value, _ = case(kind, field)
        name, default = field.metadata["name"], field.default
        expected = default if field.metadata["per_call"] else value
        by_conf = kind.resolve({}, {f"spark.ffq.{name}": text}, {})
        by_environment = kind.resolve({}, {}, {environment_name(name): text})
        assert getattr(by_conf, field.name) == getattr(by_environment, field.name) == expected

    def test_its_documentation_is_a_sentence(self, kind: type[Options], field: Field[Any]) -> None:
        assert field.metadata["doc"].endswith(".")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("minTasks", "x", "minTasks='x': must be a whole number from 1 to 9223372036854775807"),
        ("minTasks", "0", "minTasks='0': must be a whole number from 1 to 9223372036854775807"),
        ("attempt", "newest", "attempt='newest': must be registered, latest or a number"),
        ("attempt", "-1", "attempt='-1': must be registered, latest or a number"),
        ("startingStep", "0", "startingStep='0': must be earliest, latest or the number of a step"),
    ],
)
def test_a_number_that_is_wrong_names_what_is_allowed(name: str, value: str, text: str) -> None:
    with pytest.raises(BadOption) as caught:
        ReadOptions.resolve({name: value}, {}, {})
    assert caught.value.message == text


NAME = "compression"
CONF = {f"spark.ffq.{NAME}": "lz4"}
ENVIRONMENT = {"FFQ_COMPRESSION": "zstd"}


@pytest.mark.parametrize(
    ("given", "conf", "environment", "resolved"),
    [
        ({NAME: "none"}, CONF, ENVIRONMENT, "none"),
        ({}, CONF, ENVIRONMENT, "lz4"),
        ({}, {}, ENVIRONMENT, "zstd"),
        ({}, {}, {}, "none"),
    ],
)
def test_an_option_beats_conf_beats_environment_beats_default(
    given: dict[str, str], conf: dict[str, str], environment: dict[str, str], resolved: str
) -> None:
    assert WriteOptions.resolve(given, conf, environment).compression == resolved


def test_the_process_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FFQ_VERIFY", "counts")
    assert ReadOptions.resolve({}).verify == "counts"
    assert ReadOptions.of_python({}).verify == "counts"


def test_a_wrong_value_in_conf_or_environment_is_refused_too() -> None:
    for conf, environment in (({f"spark.ffq.{NAME}": "gzip"}, {}), ({}, {"FFQ_COMPRESSION": "x"})):
        with pytest.raises(BadOption) as caught:
            WriteOptions.resolve({}, conf, environment)
        assert caught.value.option == NAME


@pytest.mark.parametrize(
    ("kind", "given", "near"),
    [
        (WriteOptions, "key", "keys"),
        (WriteOptions, "sort_by", "sortBy"),
        (WriteOptions, "numPartitions", "partitions"),
        (WriteOptions, "compresion", "compression"),
        (ReadOptions, "asof", "asOfStep"),
        (ReadOptions, "column", "columns"),
    ],
)
def test_an_unknown_option_names_the_nearest(kind: type[Options], given: str, near: str) -> None:
    with pytest.raises(UnknownOption, match=f"has no option {given}; did you mean {near}?"):
        kind.resolve({given: "1"})


def test_an_option_like_none_lists_them_all() -> None:
    with pytest.raises(UnknownOption) as caught:
        WriteOptions.resolve({"zzzzzz": "1"})
    assert "did you mean" not in str(caught.value)
    assert all(field.metadata["name"] in str(caught.value) for field in WriteOptions.declared())


def test_an_option_of_the_other_direction_is_unknown() -> None:
    with pytest.raises(UnknownOption):
        ReadOptions.resolve({"keys": "a"})
    with pytest.raises(UnknownOption):
        WriteOptions.resolve({"columns": "a"})


def test_what_spark_adds_and_storage_options_are_no_unknown_options() -> None:
    given = {"path": "/x", "checkpointLocation": "/c", "storage.key": "k"}
    assert WriteOptions.resolve(given, {}, {}) == WriteOptions()


def test_every_declared_field_is_an_option() -> None:
    for kind in KINDS:
        assert [field.name for field in kind.declared()] == [field.name for field in fields(kind)]


@given(st.integers(1, 1 << 40), st.sampled_from(["", "k", "m", "g", "t"]), st.booleans())
def test_a_size_is_its_number_times_its_unit(number: int, unit: str, long: bool) -> None:
    power = " kmgt".index(unit or " ")
    spelled = f"{number}{unit.upper()}iB" if long and unit else f"{number} {unit}"
    assert size(spelled) == number * 1024**power


@given(st.sets(st.integers(0, MAX_PARTITIONS), min_size=1, max_size=50))
def test_a_list_of_partitions_reads_back(partitions: set[int]) -> None:
    assert partition_set(",".join(map(str, partitions))) == partitions
    assert ReadOptions.of_python({"partitions": partitions}).partitions == partitions


def test_a_set_of_partitions_that_repeats_itself_is_parsed_at_once() -> None:
    """A request to the service may have a megabyte."""
    started = time.process_time()
    assert partition_set(",".join(["0-9999"] * 50_000)) == frozenset(range(10_000))
    assert time.process_time() - started < 2


# --- storage options --------------------------------------------------------------------------


def test_storage_options_are_nested_and_typed() -> None:
    given = {
        "storage.key": "k",
        "storage.anon": "False",
        "storage.client_kwargs.region_name": "eu",
        "storage.client_kwargs.verify": "true",
        "storage.config_kwargs": '{"retries": {"max_attempts": 3}}',
        "keys": "a",
    }
    assert storage_options(given) == {
        "key": "k",
        "anon": False,
        "client_kwargs": {"region_name": "eu", "verify": True},
        "config_kwargs": {"retries": {"max_attempts": 3}},
    }


def test_a_storage_option_beats_the_one_in_conf() -> None:
    conf = {"spark.ffq.storage.key": "from conf", "spark.ffq.storage.secret": "s", "spark.x": "y"}
    options = storage_options({"storage.key": "given"}, conf)
    assert options == {"key": "given", "secret": "s"}


def test_a_storage_option_that_is_no_json_is_refused_without_its_value() -> None:
    with pytest.raises(BadOption) as caught:
        storage_options({"storage.client_kwargs": '{"secret": "hidden'})
    assert caught.value.option == "storage.client_kwargs"
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("first", [True, False])
def test_a_value_and_a_value_below_it_are_refused(first: bool) -> None:
    pair = [("storage.client_kwargs", "x"), ("storage.client_kwargs.region_name", "eu")]
    with pytest.raises(BadOption) as caught:
        storage_options(dict(pair if first else pair[::-1]))
    assert str(caught.value.option).startswith("storage.client_kwargs")


def test_a_json_value_and_a_value_below_it_are_joined() -> None:
    pair = [("storage.a", '{"b": 1}'), ("storage.a.c", "x")]
    for order in (pair, pair[::-1]):
        assert storage_options(dict(order)) == {"a": {"b": 1, "c": "x"}}


# --- options from Python ----------------------------------------------------------------------


def test_python_values_mean_what_sparks_strings_mean() -> None:
    options = ReadOptions.of_python(
        {"columns": ["a", "b"], "as_of_step": 3, "metadata_columns": True, "partitions": range(3)}
    )
    assert options == ReadOptions.resolve(
        {"columns": "a,b", "asOfStep": "3", "metadataColumns": "true", "partitions": "0-2"}
    )


def test_none_means_not_given() -> None:
    assert ReadOptions.of_python({"columns": None, "query": None}) == ReadOptions.resolve({})


@pytest.mark.parametrize("given", [{"colums": ["a"]}, {"as_of": 1}])
def test_an_unknown_python_option_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UnknownOption):
        ReadOptions.of_python(given)


@pytest.mark.parametrize("given", [{"columns": 1.5}, {"partitions": object()}, {"as_of_step": -1}])
def test_a_python_value_that_cannot_be_right_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        ReadOptions.of_python(given)
