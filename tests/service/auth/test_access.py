"""Scopes hold on the roots of a token, and on no others."""

from __future__ import annotations

import pytest

from ffq_spark.errors import Forbidden
from ffq_spark.service.auth.access import SCOPES, UNRESTRICTED, Access


@pytest.mark.parametrize(
    ("roots", "exchange", "allowed"),
    [
        (None, "lake/a", True),
        ({"lake"}, "lake", True),
        ({"lake"}, "lake/a", True),
        ({"lake"}, "lake2", False),
        ({"lake/a"}, "lake/a", False),
        (set(), "lake", False),
    ],
)
def test_a_scope_holds_on_the_roots_of_its_token(
    roots: set[str] | None, exchange: str, allowed: bool
) -> None:
    access = Access("etl", frozenset({"read"}), None if roots is None else frozenset(roots))
    assert access.allows("read", exchange) is allowed
    assert not access.allows("write", exchange)
    if not allowed:
        with pytest.raises(Forbidden, match=f"'etl' lacks scope read for {exchange}"):
            access.require("read", exchange)


def test_without_tokens_everything_is_allowed() -> None:
    assert all(UNRESTRICTED.allows(scope, "lake/a") for scope in SCOPES)
