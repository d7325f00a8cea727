"""Read an exchange's records with nothing but `json`, independently of the code under test."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

SEALED = -1
"""The query of a seal, the record of a batch that nobody can claim any more."""


def log(root: str) -> list[int]:
    """Return the query of each step; check that the numbers begin at 1 and have no gap."""
    files = sorted(Path(root, "_ffq/steps").glob("[0-9]*.json"))
    records = [json.loads(file.read_bytes()) for file in files]
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    return [record["body"]["query"] for record in records]


def outcomes(root: str) -> dict[int, bytes]:
    """Return the bytes of the outcome record of each query that has ended."""
    files = Path(root, "_ffq/queries").glob("[0-9]*.outcome.json")
    return {int(file.name.split(".")[0]): file.read_bytes() for file in files}


def exchange(root: str) -> tuple[str, ...] | None:
    """Return the keys of the exchange, or None before its record exists."""
    file = Path(root, "_ffq/exchange.json")
    return tuple(json.loads(file.read_bytes())["keys"]) if file.exists() else None


def committed(root: str) -> dict[int, dict[int, int]]:
    """Return the registered attempt of each map task, for each committed query."""
    registered = {}
    for query, data in outcomes(root).items():
        document: dict[str, Any] = json.loads(data)
        if document["outcome"] == "COMMITTED":
            runs = document["step"]["registered"]
            registered[query] = {m: a for first, last, a in runs for m in range(first, last + 1)}
    return registered


def promises(root: str) -> dict[int, Hashable]:
    """Return what each committed query must have in the log: itself, or one run of its batch."""
    promised: dict[int, Hashable] = {}
    for query in committed(root):
        outcome = json.loads(outcomes(root)[query])
        stream = outcome["step"].get("stream")
        if not stream:
            promised[query] = query
        elif _has_epoch(root, outcome.get("owner")) and _claimed(root, stream) != SEALED:
            promised[query] = (stream["stream"], stream["epoch"], stream["batch"])
    return promised


def unclaimed(root: str) -> set[Hashable]:
    """Return the batches that are committed and not claimed; a takeover may still refuse them."""
    streams = (json.loads(outcomes(root)[query])["step"].get("stream") for query in committed(root))
    return {
        (stream["stream"], stream["epoch"], stream["batch"])
        for stream in streams
        if stream and _claimed(root, stream) is None
    }


def _has_epoch(root: str, proposal: dict[str, Any] | None) -> bool:
    """Return whether the epoch that a query proposes, if any, begins with its owner and batch."""
    if proposal is None:
        return True
    name = f"{proposal['epoch']:06d}.owner.json"
    file = Path(root, "_ffq/streams", proposal["stream"], name)
    if not file.exists():
        return False
    present = json.loads(file.read_bytes())
    return all(present[name] == proposal[name] for name in ("owner", "first"))


def _claimed(root: str, stream: dict[str, Any]) -> int | None:
    """Return the query of a batch's record, or None if it has none."""
    folder = Path(root, "_ffq/streams", stream["stream"], f"{stream['epoch']:06d}")
    file = folder / f"{stream['batch']:020d}.json"
    query: int | None = json.loads(file.read_bytes())["query"] if file.exists() else None
    return query


def kept(root: str, log: list[int]) -> set[Hashable]:
    """Return the promises that a log keeps."""
    promised = promises(root)
    return {promised[query] for query in log}


def owners(root: str, stream: str) -> list[str]:
    """Return the owner of a stream in each of its epochs."""
    files = sorted(Path(root, "_ffq/streams", stream).glob("*.owner.json"))
    return [json.loads(file.read_bytes())["owner"] for file in files]


def claims(root: str, stream: str) -> dict[tuple[str, int], int]:
    """Return the query of each batch, by the owner and the number of the batch."""
    epochs = owners(root, stream)
    return {
        (epochs[int(file.parent.name) - 1], int(file.stem)): json.loads(file.read_bytes())["query"]
        for file in sorted(Path(root, "_ffq/streams", stream).glob("*/[0-9]*.json"))
        if json.loads(file.read_bytes())["query"] != SEALED
    }


def batches(root: str, stream: str) -> list[tuple[str, int]]:
    """Return the owner and the number of each batch in the log."""
    epochs = owners(root, stream)
    bodies = [
        json.loads(file.read_bytes())["body"].get("stream")
        for file in sorted(Path(root, "_ffq/steps").glob("[0-9]*.json"))
    ]
    bodies_of_stream = [body for body in bodies if body and body["stream"] == stream]
    return [(epochs[body["epoch"] - 1], body["batch"]) for body in bodies_of_stream]
