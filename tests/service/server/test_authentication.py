"""Every call needs a known token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from service_scene import token_file

import ffq_spark as ffq
from ffq_spark.errors import (
    Unauthenticated,
)


def test_every_call_needs_a_token_that_is_known(lake: Path) -> None:
    path, secrets = token_file(lake, reader=(["read"], None))
    with ffq.serve({"lake": str(lake / "lake")}, port=0, tokens=path) as service:
        right = ffq.connect(service.url, secrets["reader"])
        assert right.exchanges() == ["lake/a", "lake/b"]
        ticket = right.exchange("lake/a").tasks()[0]
        hashed = json.loads(Path(path).read_text())[0]["sha256"]
        for wrong in (None, "", "x", secrets["reader"] + "x", secrets["reader"][:-1], hashed):
            stranger = ffq.connect(service.url, wrong)
            for ask in (
                stranger.exchanges,
                stranger.health,
                lambda who=stranger: who.exchange("lake/a").read(),
                lambda who=stranger: list(who.stream(ticket)),
                lambda who=stranger: list(who.client.list_actions(who.options)),
            ):
                with pytest.raises((Unauthenticated, Exception)) as caught:
                    ask()
                assert "FFQ_UNAUTHENTICATED" in str(caught.value)
                assert not wrong or wrong not in str(caught.value)
        assert secrets["reader"] not in Path(path).read_text()
