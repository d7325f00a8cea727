"""The bytes of messages, and what decoding refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ffq_spark.errors import BadRequest
from ffq_spark.service.wire.messages import (
    Attempt,
    Done,
    Fetch,
    Message,
    Read,
    Results,
    Task,
    decode_one,
    parse,
)

SELECTION: dict[str, Any] = {
    "columns": ("x", "y"),
    "partitions": "0-7",
    "steps": "1..2",
    "as_of_step": 3,
    "query": 4,
    "stage": 0,
    "attempt": "all",
    "key": (1, None, "k"),
    "metadata_columns": True,
    "consolidate": True,
}
EVERYTHING = Read("a/b", **SELECTION, target_partition_bytes=5, min_tasks=6, max_tasks=7)
_SELECTED = (
    b'"columns": ["x", "y"], "partitions": "0-7", "steps": "1..2", "as_of_step": 3, "query": 4, '
    b'"stage": 0, "attempt": "all", "key": [1, null, "k"], "metadata_columns": true, '
    b'"consolidate": true'
)
# Tickets outlive servers and clients of one version: these bytes are those of version 0.1.0.
ENCODED: list[tuple[Message, bytes]] = [
    (
        Read("a"),
        b'{"kind": "read", "exchange": "a", "metadata_columns": false, "consolidate": false}',
    ),
    (
        EVERYTHING,
        b'{"kind": "read", "exchange": "a/b", '
        + _SELECTED
        + b', "target_partition_bytes": 5, "min_tasks": 6, "max_tasks": 7}',
    ),
    (
        Task("a", first=1, count=2, check=3),
        b'{"kind": "task", "exchange": "a", "first": 1, "count": 2, "check": 3, '
        b'"metadata_columns": false, "consolidate": false, "skip": 0}',
    ),
    (
        Task.within(EVERYTHING, 1, 2, 3),
        b'{"kind": "task", "exchange": "a/b", "first": 1, "count": 2, "check": 3, '
        + _SELECTED
        + b', "skip": 0}',
    ),
    (
        Task("a", key=(5,), first=1, count=2, check=3, skip=9),
        b'{"kind": "task", "exchange": "a", "first": 1, "count": 2, "check": 3, "key": [5], '
        b'"metadata_columns": false, "consolidate": false, "skip": 9}',
    ),
    (
        Read("a", split="hash"),
        b'{"kind": "read", "exchange": "a", "metadata_columns": false, "consolidate": false, '
        b'"split": "hash"}',
    ),
    (
        Task("a", first=1, count=2, check=3, shard=0, shards=4),
        b'{"kind": "task", "exchange": "a", "first": 1, "count": 2, "check": 3, '
        b'"metadata_columns": false, "consolidate": false, "skip": 0, "shard": 0, "shards": 4}',
    ),
    (
        Fetch("a", 1, 2, 3, 4, 5, 6, 7, 8, True),
        b'{"kind": "fetch", "exchange": "a", "query": 1, "map_task": 2, "reduce": 3, "stage": 4, '
        b'"attempt": 5, "start_offset": 6, "max_bytes": 7, "chunk_bytes": 8, "raw": true}',
    ),
    (Results(5), b'{"kind": "results", "query": 5}'),
    (
        Attempt("a", 1, 2, 3),
        b'{"kind": "attempt", "exchange": "a", "query": 1, "map_task": 2, "attempt": 3}',
    ),
    (Done(4), b'{"kind": "done", "rows": 4}'),
]


@pytest.mark.parametrize(("message", "data"), ENCODED, ids=lambda v: type(v).__name__)
def test_messages_are_the_same_bytes_in_every_version(message: Message, data: bytes) -> None:
    assert message.encode() == data
    assert type(message).decode(data) == message
    assert decode_one(data, Read, Task, Fetch, Results, Attempt, Done) == message


def test_a_task_and_its_read_select_the_same_rows() -> None:
    task = Task.within(EVERYTHING, 1, 2, 3)
    assert task.read() == Read("a/b", **SELECTION)
    assert task.selection() == EVERYTHING.selection()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"more": 1}, "has no field 'more'"),
        ({"first": None}, "`first` must be int, not None"),
        ({"first": True}, "`first` must be int, not True"),
        ({"first": -1}, "`first` must be int, not -1"),
        ({"first": 1 << 63}, "`first` must be int"),
        ({"first": 1.0}, "`first` must be int, not 1.0"),
        ({"consolidate": 1}, "`consolidate` must be bool, not 1"),
        ({"columns": "x"}, "`columns` must be"),
        ({"columns": [1]}, "`columns` must be"),
        ({"columns": ["x"] * 10_001}, "`columns` must be"),
        ({"key": [[1]]}, "`key` must be"),
        ({"shard": 1}, "`shard` and `shards` need each other"),
        ({"shards": 1}, "`shard` and `shards` need each other"),
        ({"exchange": "../a"}, "not a valid exchange name"),
        ({"exchange": "a/b/c"}, "not a valid exchange name"),
    ],
    ids=str,
)
def test_a_field_of_another_type_is_refused(changes: dict[str, Any], reason: str) -> None:
    document = json.loads(Task("a", first=1, count=2, check=3).encode()) | changes
    with pytest.raises(BadRequest) as caught:
        decode_one(json.dumps(document).encode(), Task)
    assert reason in str(caught.value) and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"1", b'{"a": NaN}', b'{"a": 1, "a": 1}', b"\x80", b'{"\\ud800": 1}'),
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_only_one_json_object_is_parsed(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(data)


def test_fields_that_are_missing_and_kinds_that_are_unknown_are_named() -> None:
    with pytest.raises(BadRequest, match="task needs `exchange`, `first`, `count`, `check`"):
        Task.decode(b"{}")
    with pytest.raises(BadRequest, match="must be one of task, fetch, not 'read'"):
        decode_one(b'{"kind": "read"}', Task, Fetch)


@pytest.mark.parametrize(
    "options", [{"chunk_bytes": 0}, {"chunk_bytes": 2 << 20}, {"raw": False, "max_bytes": 1}]
)
def test_a_fetch_that_cannot_be_served_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        Fetch("a", 1, 0, 0, **options)


def test_a_message_with_a_field_that_nobody_checks_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="are not checked"):

        class Unchecked(Message):
            value: set[str]
