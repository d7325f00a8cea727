"""Fixtures of tests of the step log: files in memory, and log checkpoints of few steps."""

from __future__ import annotations

from typing import Any

import pytest

# The fixtures import the product and its helpers themselves: all tests load this module.


@pytest.fixture
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make log checkpoints of 4, 8, 16, … steps, so that short logs have some."""
    from ffq_spark.exchange.ledger import log_spans

    monkeypatch.setattr(log_spans, "FIRST_SIZE", 4)
    monkeypatch.setattr(log_spans, "GROWTH", 2)


@pytest.fixture
def files() -> dict[str, bytes]:
    """Return the files of a root in memory, which stepped processes share."""
    return {}


@pytest.fixture
def scene(files: dict[str, bytes]) -> Any:
    """Return a scene on the files in memory."""
    from conftest import Place
    from gc_scene import Scene
    from stepping import open_store

    return Scene(Place("/memory"), open_store(files))
