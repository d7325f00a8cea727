"""Adding tokens: several commands at once, links, leftovers and permissions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from service_scene import COMMAND

import ffq_spark as ffq
from ffq_spark.errors import BadOption


def command(name: str, file: Path) -> subprocess.Popen[bytes]:
    given = [COMMAND, "token", name, "--file", str(file), "--scope", "read", "--json"]
    return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def make(name: str, file: Path) -> tuple[int, str]:
    """Run `ffq-spark token` and return its exit code and output."""
    process = command(name, file)
    output, errors = process.communicate()
    return process.returncode, (output or errors).decode()


def names(file: Path) -> list[str]:
    return sorted(entry["name"] for entry in json.loads(file.read_text()))


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


COMMANDS = """
import sys
from click.testing import CliRunner
from ffq_spark.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    name = f"{sys.argv[2]}-{number:02}"
    done = CliRunner().invoke(main, ["token", name, "--file", sys.argv[1], "--scope", "read"])
    assert done.exit_code == 0, repr(done.exception) + done.output
"""


def test_commands_at_once_all_leave_their_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", COMMANDS, str(file), str(number)], **pipes)
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        print("go", file=process.stdin, flush=True)
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert names(file) == [f"{process}-{number:02}" for process in range(3) for number in range(20)]
    assert mode(file) == 0o600 and not list(tmp_path.glob(".*.tmp"))


def test_a_leftover_file_decides_neither_content_nor_mode(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    leftover = tmp_path / ".tokens.json.tmp"
    leftover.write_text("[" * 1000)
    leftover.chmod(0o666)
    assert make("reader", file)[0] == 0
    assert mode(file) == 0o600 and names(file) == ["reader"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_followed_and_stays(tmp_path: Path, dangling: bool) -> None:
    real, link = tmp_path / "real" / "tokens.json", tmp_path / "tokens.json"
    real.parent.mkdir()
    if not dangling:
        assert make("first", real)[0] == 0
    link.symlink_to("real/tokens.json")
    assert make("second", link)[0] == 0
    assert link.is_symlink() and names(real) == ["first", "second"][dangling:]
    assert mode(real) == 0o600


def test_a_file_that_its_group_may_read_stays_so(tmp_path: Path) -> None:
    """The server may run under another account than the administrator who adds tokens."""
    file = tmp_path / "tokens.json"
    assert make("first", file)[0] == 0
    file.chmod(0o640)
    assert make("second", file)[0] == 0
    assert mode(file) == 0o640 and names(file) == ["first", "second"]


@pytest.mark.parametrize("open_mode", [0o606, 0o660])
def test_a_file_that_others_may_change_is_refused(
    tmp_path: Path, root: str, open_mode: int
) -> None:
    file = tmp_path / "tokens.json"
    assert make("first", file)[0] == 0
    file.chmod(open_mode)
    with pytest.raises(BadOption, match=r"chmod") as caught:
        ffq.serve({"x": root}, port=0, tokens=str(file))
    assert caught.value.option == "tokens" and str(file) in str(caught.value)
    code, output = make("second", file)
    assert code == 2 and "FFQ_BAD_OPTION" in output
    # The command must not make a file trusted that others may have changed.
    assert mode(file) == open_mode and names(file) == ["first"]


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    code, output = make("first", tmp_path / "none" / "tokens.json")
    assert code == 3 and "FFQ_STORE_FAILED" in output and "none/tokens.json" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_or_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Another user could add tokens of its own, or replace the file."""
    file = tmp_path / "etc" / "tokens.json"
    file.parent.mkdir()
    assert make("first", file)[0] == 0
    for path in (file, file.parent):
        os.chown(path, 65533, 65533)
        code, output = make("second", file)
        assert code == 2 and "belongs to the user 65533" in output
        assert names(file) == ["first"]
        os.chown(path, 0, 0)
    assert make("second", file)[0] == 0 and file.stat().st_uid == 0


def test_a_new_file_in_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    (tmp_path / "link").symlink_to("open/tokens.json")
    for file in (place / "tokens.json", tmp_path / "link"):
        code, output = make("first", file)
        assert code == 2 and f"may write to {place}" in output
        assert not list(place.iterdir())
