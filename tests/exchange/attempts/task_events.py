"""Task events, as Spark's listener reports them."""

from __future__ import annotations

from typing import Any

APP = "app-1"


def task(kind: str, number: int, **values: Any) -> dict[str, Any]:
    common = {"stage": 4, "stage_attempt": 0, "attempt_number": 0, "executor": "0", "host": "h"}
    own = {"event": kind, "task": number, "map_task": 0, "speculative": False, "launch_ms": 1}
    return {**common, **own, **values}


def ended(number: int, state: str = "SUCCESS", **values: Any) -> dict[str, Any]:
    return task("task_end", number, state=state, finish_ms=9, **values)
