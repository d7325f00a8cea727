"""Importing the package is cheap and needs no Spark, Java or storage client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ffq_spark


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def imported_by(statement: str) -> set[str]:
    """Return the top-level modules that a Python statement imports."""
    done = python("-X", "importtime", "-c", statement)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize("module", ["pyspark", "py4j", "pandas", "s3fs", "botocore", "fsspec"])
def test_importing_the_package_does_not_import(module: str) -> None:
    """Each of these modules costs time in every worker, or is not installed everywhere."""
    modules = imported_by("import ffq_spark; ffq_spark.Exchange")
    assert {"ffq_spark", "pyarrow"} <= modules
    assert module not in modules


def test_the_package_alone_imports_neither_numpy_nor_pyarrow() -> None:
    """Every Python process that Spark starts for a task or a plan imports the package."""
    assert not {"numpy", "pyarrow"} & imported_by("import ffq_spark")


def test_dir_lists_the_public_names_before_they_are_imported() -> None:
    import ffq_spark

    assert set(ffq_spark.__all__) <= set(dir(ffq_spark))


def test_the_spark_names_import_pyspark_when_they_are_used() -> None:
    """Show that the tests above can fail: this import appears in the measurement."""
    assert "pyspark" in imported_by("import ffq_spark; ffq_spark.recommended_conf")


def test_local_exchanges_need_no_storage_client() -> None:
    script = (
        "import ffq_spark as f; f.Exchange('/none'); import sys; print('fsspec' in sys.modules)"
    )
    assert python("-c", script).stdout.strip() == "False"


def test_an_exchange_is_read_without_java_and_without_pyspark(tmp_path: Path) -> None:
    """Run with no `java` on the path, no JAVA_HOME, and imports of pyspark failing."""
    script = """
import shutil, sys
sys.modules["pyspark"] = None
assert shutil.which("java") is None
import pyarrow as pa
from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions
batch = pa.record_batch({"k": list(range(100)), "v": [str(i) for i in range(100)]})
root = sys.argv[1]
write_batches(root, [batch], options=WriteOptions(keys=("k",), partitions=8))
exchange = Exchange(root)
assert exchange.info().rows == exchange.read().read_all().num_rows == 100
assert exchange.verify().ok
print(exchange.lookup(42).to_pylist())
"""
    root = str(tmp_path / "exchange")
    done = python("-c", script, root, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[{'k': 42, 'v': '42'}]"


def test_all_public_names_exist() -> None:
    for name in ffq_spark.__all__:
        assert getattr(ffq_spark, name) is not None
    with pytest.raises(AttributeError):
        _ = ffq_spark.no_such_name  # type: ignore[attr-defined]
