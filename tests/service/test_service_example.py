"""The example runs, and DuckDB returns the same rows through the service and from files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "service.py"


def test_the_example_runs() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    results = {name: text.strip() for name, text in lines.items()}
    assert results["DuckDB, Flight"] == results["DuckDB, files"]
    assert results["Polars, Flight"] == "500 customers"
    assert results["pandas, files"] == "100000 rows"
