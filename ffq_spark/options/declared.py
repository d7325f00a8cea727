"""Declare options, and resolve their values for one call."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ffq_spark.errors import BadOption, UnknownOption
from ffq_spark.options.storage import CONF_PREFIX, STORAGE_PREFIX

# Spark adds these to the options of a data source.
_SPARK_OWN = frozenset({"path", "checkpointlocation"})

Declared = TypeVar("Declared", bound="Options")


def option(
    name: str,
    parse: Callable[[str], Any],
    default: Any,
    doc: str,
    *,
    per_call: bool = False,
    shown: str | None = None,
) -> Any:
    """Declare an option as a field of an options class."""
    metadata = {
        "name": name,
        "parse": parse,
        "doc": doc,
        "per_call": per_call,
        "shown": ("" if default in (None, (), "") else str(default)) if shown is None else shown,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """Base class of the options of reads, writes and the service."""

    @classmethod
    @cache
    def declared(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the fields that declare options."""
        return tuple(field for field in dataclasses.fields(cls) if "name" in field.metadata)

    @classmethod
    def resolve(
        cls: type[Declared],
        given: Mapping[str, str],
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Declared:
        """Resolve the options of one call; raise an error for an unknown name or a wrong value."""
        lowered = {name.lower(): value for name, value in given.items()}
        cls._refuse_unknown(lowered, given)
        ambient = {name.lower(): value for name, value in (conf or {}).items()}
        variables = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for field in cls.declared():
            name, per_call = field.metadata["name"], field.metadata["per_call"]
            value = lowered.get(name.lower())
            if value is None and not per_call:
                value = ambient.get((CONF_PREFIX + name).lower())
                value = variables.get(environment_name(name)) if value is None else value
            if value is not None:
                values[field.name] = _parse(name, field.metadata["parse"], value)
        return cls(**values)

    @classmethod
    def of_python(cls: type[Declared], given: Mapping[str, Any]) -> Declared:
        """Resolve options from Python names and values, with the same checks as for strings.

        >>> from ffq_spark.options import ServeOptions
        >>> ServeOptions.of_python({"max_readers": 8, "port": None}).max_readers
        8
        """
        spellings = {field.name: field.metadata["name"] for field in cls.declared()}
        texts = {}
        for name, value in given.items():
            if value is not None:
                texts[spellings.get(name, name)] = _text(name, value)
        return cls.resolve(texts)

    @classmethod
    def _refuse_unknown(cls, lowered: Mapping[str, str], given: Mapping[str, str]) -> None:
        known = {field.metadata["name"].lower(): field.metadata["name"] for field in cls.declared()}
        for name in given:
            key = name.lower()
            if key in known or key in _SPARK_OWN or key.startswith(STORAGE_PREFIX):
                continue
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            listing = f"known: {', '.join(known.values())}"
            raise UnknownOption(f"{cls.purpose()} has no option {name}{hint} ({listing})")

    @classmethod
    def purpose(cls) -> str:
        """Return what the options are for: `read`, `write` or `serve`."""
        return cls.__name__.removesuffix("Options").lower()


@cache
def environment_name(name: str) -> str:
    """Return the name of an option's environment variable.

    >>> environment_name("maxBufferBytes")
    'FFQ_MAX_BUFFER_BYTES'
    """
    return "FFQ_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, Iterable):
        return ",".join(str(item) for item in value)
    raise BadOption(f"{name}={value!r} must be a string, a number or a list", option=name)


def _parse(name: str, parse: Callable[[str], Any], value: str) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise BadOption(f"{name}={value!r}: {error}", option=name) from None
