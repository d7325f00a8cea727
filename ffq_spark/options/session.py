"""Check the `spark.ffq.*` settings of a session against the declared options and settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ffq_spark.errors import UnknownOption
from ffq_spark.options.declared import Options
from ffq_spark.options.reading import ReadOptions
from ffq_spark.options.serving import ServeOptions
from ffq_spark.options.storage import CONF_PREFIX, STORAGE_PREFIX
from ffq_spark.options.writing import WriteOptions
from ffq_spark.shared_names import PluginSetting, constants

PLUGIN_SETTINGS = tuple(str(name) for name in constants(PluginSetting).values())
"""The settings below `spark.ffq.` that only the plugin reads."""

_KINDS: tuple[type[Options], ...] = (WriteOptions, ReadOptions, ServeOptions)


def session_options(kind: type[Options]) -> tuple[str, ...]:
    """List the options that a read or a write takes from the session.

    >>> "verify" in session_options(ReadOptions), "partitions" in session_options(WriteOptions)
    (True, False)
    """
    return tuple(f.metadata["name"] for f in kind.declared() if not f.metadata["per_call"])


def known_names() -> tuple[str, ...]:
    """List every declared name below `spark.ffq.`, in a stable order."""
    options = {field.metadata["name"]: None for kind in _KINDS for field in kind.declared()}
    return (*options, *PLUGIN_SETTINGS)


def unknown_settings(names: Iterable[str]) -> dict[str, str]:
    """Find undeclared settings below `spark.ffq.`, each with the most similar declared one.

    >>> unknown_settings(["spark.ffq.verif", "spark.ffq.verify", "spark.ffq.storage.key"])
    {'spark.ffq.verif': 'spark.ffq.verify'}
    """
    known = {name.lower(): CONF_PREFIX + name for name in known_names()}
    unknown = {}
    for name in names:
        key = name.removeprefix(CONF_PREFIX).lower()
        if name.startswith(CONF_PREFIX) and key not in known and not key.startswith(STORAGE_PREFIX):
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            unknown[name] = known[near[0]] if near else ""
    return unknown


def call_only_settings(names: Iterable[str]) -> list[str]:
    """Find settings below `spark.ffq.` that have no effect: options of one call or of the service.

    >>> call_only_settings(["spark.ffq.keys", "spark.ffq.verify"])
    ['spark.ffq.keys']
    """
    kinds = (WriteOptions, ReadOptions)
    effective = {name.lower() for kind in kinds for name in session_options(kind)}
    options = {f.metadata["name"].lower() for kind in _KINDS for f in kind.declared()} - effective
    return [name for name in names if name.removeprefix(CONF_PREFIX).lower() in options]


def refuse_unknown_settings(names: Iterable[str]) -> None:
    """Raise UnknownOption for the first undeclared setting below `spark.ffq.`."""
    for name, near in unknown_settings(names).items():
        hint = f"; did you mean {near}?" if near else ""
        raise UnknownOption(f"ffq_spark has no setting {name}{hint}", option=name)
