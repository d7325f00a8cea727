"""Options that go to the storage client as they are."""

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
    """What goes to the storage client: `storage.key`, `storage.client_kwargs.region_name`, ….

    >>> storage_options({"storage.endpoint_url": "http://127.0.0.1:1", "storage.anon": "true"})
    {'endpoint_url': 'http://127.0.0.1:1', 'anon': True}
    """
    ambient = {
        name[len(CONF_PREFIX) :]: value
        for name, value in (conf or {}).items()
        if name.startswith(CONF_PREFIX)
    }
    values = {**ambient, **given}
    found: dict[str, Any] = {}
    # A group given as JSON comes before the values that are added to it.
    for name in sorted(values, key=lambda name: name.count(".")):
        if name.lower().startswith(STORAGE_PREFIX):
            *parents, leaf = name[len(STORAGE_PREFIX) :].split(".")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise BadOption("both a value and a group of values", option=name)
            place[leaf] = _storage_value(name, values[name])
    return found


def _storage_value(name: str, value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            # The value may be a secret: it is not repeated.
            raise BadOption("not valid JSON", option=name) from None
    return value
