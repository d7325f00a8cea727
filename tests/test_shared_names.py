"""Names that Python and Scala share are fields of the dataclasses on the Python side."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from ffq_spark import shared_names
from ffq_spark.exchange.attempts.task_log import SparkTask
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.options import WriteOptions
from ffq_spark.shared_names import OBJECTS, constants
from ffq_spark.spark import steward

SCALA = Path(__file__).parent.parent / "jars" / "src"


@pytest.mark.parametrize("names", OBJECTS, ids=lambda names: names.__name__)
def test_every_constant_has_a_name_and_a_value(names: type) -> None:
    values = constants(names)
    assert values and all(isinstance(value, (str, int)) and value for value in values.values())


def test_every_class_of_the_module_becomes_a_scala_object() -> None:
    declared = [value for value in vars(shared_names).values() if isinstance(value, type)]
    assert declared == list(OBJECTS)


def test_tasks_and_conditions_have_the_fields_of_their_classes() -> None:
    assert set(constants(shared_names.TaskField).values()) == {f.name for f in fields(SparkTask)}
    assert set(constants(shared_names.FilterField).values()) == {f.name for f in fields(Predicate)}


def test_the_options_that_the_plugin_sets_are_options_of_writes() -> None:
    declared = {field.metadata["name"] for field in WriteOptions.declared()}
    source = shared_names.Source
    assert {source.QUERY, source.INITIATOR, source.LEASE_SECONDS} <= declared


def test_the_program_that_the_driver_starts_is_the_steward() -> None:
    assert steward.__name__ == shared_names.StewardProgram.MODULE


@pytest.mark.parametrize("names", OBJECTS, ids=lambda names: names.__name__)
def test_scala_uses_every_shared_object(names: type) -> None:
    text = "".join(path.read_text() for path in SCALA.rglob("*.scala"))
    assert (
        f"Shared.{names.__name__}" in text
        or f"{names.__name__} =>" in text
        or (f", {names.__name__}" in text or f"{{{names.__name__}" in text)
    )
