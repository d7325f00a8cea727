"""The arguments and errors that all verbs share."""

from __future__ import annotations

import json

import pytest
from command_line import run, two_steps

from ffq_spark import Exchange


@pytest.fixture
def exchange(root: str) -> Exchange:
    return two_steps(root)


def test_errors_are_json_for_machines(exchange: Exchange) -> None:
    done = run("lookup", exchange.root, "x", "--json")
    assert json.loads(done.stderr)["error"] == "FFQ_BAD_OPTION"


@pytest.mark.parametrize("verb", [["status"], ["check"], ["cancel", "1"], ["gc"]])
def test_storage_that_fails_is_exit_code_3(verb: list[str]) -> None:
    place = ["s3://127.0.0.1/x", "--storage", "endpoint_url=http://127.0.0.1:1"]
    done = run(verb[0], place[0], *verb[1:], *place[1:])
    assert done.returncode == 3 and "FFQ_STORE_FAILED" in done.stderr
