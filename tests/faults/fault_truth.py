"""What an exchange's records say, read with nothing but `json`: the tests' own judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def log(root: str) -> list[int]:
    """The query of each step; the numbers begin at 1 and have no gap."""
    files = sorted(Path(root, "_ffq/steps").glob("[0-9]*.json"))
    records = [json.loads(file.read_bytes()) for file in files]
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    return [record["body"]["query"] for record in records]


def outcomes(root: str) -> dict[int, bytes]:
    """The outcome record of each query that has ended, as its bytes."""
    files = Path(root, "_ffq/queries").glob("[0-9]*.outcome.json")
    return {int(file.name.split(".")[0]): file.read_bytes() for file in files}


def exchange(root: str) -> tuple[str, ...] | None:
    """The keys of the exchange, or None while nothing has decided them."""
    file = Path(root, "_ffq/exchange.json")
    return tuple(json.loads(file.read_bytes())["keys"]) if file.exists() else None


def committed(root: str) -> dict[int, dict[int, int]]:
    """The registered attempt of each map task, of each committed query."""
    found = {}
    for query, data in outcomes(root).items():
        document: dict[str, Any] = json.loads(data)
        if document["outcome"] == "COMMITTED":
            runs = document["step"]["registered"]
            found[query] = {m: a for first, last, a in runs for m in range(first, last + 1)}
    return found
