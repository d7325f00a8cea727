"""`make check` finds import cycles, also those that only type checkers see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
A_IMPORTS_B = {"a/first": "import ffq_spark.b.first"}


def succeeds(directory: Path, *command: object) -> bool:
    """Run one of the two checks in a directory and tell whether it finds no cycle."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    # A check that could not run must not count as one that found a cycle.
    expected = ("no import cycles", "1 kept", "import cycle:", "1 broken")
    assert any(text in done.stdout + done.stderr for text in expected), done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(
    ("texts", "packages_pass", "modules_pass"),
    [
        pytest.param(A_IMPORTS_B, True, True, id="no cycle"),
        pytest.param(
            A_IMPORTS_B | {"b/first": "import ffq_spark.a.first"},
            False,
            False,
            id="two modules",
        ),
        pytest.param(
            A_IMPORTS_B | {"b/first": f"{FOR_TYPES}import ffq_spark.a.first"},
            False,
            False,
            id="two modules, one import for types",
        ),
        pytest.param(
            {"b/first": f"{FOR_TYPES}import ffq_spark.b.second"},
            True,
            True,
            id="one way, for types",
        ),
        pytest.param(
            {
                "b/first": f"{FOR_TYPES}import ffq_spark.b.second",
                "b/second": "import ffq_spark.b.first",
            },
            False,
            False,
            id="one package, one import for types",
        ),
        pytest.param(
            A_IMPORTS_B | {"b/second": "import ffq_spark.a.second"},
            False,
            True,
            id="two packages without a cycle of modules",
        ),
        pytest.param(
            {"b/__init__": "import ffq_spark.b.first", "b/first": f"{FOR_TYPES}import ffq_spark.b"},
            True,
            False,
            id="a module and its own package",
        ),
    ],
)
def test_cycles_are_found(
    tmp_path: Path, texts: dict[str, str], packages_pass: bool, modules_pass: bool
) -> None:
    """Run the contract of setup.cfg and the script on a package that is made here."""
    modules = [f"{package}/{name}" for package in "ab" for name in ("__init__", "first", "second")]
    for name in ("__init__", *modules):
        path = tmp_path / "ffq_spark" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(name, ""))
    lint_imports = Path(sys.executable).with_name("lint-imports")
    contract = ("--config", TOP / "setup.cfg", "--contract", "acyclic", "--no-cache")
    assert succeeds(tmp_path, lint_imports, *contract) == packages_pass
    assert succeeds(tmp_path, sys.executable, TOP / "checks" / "cycles.py") == modules_pass
