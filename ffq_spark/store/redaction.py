"""Remove the secrets of storage options from error messages and other texts.

The names of options decide what is hidden. A value below a name such as `secret` or `token` is
hidden as a whole and in its parts. A value below a name such as `endpoint_url` or `proxies` is
shown only if it is a plain address, a host and a port: anything else in it may be a login, even in
a malformed URL. A login with a password is hidden in every URL, because clients also take addresses
from the environment and from their configuration files.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

_SECRET_NAME = re.compile(
    r"key|secret|token|pass|pwd|sas|credential|connection|auth|signature(?!_version)|private"
    r"|cookie|header|ticket|jwt|bearer|assertion|user(?!_?agent)|login",
    re.IGNORECASE,
)
_ADDRESS_NAME = re.compile(r"ur[il]|endpoint|prox|host|address|server|gateway", re.IGNORECASE)
_PLAIN_ADDRESS = re.compile(
    r"([a-z][a-z0-9+.-]*://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?", re.IGNORECASE
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:?/+")
# The parts of connection strings (`AccountKey=…;`) and of signed URLs (`&sig=…`).
_PART = re.compile(r"([A-Za-z_-]+)=([^;&\s]+)")
_BETWEEN_WORDS = re.compile(r"[/?&=#;,\s]+")
_ENVIRONMENT = re.compile(r"AWS_ENDPOINT_URL(_\w+)?|(?!no_)\w+_proxy", re.IGNORECASE)
# A user and a password after the slashes of a URL, or a token as the user of a web address. A host
# and a port may also be followed by an @, in the path.
_LOGIN = re.compile(
    r"(:/+|//+)(?!\[|arn:)[^/\s:@]*:(?!\d{1,5}/)\S*@|(https?:?/+)[^/\s:@]+@", re.IGNORECASE
)
# Shorter values also occur inside ordinary words, so they are not hidden.
_SHORTEST = 4
_SHORTEST_WORD = 8
_INSTEAD = "***"


def scrub(text: str, options: Mapping[str, Any]) -> str:
    """Replace the secrets of storage options in a text by `***`.

    >>> scrub("bad key AKIA12", {"key": "AKIA12", "client_kwargs": {"region_name": "bad"}})
    'bad key ***'
    >>> scrub("Invalid endpoint: htp//me:pw@host", {"endpoint_url": "htp//me:pw@host"})
    'Invalid endpoint: ***'
    """
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, _INSTEAD)
    return _LOGIN.sub(rf"\1\2{_INSTEAD}@", text)


def is_secret_name(name: str) -> bool:
    """Return whether the value of an option or parameter with this name is a secret.

    >>> is_secret_name("access_token"), is_secret_name("region_name")
    (True, False)
    """
    return bool(_SECRET_NAME.search(name))


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield every secret in each spelling (quoted, escaped) that a client may print."""
    for form in (*_forms(options, hidden=False, address=False), *_environment_forms()):
        if len(form) >= _SHORTEST:
            for spelled in (form, unquote(form)):
                yield from (spelled, quote(spelled, safe=""), quote(spelled))
                yield from (repr(spelled)[1:-1], json.dumps(spelled)[1:-1])


def _environment_forms() -> Iterator[str]:
    """Yield the secret texts in the addresses that storage clients take from the environment."""
    for name, value in os.environ.items():
        if _ENVIRONMENT.fullmatch(name):
            yield from _text_forms(value, hidden=False, address=True)


def _forms(value: Any, *, hidden: bool, address: bool) -> Iterator[str]:
    """Yield the secret texts in a value; `hidden` and `address` come from the names above it."""
    if isinstance(value, Mapping):
        for name, child in value.items():
            secret = hidden or is_secret_name(str(name))
            place = address or bool(_ADDRESS_NAME.search(str(name)))
            yield from _forms(child, hidden=secret, address=place)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _forms(child, hidden=hidden, address=address)
    elif isinstance(value, int):
        # A number with few digits is more likely a limit or a timeout than a secret.
        if hidden and value >= 10**_SHORTEST_WORD:
            yield str(value)
    elif isinstance(value, (str, bytes)):
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        yield from _text_forms(text, hidden=hidden, address=address)
        if text[:1] in ("{", "["):
            yield from _forms(_nested(text), hidden=hidden, address=address)


def _nested(text: str) -> Any:
    """Parse a text as JSON; return None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text_forms(text: str, *, hidden: bool, address: bool) -> Iterator[str]:
    parts = _PART.findall(text)
    if hidden:
        yield text
        yield from (value for _, value in parts)
        # The words of a text: the token of a header (`Bearer …`), the lines of a PEM key.
        yield from (word for word in text.split() if len(word) >= _SHORTEST_WORD)
    else:
        yield from (value for name, value in parts if is_secret_name(name))
    if address or ("://" in text and "@" in text):
        yield from _address_forms(text)


def _address_forms(text: str) -> Iterator[str]:
    """Yield the texts of an address that may be secret: its login, and what follows the host.

    >>> list(_address_forms("http://127.0.0.1:9000/")), list(_address_forms("http://host/a/b"))
    ([], ['http://host/a/b', 'host/a/b', '/a/b'])
    """
    if _PLAIN_ADDRESS.fullmatch(text.strip().removesuffix("/")):
        return
    yield text
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    yield rest
    login, at, place = rest.rpartition("@")
    if at:
        yield from (login, f"{login}@", *login.split(":", 1))
        yield base64.b64encode(unquote(login).encode()).decode()
    host = _PLAIN_ADDRESS.match(place)
    tail = place[host.end() :] if host else place
    if not at and tail[:1] not in ("/", "?", "#"):
        # Only a path, query or fragment may follow a host: this is a login without its host.
        yield from place.split(":", 1)
    yield tail
    yield from (word for word in _BETWEEN_WORDS.split(tail) if len(word) >= _SHORTEST_WORD)
