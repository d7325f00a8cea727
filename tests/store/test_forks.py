"""After a fork, the child uses its own clients and leaves the parent's connections open."""

from __future__ import annotations

import gc
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from conftest import Place

from ffq_spark.store import Store


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
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        *data, seconds = process.submit(read_after_a_fork, place).result()
    assert data == [b"parent", b"child"]
    # A request on a lost connection would wait for 15 seconds.
    assert seconds < 10
