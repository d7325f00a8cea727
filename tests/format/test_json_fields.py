"""JSON values are checked against annotations, for records and messages alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ffq_spark.format.json_fields import (
    FieldTypeError,
    JsonLimits,
    constructor_arguments,
    is_checked,
)


@dataclass
class Example:
    text: str = ""
    number: int = 0
    flag: bool = False
    optional: int | None = None
    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    scalars: tuple[Any, ...] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    nested: set[str] | None = None


@pytest.mark.parametrize(
    ("document", "arguments"),
    [
        ({}, {}),
        ({"unknown": 1}, {}),
        ({"text": "a", "number": -5, "flag": True}, {"text": "a", "number": -5, "flag": True}),
        ({"optional": None}, {"optional": None}),
        ({"texts": ["a"], "numbers": [1]}, {"texts": ("a",), "numbers": (1,)}),
        ({"scalars": [None, 1, 1.5, "a", True]}, {"scalars": (None, 1, 1.5, "a", True)}),
        ({"settings": {"a": "b"}}, {"settings": {"a": "b"}}),
        ({"nested": [1]}, {"nested": [1]}),
    ],
    ids=str,
)
def test_values_of_the_declared_types_are_taken(
    document: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert constructor_arguments(Example, document) == arguments
    Example(**arguments)


@pytest.mark.parametrize(
    "document",
    [
        *({"text": None}, {"text": 1}, {"number": True}, {"number": 1.0}, {"number": "1"}),
        *({"flag": 1}, {"flag": None}, {"optional": "1"}, {"optional": False}),
        *({"texts": "a"}, {"texts": [1]}, {"texts": {"a": 1}}, {"numbers": [True]}),
        *({"scalars": [[]]}, {"scalars": [{}]}, {"settings": {"a": 1}}, {"settings": ["a"]}),
    ],
    ids=str,
)
def test_values_of_other_types_are_refused(document: dict[str, Any]) -> None:
    (name,) = document
    with pytest.raises(FieldTypeError, match=f"`{name}` must be") as caught:
        constructor_arguments(Example, document)
    assert caught.value.name == name


@pytest.mark.parametrize(
    "document",
    [
        *({"number": -1}, {"number": 8}, {"optional": 8}, {"numbers": [8]}, {"texts": ["a"] * 3}),
        {"settings": {"a": "", "b": ""}},
    ],
    ids=str,
)
def test_limits_hold_for_untrusted_documents_alone(document: dict[str, Any]) -> None:
    constructor_arguments(Example, document)
    with pytest.raises(FieldTypeError):
        constructor_arguments(
            Example, document, JsonLimits(integers=range(8), list_items=2, object_items=1)
        )


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(FieldTypeError) as caught:
        constructor_arguments(Example, {"number": "x" * 10_000})
    assert len(str(caught.value)) < 120


def test_types_without_a_check_are_known() -> None:
    assert is_checked("dict[str, str]") and is_checked("str | None")
    assert not is_checked("float") and not is_checked("set[str] | None")
