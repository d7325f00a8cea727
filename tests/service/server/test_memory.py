"""The allocators of a server: all threads share one heap, and Arrow uses it, too."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import pyarrow as pa
from ffq_spark.service.server.memory import return_memory
return_memory()
print(pa.default_memory_pool().backend_name)
"""


def test_arrow_allocates_from_the_systems_heap() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "system\n", done.stderr
