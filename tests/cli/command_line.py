"""The command `ffq-spark` in a process of its own, and a small exchange to run it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches

ROWS = 40


def two_steps(root: str) -> Exchange:
    """Write 40 rows, then the first of them once more."""
    batch = pa.record_batch({"id": list(range(ROWS)), "name": [f"n{i}" for i in range(ROWS)]})
    options = write_options(keys=("id",), partitions=4)
    write_batches(root, [batch], options=options)
    write_batches(root, [batch.slice(0, 1)], options=options)
    return Exchange(root)


def run_bytes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [os.path.join(os.path.dirname(sys.executable), "ffq-spark"), *arguments]
    own = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, env=own, check=False)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run_bytes(*arguments, **environment)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def as_json(*arguments: str, code: int = 0) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)
