"""The example runs, and DuckDB finds the same through the service as in the files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "service.py"


def test_the_example_runs() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    found = {name: text.strip() for name, text in lines.items()}
    assert found["DuckDB, Flight"] == found["DuckDB, files"]
    assert found["Polars, Flight"] == "500 customers"
    assert found["pandas, files"] == "100000 rows"
