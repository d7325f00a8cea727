"""The jar in the package was built from the present sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ffq_spark.conf import BRIDGE, FAST, REDACTION, flags, jar_path

TOP = Path(__file__).parents[2]


def test_the_jar_matches_its_sources(tmp_path: Path) -> None:
    built = tmp_path / "built.jar"
    subprocess.run([sys.executable, str(TOP / "jars" / "build.py"), str(built)], check=True)
    same = built.read_bytes() == Path(jar_path()).read_bytes()
    assert same, "the sources have changed: run `make jar` and commit the result"


def test_the_conf_file_holds_what_the_code_sets() -> None:
    lines = (TOP / "conf" / "spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    expected = {**BRIDGE, **FAST, **REDACTION}
    assert {name: settings[name].strip() for name in expected} == expected
    assert (TOP / settings["spark.jars"]).samefile(jar_path())


def test_the_command_line_prints_path_and_flags() -> None:
    command = Path(sys.executable).with_name("ffq-spark")
    printed = subprocess.run([command, "jar"], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == jar_path() and Path(jar_path()).is_file()
    printed = subprocess.run([command, "conf"], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"--conf {name}={value}" for name, value in flags().items()]
