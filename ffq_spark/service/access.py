"""Who may do what: bearer tokens with scopes and roots. The server keeps only their hashes."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ffq_spark.errors import BadOption, Forbidden, Unauthenticated
from ffq_spark.service.trusted_files import read_trusted

SCOPES = ("read", "write", "cancel")

_HASH = re.compile(r"[0-9a-f]{64}")
_BEARER = "bearer "


@dataclass(frozen=True)
class Access:
    """What one caller may do; no roots means all of them.

    >>> Access("etl", frozenset({"read"}), frozenset({"orders"})).require("write", "orders")
    Traceback (most recent call last):
    ffq_spark.errors.Forbidden: [FFQ_FORBIDDEN] 'etl' has no scope write for orders. Ask whoever \
runs the service for a token with this scope and root
    """

    name: str
    scopes: frozenset[str]
    roots: frozenset[str] | None = None

    def allows(self, scope: str, exchange: str) -> bool:
        root = exchange.partition("/")[0]
        return scope in self.scopes and (self.roots is None or root in self.roots)

    def require(self, scope: str, exchange: str) -> None:
        if not self.allows(scope, exchange):
            raise Forbidden(f"{self.name!r} has no scope {scope} for {exchange}")


ANYBODY = Access("anybody", frozenset(SCOPES))


def new_token(
    name: str, scopes: Iterable[str], roots: Iterable[str] | None = None
) -> tuple[str, dict[str, Any]]:
    """A new secret, and the entry for the server's file that holds only its hash.

    >>> secret, entry = new_token("etl", ["read"], ["orders"])
    >>> Tokens([entry]).who({"authorization": [f"Bearer {secret}"]}).name
    'etl'
    """
    secret = secrets.token_urlsafe(32)
    entry: dict[str, Any] = {"name": name, "sha256": _hash(secret), "scopes": list(scopes)}
    if roots is not None:
        entry["roots"] = list(roots)
    return secret, entry


class Tokens:
    """The tokens that a server knows."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._known = {entry["sha256"]: _access(entry) for entry in map(_checked, entries)}

    @classmethod
    def load(cls, path: str) -> Tokens:
        """Load the tokens of a file that nobody else may change."""
        return cls(read_entries(path))

    def who(self, headers: Mapping[str, Sequence[Any]]) -> Access:
        """Whose token a call carries."""
        given = headers.get("authorization", ())
        for value in given:
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            if text[: len(_BEARER)].lower() == _BEARER:
                found = self._known.get(_hash(text[len(_BEARER) :].strip()))
                if found is not None:
                    return found
        raise Unauthenticated("the token is unknown" if given else "the call has no token")


def read_entries(path: str) -> list[Any]:
    """Read a file of tokens, a JSON list of what `new_token` gives, and check every entry."""
    data = read_trusted(path, "tokens")
    try:
        entries = json.loads(data)
    except ValueError as error:
        raise BadOption(f"{path}: {type(error).__name__}", option="tokens") from None
    if not isinstance(entries, list):
        raise BadOption(f"{path} holds no list of tokens", option="tokens")
    return [_checked(entry) for entry in entries]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _checked(entry: Any) -> Mapping[str, Any]:
    """An entry that is whole; a mistake in it must not open a door."""
    fits = (
        isinstance(entry, dict)
        and set(entry) <= {"name", "sha256", "scopes", "roots"}
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("sha256"), str)
        and _HASH.fullmatch(entry["sha256"])
        and isinstance(entry.get("scopes"), list)
        and set(entry["scopes"]) <= set(SCOPES)
        and isinstance(entry.get("roots", []), list)
    )
    if not fits:
        name = entry.get("name") if isinstance(entry, dict) else entry
        raise BadOption(
            f"the entry of {name!r} needs a name, a sha256, scopes among {', '.join(SCOPES)} "
            "and, if at all, a list of roots",
            option="tokens",
        )
    return entry  # type: ignore[no-any-return]


def _access(entry: Mapping[str, Any]) -> Access:
    roots = entry.get("roots")
    return Access(
        entry["name"], frozenset(entry["scopes"]), None if roots is None else frozenset(roots)
    )
