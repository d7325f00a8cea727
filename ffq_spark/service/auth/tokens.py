"""Create and verify bearer tokens. The server keeps only their hashes."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ffq_spark.errors import BadOption, Unauthenticated
from ffq_spark.service.auth.access import SCOPES, Access
from ffq_spark.service.auth.trusted_files import read_trusted

_HASH = re.compile(r"[0-9a-f]{64}")
_BEARER = "bearer "


def new_token(
    name: str, scopes: Iterable[str], roots: Iterable[str] | None = None
) -> tuple[str, dict[str, Any]]:
    """Create a secret, and the entry with its hash for the server's file of tokens.

    >>> secret, entry = new_token("etl", ["read"], ["orders"])
    >>> Tokens([entry]).authenticate({"authorization": [f"Bearer {secret}"]}).name
    'etl'
    """
    secret = secrets.token_urlsafe(32)
    entry: dict[str, Any] = {"name": name, "sha256": _hash(secret), "scopes": list(scopes)}
    if roots is not None:
        entry["roots"] = list(roots)
    return secret, entry


class Tokens:
    """The hashes of the tokens that a server accepts."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._by_hash = {entry["sha256"]: _access(entry) for entry in map(_checked, entries)}

    @classmethod
    def load(cls, path: str) -> Tokens:
        """Load a file of tokens; raise BadOption if other users could change it."""
        return cls(read_entries(path))

    def authenticate(self, headers: Mapping[str, Sequence[Any]]) -> Access:
        """Return the access of the token in a call's headers; raise Unauthenticated."""
        values = headers.get("authorization", ())
        for value in values:
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            if text[: len(_BEARER)].lower() == _BEARER:
                access = self._by_hash.get(_hash(text[len(_BEARER) :].strip()))
                if access is not None:
                    return access
        raise Unauthenticated("the token is unknown" if values else "the call has no token")


def read_entries(path: str) -> list[Any]:
    """Read and check the entries of a file of tokens: a JSON list, as `new_token` makes them."""
    data = read_trusted(path, "tokens")
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        # The message of a JSONDecodeError quotes the file.
        raise BadOption(f"{path} is not JSON: {type(error).__name__}", option="tokens") from None
    if not isinstance(entries, list):
        raise BadOption(f"{path} is not a JSON list of tokens", option="tokens")
    return [_checked(entry) for entry in entries]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _checked(entry: Any) -> Mapping[str, Any]:
    """Check an entry strictly: a misspelled `roots` would otherwise allow all roots."""
    is_valid = (
        isinstance(entry, dict)
        and set(entry) <= {"name", "sha256", "scopes", "roots"}
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("sha256"), str)
        and _HASH.fullmatch(entry["sha256"])
        and _is_list_of_names(entry.get("scopes"))
        and set(entry["scopes"]) <= set(SCOPES)
        and _is_list_of_names(entry.get("roots", []))
    )
    if not is_valid:
        name = entry.get("name") if isinstance(entry, dict) else entry
        raise BadOption(
            f"the entry of {name!r} must have a name, a sha256, a list of scopes among "
            f"{', '.join(SCOPES)}, optionally a list of roots, and nothing else",
            option="tokens",
        )
    return entry  # type: ignore[no-any-return]


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _access(entry: Mapping[str, Any]) -> Access:
    roots = entry.get("roots")
    return Access(
        entry["name"], frozenset(entry["scopes"]), None if roots is None else frozenset(roots)
    )
