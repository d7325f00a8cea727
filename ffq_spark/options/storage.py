"""Collect the options and settings that are passed to the storage client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.shared_names import Setting

CONF_PREFIX = Setting.PREFIX
STORAGE_PREFIX = Setting.STORAGE


def storage_options(
    given: Mapping[str, str], conf: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Collect `storage.key`, `storage.client_kwargs.region_name`, … as the client's arguments.

    >>> storage_options({"storage.endpoint_url": "http://127.0.0.1:1", "storage.anon": "true"})
    {'endpoint_url': 'http://127.0.0.1:1', 'anon': True}
    """
    ambient = {
        name[len(CONF_PREFIX) :]: value
        for name, value in (conf or {}).items()
        if name.startswith(CONF_PREFIX)
    }
    values = {**ambient, **given}
    arguments: dict[str, Any] = {}
    # Shorter names first: a group given as JSON must exist before values are added to it.
    for name in sorted(values, key=lambda name: name.count(".")):
        if name.lower().startswith(STORAGE_PREFIX):
            *parents, leaf = name[len(STORAGE_PREFIX) :].split(".")
            group = arguments
            for parent in parents:
                group = group.setdefault(parent, {})
                if not isinstance(group, dict):
                    message = f"{parent} is given both as a value and as a group of values"
                    raise BadOption(message, option=name)
            group[leaf] = _storage_value(name, values[name])
    return arguments


def _storage_value(name: str, value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            # The message does not repeat the value, which may be a secret.
            message = "the value begins like JSON but is not valid JSON"
            raise BadOption(message, option=name) from None
    return value
