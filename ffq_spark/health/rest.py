"""The facts of a running application, read from Spark's REST service."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from ffq_spark.errors import BadOption, NoAnswer
from ffq_spark.health.facts import Facts
from ffq_spark.store.credentials import address_holds_credentials

_SECONDS = 20


def running(url: str, application: str = "") -> Facts:
    """Read the facts of an application from the address of its UI or history server.

    Settings that a session changed with `spark.conf.set` are not included.
    """
    if address_holds_credentials(url):
        # The message does not quote the URL: it contains a secret.
        raise BadOption(
            "the URL contains a login or a secret, which is not sent: remove it", option="url"
        )
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise BadOption(f"{url} must be an address such as http://127.0.0.1:4040", option="url")
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
        raise NoAnswer(
            f"the answer is not one of Spark's REST service: {error!r}", path=base
        ) from error


def _the_only(base: str) -> str:
    names = [str(application["id"]) for application in _get(f"{base}/applications")]
    if len(names) != 1:
        raise BadOption(
            f"the address lists {len(names)} applications: choose one with --app", option="app"
        )
    return names[0]


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            return json.load(answer)
    except (OSError, ValueError) as error:
        raise NoAnswer(str(error), path=url) from error
