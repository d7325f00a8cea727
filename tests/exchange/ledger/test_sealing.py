"""A step's body and manifest are made from one output of each map task."""

from __future__ import annotations

import uuid

import pytest
from conftest import Place
from gc_scene import Scene

from ffq_spark.errors import BadCommit
from ffq_spark.exchange.ledger.sealing import seal
from ffq_spark.format import manifest
from ffq_spark.format.payload import checksum


@pytest.fixture
def scene() -> Scene:
    return Scene(Place(f"memory://{uuid.uuid4().hex}"))


def test_a_step_counts_the_rows_and_bytes_of_its_parts(scene: Scene) -> None:
    query = scene.begin()
    outputs = [scene.attempt(query, 2, map_task) for map_task in (3, 0, 1)]
    body, data = seal(query, outputs, [])
    parts = manifest.decode(data, body.manifest)
    assert body.rows == sum(parts["rows"].to_pylist()) == 15
    assert body.bytes == sum(parts["bytes"].to_pylist())
    assert body.parts == parts.num_rows
    assert body.attempts == {0: 2, 1: 2, 3: 2}
    assert (body.manifest_bytes, body.manifest_checksum) == (len(data), checksum(data))


def test_the_order_of_messages_does_not_matter(scene: Scene) -> None:
    query = scene.begin()
    outputs = [scene.attempt(query, 1, map_task) for map_task in range(3)]
    assert seal(query, outputs, [])[1] == seal(query, outputs[::-1], [])[1]


def test_two_messages_of_a_map_task_are_refused(scene: Scene) -> None:
    query = scene.begin()
    twins = [scene.attempt(query, attempt) for attempt in (1, 2)]
    with pytest.raises(BadCommit, match="map task 0"):
        seal(query, twins, [])


def test_a_message_of_another_query_is_refused(scene: Scene) -> None:
    query, other = scene.begin(), scene.begin()
    with pytest.raises(BadCommit, match=f"query {other.query}"):
        seal(query, [scene.attempt(other)], [])
