"""The command as a whole: exit codes, error messages, and no need of Java."""

from __future__ import annotations

import pytest
from command_line import run, two_steps

from ffq_spark import Exchange


@pytest.fixture
def exchange(root: str) -> Exchange:
    return two_steps(root)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "/no/such/place"], 2, "FFQ_EXCHANGE_NOT_FOUND"),
        (["lookup", "ROOT", "x"], 2, "FFQ_BAD_OPTION"),
        (["parts", "ROOT", "--steps", "9"], 2, "FFQ_STEP_NOT_FOUND"),
        (["show", "ROOT", "--storage", "nonsense"], 2, "NAME=VALUE"),
        (["nonsense"], 2, "No such command"),
        (["show", "s3://127.0.0.1/x", "--storage", "endpoint_url=http://127.0.0.1:1"], 3, "FFQ_"),
    ],
)
def test_errors_say_what_is_wrong_and_set_the_exit_code(
    exchange: Exchange, arguments: list[str], code: int, text: str
) -> None:
    done = run(*(exchange.root if word == "ROOT" else word for word in arguments))
    assert done.returncode == code and text in done.stderr
    assert "Traceback" not in done.stderr


def test_no_verb_needs_java(exchange: Exchange) -> None:
    assert run("show", exchange.root, PATH="").returncode == 0
