"""A running application, as Spark's own REST service describes it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from ffq_spark.errors import BadOption, NoAnswer
from ffq_spark.health.facts import Facts

_SECONDS = 20


def running(url: str, application: str = "") -> Facts:
    """The facts of an application whose UI (or history server) is at an address.

    What a session has set for itself alone (`spark.conf.set`) is not among them.
    """
    if "@" in url:
        raise BadOption("the URL holds a login, which is not sent: leave it out", option="url")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise BadOption(f"{url} is no address such as http://127.0.0.1:4040", option="url")
    base = f"{url.rstrip('/')}/api/v1"
    name = application or _the_only(base)
    environment = _get(f"{base}/applications/{urllib.parse.quote(name)}/environment")
    version = _get(f"{base}/version")
    try:
        return Facts(
            settings=dict(environment["sparkProperties"]),
            spark=version["spark"],
            java=environment["runtime"]["javaVersion"],
            running=True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NoAnswer(f"not what Spark tells: {error!r}", path=base) from error


def _the_only(base: str) -> str:
    names = [str(found["id"]) for found in _get(f"{base}/applications")]
    if len(names) != 1:
        raise BadOption(f"there are {len(names)} applications; say which", option="app")
    return names[0]


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise NoAnswer(str(error), path=url) from error
