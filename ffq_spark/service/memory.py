"""Memory that a server of many threads is done with goes back to the system, or to all of them."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import pyarrow as pa

_M_MMAP_THRESHOLD, _LARGE = -3, 4 << 20
_M_ARENA_MAX, _ARENAS = -8, 1
_M_TRIM_THRESHOLD, _KEPT = -1, 16 << 20


def return_memory() -> None:
    """Keep what threads have freed in one place, and large buffers in pages of their own.

    Allocators keep what a thread has freed for that thread. With a thread for each reader that is
    several times what the readers hold.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        # Where the C library is another one, it has no such settings.
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _LARGE)
            # Pages that are given back and asked for again with every batch cost more than a copy.
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
