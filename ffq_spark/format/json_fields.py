"""Check JSON values against the annotations of dataclass fields, for records and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class JsonLimits:
    """Bounds on values from untrusted sources; None means no bound."""

    integers: range | None = None
    list_items: int | None = None
    object_items: int | None = None


UNLIMITED = JsonLimits()


class FieldTypeError(TypeError):
    """A JSON value that does not fit the field it was given for."""

    def __init__(self, name: str, annotation: str, value: Any) -> None:
        super().__init__(f"`{name}` must be {annotation}, not {shorten(value)}")
        self.name = name


def shorten(value: Any, length: int = 60) -> str:
    """Return a value's repr for an error message, cut after `length` characters.

    >>> shorten("a" * 9, length=5)
    "'aaaa…"
    """
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}…"


def constructor_arguments(
    cls: type[Any], document: Mapping[str, Any], limits: JsonLimits = UNLIMITED
) -> dict[str, Any]:
    """Return the arguments for a dataclass from a JSON object; raise FieldTypeError.

    Unknown names are left out, and so are missing ones. Fields with annotations other than those of
    `_CHECKS`, such as nested records, are returned as they are for the dataclass to decode.

    >>> @dataclass
    ... class Point:
    ...     x: int
    ...     tags: tuple[str, ...] = ()
    >>> constructor_arguments(Point, {"x": 3, "tags": ["a"], "color": "red"})
    {'x': 3, 'tags': ('a',)}
    >>> constructor_arguments(Point, {"x": True})
    Traceback (most recent call last):
    ffq_spark.format.json_fields.FieldTypeError: `x` must be int, not True
    """
    return {
        field.name: _checked(field.name, str(field.type), document[field.name], limits)
        for field in fields(cls)
        if field.name in document
    }


def is_checked(annotation: str) -> bool:
    """Return whether this module checks values of fields with this annotation.

    >>> is_checked("tuple[int, ...] | None"), is_checked("StepBody")
    (True, False)
    """
    return annotation.removesuffix(_OPTIONAL) in _CHECKS


def _checked(name: str, annotation: str, value: Any, limits: JsonLimits) -> Any:
    if not is_checked(annotation):
        return value
    required = annotation.removesuffix(_OPTIONAL)
    if value is None and required != annotation:
        return None
    if not _CHECKS[required](value, limits):
        raise FieldTypeError(name, annotation, value)
    return tuple(value) if isinstance(value, list) else value


# `type(value) is int` instead of isinstance: True is an int to Python, and not to JSON.


def _is_text(value: Any, limits: JsonLimits) -> bool:
    return type(value) is str


def _is_integer(value: Any, limits: JsonLimits) -> bool:
    return type(value) is int and (limits.integers is None or value in limits.integers)


def _is_flag(value: Any, limits: JsonLimits) -> bool:
    return type(value) is bool


def _is_scalar(value: Any, limits: JsonLimits) -> bool:
    return value is None or type(value) in (str, int, float, bool)


_Check = Callable[[Any, JsonLimits], bool]


def _is_list_of(is_item: _Check) -> _Check:
    def is_list(value: Any, limits: JsonLimits) -> bool:
        return (
            isinstance(value, list)
            and (limits.list_items is None or len(value) <= limits.list_items)
            and all(is_item(item, limits) for item in value)
        )

    return is_list


def _is_text_map(value: Any, limits: JsonLimits) -> bool:
    return (
        isinstance(value, dict)
        and (limits.object_items is None or len(value) <= limits.object_items)
        and all(_is_text(item, limits) for item in value.values())
    )


_CHECKS: dict[str, _Check] = {
    "str": _is_text,
    "int": _is_integer,
    "bool": _is_flag,
    "tuple[str, ...]": _is_list_of(_is_text),
    "tuple[int, ...]": _is_list_of(_is_integer),
    "tuple[Any, ...]": _is_list_of(_is_scalar),
    "dict[str, str]": _is_text_map,
}
_OPTIONAL = " | None"
