"""Storage options hold secrets; no text that leaves the store does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

_SECRET_NAME = re.compile(
    r"key|secret|token|passw|pwd|sas|credential|connection|auth|signature|private", re.IGNORECASE
)
_IN_URL = re.compile(r"://([^/@\s]+)@")
# The parts of connection strings (`AccountKey=…;`) and of signed URLs (`&sig=…`).
_PART = re.compile(r"[A-Za-z_-]+=([^;&\s]+)")
# Shorter ones are parts of ordinary words.
_SHORTEST = 4
_SHORTEST_WORD = 8
_INSTEAD = "***"


def scrub(text: str, options: Mapping[str, Any]) -> str:
    """A text without the secrets among some storage options.

    >>> scrub("bad key AKIA12", {"key": "AKIA12", "client_kwargs": {"region_name": "bad"}})
    'bad key ***'
    """
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, _INSTEAD)
    return text


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for value in _values(options, within=False):
        # Of a header (`Bearer …`) the token, of a key in lines each of them.
        words = (word for word in value.split() if len(word) >= _SHORTEST_WORD)
        for form in (value, *_PART.findall(value), *words):
            if len(form) >= _SHORTEST:
                yield form
                yield quote(form, safe="")
                yield repr(form)[1:-1]
                yield json.dumps(form)[1:-1]


def _values(value: Any, *, within: bool) -> Iterator[str]:
    """All texts below a name that sounds like a secret, and what URLs hold before an `@`."""
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _values(child, within=within or bool(_SECRET_NAME.search(str(name))))
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _values(child, within=within)
    elif isinstance(value, int):
        # Few digits are a limit or a time more often than a secret.
        if within and value >= 10**_SHORTEST_WORD:
            yield str(value)
    elif isinstance(value, (str, bytes)):
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if within:
            yield text
        for login in _IN_URL.findall(text):
            yield login
            yield login.partition(":")[2]
