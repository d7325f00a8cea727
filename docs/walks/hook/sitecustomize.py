"""Record the calls of ffq_spark in every Python process that Spark starts.

Python imports this module when it starts, if its folder is on PYTHONPATH. Spark forks workers from
a daemon; they inherit the profiler that is set here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

FOLDER = os.environ.get("FFQ_WALK_TRACE", "")
ROOT = "ffq_spark"
# Flags of code objects: set in function bodies (not in class bodies), and in generators.
OPTIMIZED, GENERATOR = 0x01, 0x20


@lru_cache
def trace_file(pid: int) -> int:
    """Open the trace of one process; a forked process has a file of its own."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.open(os.path.join(FOLDER, f"{pid}.tsv"), flags, 0o644)


def is_function(code: CodeType) -> bool:
    """Whether code is a function or method, rather than a module, class body or comprehension."""
    return bool(code.co_flags & OPTIMIZED) and not code.co_name.startswith("<")


def callers(frame: FrameType) -> Iterator[str]:
    """Yield the product's functions below a frame, nearest first."""
    caller = frame.f_back
    while caller is not None:
        module = caller.f_globals.get("__name__", "")
        if module.startswith(f"{ROOT}.") and is_function(caller.f_code):
            yield f"{module}:{caller.f_code.co_qualname}"
        caller = caller.f_back


def storage_path(arguments: dict[str, Any]) -> str:
    """Get the path that a call is about, or the first of several."""
    paths = arguments.get("paths")
    path = paths[0] if isinstance(paths, list) and paths else arguments.get("path")
    return path if isinstance(path, str) else ""


def record(frame: FrameType, event: str, _: Any) -> None:
    """Write one line for each call of a function of the product."""
    module, code = frame.f_globals.get("__name__", ""), frame.f_code
    if event != "call" or not module.startswith(f"{ROOT}.") or not is_function(code):
        return
    fields = (
        str(time.monotonic_ns()),
        "generator" if code.co_flags & GENERATOR else "function",
        storage_path(frame.f_locals),
        f"{module}:{code.co_qualname}",
        *callers(frame),
    )
    os.write(trace_file(os.getpid()), ("\t".join(fields) + "\n").encode())


if FOLDER:
    threading.setprofile(record)
    sys.setprofile(record)
