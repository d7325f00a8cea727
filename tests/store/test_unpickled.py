"""Unpickling a store in a Spark task loads its client's modules, before the heap is frozen."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from ffq_spark.store import Store


def loads(pickled: Path, block: str = "") -> str:
    """Unpickle a store in a new process; return whether s3fs is loaded, and the error of a read."""
    script = f"""
import pickle, sys
{block}
store = pickle.loads(open({str(pickled)!r}, "rb").read())
print(sys.modules.get("s3fs") is not None)
try:
    store.read("x")
except Exception as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_unpickling_loads_the_client(tmp_path: Path) -> None:
    pickled = tmp_path / "store"
    nowhere = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    quick = {"config_kwargs": {"retries": {"max_attempts": 0}}}
    pickled.write_bytes(pickle.dumps(Store("s3://bucket/root", {**nowhere, **quick})))
    assert loads(pickled).split() == ["True", "StoreFailed"]
    assert loads(pickled, 'sys.modules["s3fs"] = None').split() == ["False", "StoreFailed"]


def test_a_local_store_loads_none(tmp_path: Path) -> None:
    pickled = tmp_path / "store"
    pickled.write_bytes(pickle.dumps(Store(str(tmp_path))))
    assert loads(pickled).split() == ["False", "FileNotFoundError"]
