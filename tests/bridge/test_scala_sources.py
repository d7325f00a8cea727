"""The formatting rules for Scala sources, which `make check` verifies with jars/check.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "jars" / "check.py"


def check(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, CHECK, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_sources_keep_the_rules() -> None:
    code, text = check()
    assert code == 0 and text.endswith("no findings\n")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("x" * 101 + "\n", ":1: 101 columns, the limit is 100"),
        ("a\n\tb\n", ":2: tab"),
        ("a \n", ":1: trailing blanks"),
        ("a", ": the file must end with one line break"),
        ("a\n\n", ": the file must end with one line break"),
    ],
)
def test_a_line_that_breaks_a_rule_is_a_finding(tmp_path: Path, text: str, finding: str) -> None:
    source = tmp_path / "Bad.scala"
    source.write_text(text)
    assert check(str(source)) == (1, f"{source}{finding}\n")


def test_a_line_of_100_columns_is_none(tmp_path: Path) -> None:
    source = tmp_path / "Good.scala"
    source.write_text("x" * 100 + "\n")
    assert check(str(source))[0] == 0
