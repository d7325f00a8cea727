"""After a fork, the child uses its own clients and leaves the parent's connections open."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from ffq_spark.store import Store


def test_a_child_does_not_take_the_parents_connections(s3: Any) -> None:
    """The parent's next request is answered at once, on its existing connection."""
    store = Store(f"s3://{s3.bucket}/forks", s3.storage_options)
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
    assert (store.read("a"), store.read("b")) == (b"parent", b"child")
    # A request on a lost connection would wait for 15 seconds.
    assert time.monotonic() - started < 10
