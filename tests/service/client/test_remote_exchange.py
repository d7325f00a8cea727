"""Encoding of keys by the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from service_scene import write

from ffq_spark.errors import (
    BadOption,
)


def test_a_text_is_one_key(connect: Any, tmp_path: Path) -> None:
    batch = pa.record_batch({"one": ["a", "ab"], "two": ["b", "b"]})
    roots = {name: str(tmp_path / name) for name in ("by-1", "by-2")}
    write(roots["by-1"], batch, keys=("one",))
    write(roots["by-2"], batch, keys=("one", "two"))
    service = connect(roots)
    assert service.exchange("by-1").read(key="ab").read_all()["one"].to_pylist() == ["ab"]
    assert service.exchange("by-2").read(key=("a", "b")).read_all()["one"].to_pylist() == ["a"]
    with pytest.raises(BadOption):
        service.exchange("by-2").read(key="ab")
