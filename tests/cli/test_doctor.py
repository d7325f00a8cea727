"""ffq-spark doctor: settings from flags and files, and exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command_line import run

from ffq_spark.conf import BRIDGE, FAST, flags


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("doctor", *arguments, **{"SPARK_CONF_DIR": "", **environment})


def test_without_settings_everything_is_missing_and_told_with_its_cost() -> None:
    done = doctor()
    assert done.returncode == 1
    assert all(name in done.stdout for name in {**FAST, **BRIDGE}) and "40 ms" in done.stdout


def test_the_printed_flags_leave_nothing_to_mend() -> None:
    given = [f"--conf={name}={value}" for name, value in flags().items()]
    done = doctor(*given, "--conf=spark.master=local[2]", "--root=s3://bucket/x")
    assert (done.returncode, done.stdout.strip()) == (0, "no findings")
    assert json.loads(doctor(*given, "--json").stdout) == []


def test_a_file_is_read_flags_win_and_the_default_file_is_found(tmp_path: Path) -> None:
    reuse = "spark.python.worker.reuse"
    settings = {**flags(), reuse: "false"}
    file = tmp_path / "spark-defaults.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    for done in (
        doctor("--json", "--properties-file", str(file)),
        doctor("--json", SPARK_CONF_DIR=str(tmp_path)),
    ):
        (finding,) = json.loads(done.stdout)
        assert finding["setting"] == reuse and finding["wanted"] == "true"
        assert done.returncode == 1 and finding["remedy"] == f"--conf {reuse}=true"
    assert doctor(f"--conf={reuse}=true", SPARK_CONF_DIR=str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--conf", "nonsense"], 2, "NAME=VALUE"),
        (["--properties-file", "/no/such/file"], 2, "does not exist"),
        (["--url", "nonsense"], 2, "FFQ_BAD_OPTION"),
        (["--url", "http://127.0.0.1:1"], 3, "FFQ_NO_ANSWER"),
        (["--url", "http://127.0.0.1:1", "--conf", "a=b"], 2, "--url"),
    ],
)
def test_errors_say_what_is_wrong(arguments: list[str], code: int, text: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == code and text in done.stderr and "Traceback" not in done.stderr
