"""Memory that a server of many threads is done with goes back to the system at once."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import pyarrow as pa

_M_MMAP_THRESHOLD = -3
_LARGE = 256 << 10


def return_memory() -> None:
    """Let large buffers be pages of their own, which free gives back; for a process that serves.

    Allocators keep what a thread has freed for that thread. With a thread for each reader that is
    several times what the readers hold.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        # Where the C library is another one, it has no such setting.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
