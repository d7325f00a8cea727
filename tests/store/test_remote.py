"""Clients of object stores: one for all stores of a process, also after a fork and in a task."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from s3proxy import Fault, S3Proxy, on

from ffq_spark.store import Store
from ffq_spark.store import remote as remote_module
from ffq_spark.store.remote import RemoteBackend
from ffq_spark.store.retry import Policy


def test_stores_with_equal_options_share_a_client() -> None:
    one, other = (RemoteBackend("memory", f"client/{name}", {}) for name in "ab")
    assert one.client is other.client
    assert RemoteBackend("memory", "client/a", {"skip_instance_cache": True}).client is not (
        one.client
    )


def test_a_directory_has_no_files_of_its_namesakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a missing directory some clients list all files whose names begin with its name."""
    backend = RemoteBackend("memory", "namesakes", {})
    for path in ("shuffle/7/0/12/f", "shuffle/7/0/1.json"):
        backend.write(path, [memoryview(b"x")])
    client, real = backend.client, backend.client.find

    def find(path: str, detail: bool) -> dict[str, Any]:
        files = real(path.rpartition("/")[0], detail=detail)
        return {name: files[name] for name in files if name.strip("/").startswith(path)}

    assert len(find("namesakes/shuffle/7/0/1", True)) == 2
    monkeypatch.setattr(client, "find", find)
    assert list(backend.tree("shuffle/7/0/1", lambda _: False)) == []
    (directory,) = backend.tree("shuffle/7/0/12", lambda _: False)
    assert directory.files == [("shuffle/7/0/12/f", 1)]


# --- forks ------------------------------------------------------------------------------------


def read_after_a_fork(place: Place) -> tuple[bytes, bytes, float]:
    """Let a child write `b`; return `a` and `b` as the parent reads them, and the seconds."""
    store = Store(place.root, place.storage_options)
    store.write("a", [b"parent"])
    pid = os.fork()
    if not pid:
        try:
            store.write("b", [b"child"])
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    started = time.monotonic()
    return store.read("a"), store.read("b"), time.monotonic() - started


def test_a_child_does_not_take_the_parents_connections(s3: Any) -> None:
    """The parent's next request is answered at once, on its existing connection."""
    # The process that forks is a new one: gRPC, which other tests load, aborts in forked children.
    place = Place(f"s3://{s3.bucket}/forks", s3.storage_options)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        *data, seconds = process.submit(read_after_a_fork, place).result()
    assert data == [b"parent", b"child"]
    # A request on a lost connection would wait for 15 seconds.
    assert seconds < 10


@pytest.fixture
def forked() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Return a function that runs a task in a forked child, and returns the pipe of its result."""
    context = multiprocessing.get_context("fork")
    children: list[Any] = []

    def start(task: Callable[[], Any]) -> Any:
        gc.collect()
        ours, theirs = context.Pipe()
        child = context.Process(target=lambda: theirs.send(task()))
        child.start()
        children.append(child)
        return ours

    yield start
    for child in children:
        child.kill()
        child.join()


def test_parent_and_forked_children_read_at_once_each_by_its_own_client(
    proxied: Place,
    proxy: S3Proxy,
    forked: Callable[[Callable[[], Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faults break connections in all processes, and every process reconnects its own client."""
    monkeypatch.setattr(remote_module, "Policy", partial(Policy, first_seconds=0.005))
    store = Store(proxied.root, proxied.storage_options)
    bodies = {f"d/{n}": random.Random(n).randbytes(50_000) for n in range(20)}
    for path, body in bodies.items():
        store.write(path, [body])

    def read_all() -> bool:
        return all(store.read(path) == body for path, body in bodies.items())

    with proxy.faults(Fault("cut", on("GET"), share=0.2), Fault("reset", share=0.1)):
        pipes = [forked(read_all) for _ in range(2)]
        assert read_all()
        for pipe in pipes:
            assert pipe.poll(60) and pipe.recv()


# --- unpickling -------------------------------------------------------------------------------


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
    """A Spark task freezes its heap after it has unpickled its store."""
    pickled = tmp_path / "store"
    nowhere = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    quick = {"config_kwargs": {"retries": {"max_attempts": 0}}}
    pickled.write_bytes(pickle.dumps(Store("s3://bucket/root", {**nowhere, **quick})))
    assert loads(pickled).split() == ["True", "StoreFailed"]
    assert loads(pickled, 'sys.modules["s3fs"] = None').split() == ["False", "StoreFailed"]


def test_unpickling_a_local_store_loads_no_client(tmp_path: Path) -> None:
    pickled = tmp_path / "store"
    pickled.write_bytes(pickle.dumps(Store(str(tmp_path))))
    assert loads(pickled).split() == ["False", "FileNotFoundError"]
