"""The layout in which the suite writes: `FFQ_LAYOUT=packed pytest` runs it with packed files."""

from __future__ import annotations

import os
from typing import Any

from ffq_spark.options import WriteOptions

LAYOUT = os.environ.get("FFQ_LAYOUT", "parts")


def write_options(**values: Any) -> WriteOptions:
    """Options of a write in the suite's layout, where a test asks for none itself."""
    return WriteOptions(**{"layout": LAYOUT, **values})
