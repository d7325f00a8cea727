"""The verbs `serve` and `token`: their flags, their output, and the end of a server."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from service_scene import rows, serving, write

import ffq_spark as ffq
from ffq_spark.cli.main import main
from ffq_spark.errors import Forbidden
from ffq_spark.options import ServeOptions

# Statements need a Spark session, which no flag can pass.
STATEMENTS = {"sql", "maxQueries", "maxQueued", "queryTimeout", "resultsRoot", "resultsTtl"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": "400"})


def flag(name: str) -> str:
    return "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in name)


def test_each_option_of_the_service_but_those_of_statements_is_a_flag() -> None:
    known = {field.metadata["name"] for field in ServeOptions.declared()}
    shown = {word for word in run("serve", "--help").output.split() if word.startswith("--")}
    assert known > STATEMENTS
    assert shown & {flag(name) for name in known} == {flag(name) for name in known - STATEMENTS}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Missing argument 'ROOTS...'"),
        (["/data", "--storage", "endpoint"], "--storage"),
        (["/data", "--max-readers", "0"], "maxReaders"),
        (["/data", "--host", "0.0.0.0"], "insecure"),
    ],
)
def test_a_wrong_call_names_the_flag_and_serves_nothing(arguments: list[str], text: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 2 and text in result.output


def test_a_new_token_opens_the_roots_and_scopes_that_it_names(root: str, tmp_path: Path) -> None:
    write(root, rows(0, 10))
    file = str(tmp_path / "tokens.json")
    made = run("token", "ann", "--file", file, "--scope", "read", "--root", "x", "--json")
    token = json.loads(made.output)["token"]
    assert token not in Path(file).read_text()
    with (
        serving(f"x={root}", f"y={root}", "--tokens", file) as server,
        ffq.connect(server.url, token=token) as connection,
    ):
        assert connection.exchange("x").read().read_all().num_rows == 10
        with pytest.raises(Forbidden):
            connection.exchange("y").read()


def send_to_a_thread(pid: int, number: int) -> None:
    """Send a signal to a thread other than the main one, as the kernel sometimes does."""
    other = max(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    assert other != pid
    library = ctypes.CDLL(None, use_errno=True)
    assert library.tgkill(pid, other, number) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and tgkill")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_another_thread_takes_is_acted_on(root: str, number: int) -> None:
    write(root, rows(0, 10))
    with serving(f"x={root}") as server:
        assert ffq.connect(server.url).exchanges() == ["x"]
        send_to_a_thread(server.process.pid, number)
        assert server.process.wait(30) == 0
