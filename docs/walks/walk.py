"""Turn the calls of a scene into a walk: which functions hand on to which, in their order.

A walk lists the functions that are entered from another module, above the store and the formats:
what a reader of the code jumps to. Functions that a module keeps to itself, properties and
constructors are not listed. A generator is listed where it is first asked for a row.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from walks.trace import Call, Function

LISTED = ("ffq_spark.spark", "ffq_spark.exchange")
# Runs after a worker's last row, when the query may have ended already: no trace is sure of it.
UNCERTAIN = "freeze_heap"
STORE = "ffq_spark.store.store"
WRITES = {
    "Store.create_once": "create",
    "Store.write": "write",
    "Store.replace": "replace",
    "Store.delete": "delete",
    "Store.delete_many": "delete",
}
NUMBERS = [
    (re.compile(r"shuffle/\d+/\d+/\d+/\d+/"), "shuffle/<query>/<stage>/<map>/<attempt>/"),
    (re.compile(r"part-\d+"), "part-<reduce>"),
    (re.compile(r"\d{20}"), "<step>"),
    (re.compile(r"\d{15,19}"), "<query>"),
    (re.compile(r"streams/[^/]+/\d{6}\b"), "streams/<stream>/<epoch>"),
    (re.compile(r"<epoch>/<step>"), "<epoch>/<batch>"),
]


@dataclass(frozen=True)
class Station:
    """One function of a walk, what it says it does, and what it changes on storage."""

    function: Function
    summary: str
    caller: Function | None
    """The function of the walk that calls it, at once or by functions that are not listed."""
    effects: tuple[str, ...]
    is_generator: bool

    @property
    def package(self) -> str:
        return package_of(self.function.module)


def package_of(module: str) -> str:
    """Name the package of a module: one within `exchange`, else one at the top.

    >>> package_of("ffq_spark.exchange.write.buffer"), package_of("ffq_spark.spark.writer")
    ('exchange.write', 'spark')
    >>> package_of("ffq_spark.exchange.exchange")
    'exchange'
    """
    names = module.split(".")[1:]
    return ".".join(names[:2]) if names[0] == "exchange" and len(names) > 2 else names[0]


def walk(
    calls: Sequence[Call], shown: Container[Function] = (), fold: Container[str] = ()
) -> list[Station]:
    """List the functions of a scene that were entered from another module, below their callers.

    Functions with the same caller are in the order of their first calls. Below a function named in
    `fold`, those are left out that another walk has `shown`.
    """
    first: dict[Function, Call] = {}
    for call in calls:
        folded = call.function in shown and any(caller.name in fold for caller in call.callers)
        if is_listed(call) and not folded:
            first.setdefault(call.function, call)
    effects = effects_by_function(calls, first)
    stations = [
        Station(
            function,
            summary(function),
            listed_caller(call, first),
            tuple(effects[function]),
            call.is_generator,
        )
        for function, call in first.items()
    ]
    return list(below_callers(stations))


def below_callers(stations: Sequence[Station], caller: Function | None = None) -> Iterator[Station]:
    """Yield the functions that a function calls, each followed by those that it calls itself."""
    for station in stations:
        if station.caller == caller:
            yield station
            yield from below_callers(stations, station.function)


def is_listed(call: Call) -> bool:
    function = call.function
    own_name = function.name.split(".")[-1]
    return (
        function.top_package in LISTED
        and function.name != UNCERTAIN
        and (call.caller is None or call.caller.module != function.module)
        and "<locals>" not in function.name
        and not own_name.startswith("_")
        and not isinstance(find(function), (property, cached_property))
    )


def listed_caller(call: Call, listed: Container[Function]) -> Function | None:
    """The nearest function on the stack below a call that the walk lists."""
    return next((caller for caller in call.callers if caller in listed), None)


def functions_of(calls: Iterable[Call]) -> set[Function]:
    """All functions of the packages that walks list, also those that a walk leaves out."""
    return {
        call.function
        for call in calls
        if call.function.top_package in LISTED
        and call.function.name != UNCERTAIN
        and not call.function.name.split(".")[-1].startswith("__")
    }


def effects_by_function(
    calls: Iterable[Call], listed: Iterable[Function]
) -> dict[Function, list[str]]:
    """What each listed function changes on storage, itself or by functions it does not share."""
    effects: dict[Function, list[str]] = {function: [] for function in listed}
    for call in calls:
        verb = WRITES.get(call.function.name)
        owner = listed_caller(call, effects)
        if call.function.module == STORE and verb and call.path and owner:
            effect = f"{verb} `{generic(call.path)}`"
            if effect not in effects[owner]:
                effects[owner].append(effect)
    return effects


def generic(path: str) -> str:
    """Name a path of storage by what its numbers mean.

    >>> generic("_ffq/queries/3764416710536901045.outcome.json")
    '_ffq/queries/<query>.outcome.json'
    """
    for pattern, name in NUMBERS:
        path = pattern.sub(name, path)
    return path


def find(function: Function) -> Any:
    owner: Any = importlib.import_module(function.module)
    for name in function.name.split("."):
        owner = inspect.getattr_static(owner, name, None)
    return owner


def summary(function: Function) -> str:
    """The first sentence of a function's own docstring."""
    definition = find(function)
    text = getattr(getattr(definition, "__func__", definition), "__doc__", None) or ""
    return inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".:")


def upward_calls(calls: Iterable[Call], ranks: Mapping[str, int]) -> list[Call]:
    """Calls of a function by a function of a lower package.

    Generators do not count: rows are pulled through them, from the top.
    """
    return [
        call
        for call in calls
        if call.caller
        and not call.is_generator
        and not call.function.name.split(".")[-1].startswith("__")
        and ranks[package_of(call.function.module)] < ranks[package_of(call.caller.module)]
    ]


def package_ranks(setup_cfg: Path) -> dict[str, int]:
    """Rank the packages from the top, as the contracts of import-linter in setup.cfg order them."""
    config = ConfigParser(interpolation=None)
    config.read(setup_cfg)
    ranks: dict[str, int] = {}
    for packages in layers(config, "layers"):
        for package in packages:
            ranks[package.removeprefix("ffq_spark.")] = len(ranks)
        if packages == ["ffq_spark.exchange"]:
            for inner in layers(config, "exchange"):
                for name in inner:
                    ranks[f"exchange.{name}"] = len(ranks)
    return ranks


def layers(config: ConfigParser, contract: str) -> list[list[str]]:
    """Read the layers of a contract, from the top; those that share a line share a layer."""
    lines = config[f"importlinter:contract:{contract}"]["layers"].split("\n")
    return [[name.strip() for name in line.split("|")] for line in lines if line.strip()]
