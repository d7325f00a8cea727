"""Configure the process's allocators for a server with many threads."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import pyarrow as pa

# Parameters of glibc's mallopt, and their values here.
_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES = -3, 4 << 20
_M_ARENA_MAX, _ARENAS = -8, 1
_M_TRIM_THRESHOLD, _KEPT_BYTES = -1, 16 << 20


def return_memory() -> None:
    """Let all threads share one heap, and return freed memory to the system.

    Allocators keep memory that a thread has freed for the same thread. With a thread for each
    reader, that adds up to several times what the readers hold.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        # C libraries other than glibc have no mallopt.
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
            # Returning and mapping pages for each batch would cost more than copying the batch.
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
