"""Invariants of the files on storage, checked after each operation with little more than `json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import Any

import pyarrow as pa
from stepping import Files, open_store

from ffq_spark.errors import StepExpired
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions

Rows = Counter[tuple[Any, ...]]

SCHEMA = pa.schema([("k", pa.int64()), ("query", pa.int64()), ("attempt", pa.int64())])
KEPT_VERSIONS = 2


def batch(query: int, map_task: int, attempt: int) -> pa.RecordBatch:
    """Make rows that name their attempt, so that rows of a wrong attempt are detected."""
    keys = [map_task * 10, map_task * 10 + 1]
    columns = [keys, [query] * len(keys), [attempt] * len(keys)]
    return pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA)


def rows_of(query: int, registered: dict[int, int]) -> Rows:
    return Counter(
        tuple(row.values())
        for map_task, attempt in registered.items()
        for row in batch(query, map_task, attempt).to_pylist()
    )


def read_step(files: Files, number: int) -> Rows:
    """Read a step's rows from a copy of the files, because a reader may roll a commit forward."""
    store = open_store(dict(files))
    snapshot = take_snapshot(store, ReadOptions(steps=str(number)))
    batches = read_parts(store, snapshot.parts(), snapshot.exchange.schema)
    return Counter(tuple(row.values()) for b in batches for row in b.to_pylist())


class Judge:
    """Compares each state of storage with the previous one."""

    def __init__(self, files: Files, ttl_ms: int) -> None:
        self._files = files
        self._ttl_ms = ttl_ms
        self._before: Files = {}
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.kept: dict[int, Files] = {}
        self.log: list[dict[str, Any]] = []

    def registered(self, query: int) -> dict[int, int]:
        """Return the registered attempt of each map task; none if the outcome is not COMMITTED."""
        step = self.outcomes.get(query, {}).get("step") or {"registered": ()}
        return {m: a for first, last, a in step["registered"] for m in range(first, last + 1)}

    def is_registered(self, path: str) -> bool:
        _, query, _, map_task, attempt, _ = path.split("/")
        return self.registered(int(query)).get(int(map_task)) == int(attempt)

    def data(self) -> set[str]:
        return {path for path in self._files if path.startswith("shuffle/")}

    def expired(self, step: int) -> bool:
        return f"_ffq/expired/{step:020d}.json" in self._files

    @property
    def paths(self) -> Set[str]:
        """The files at the time of the last call of `look`."""
        return self._before.keys()

    def visible(self, number: int) -> set[int]:
        """Return the steps of the snapshot as of a step."""
        steps: set[int] = set()
        while number:
            base = self.log[number - 1]["base"]
            steps |= set(range(base, number + 1))
            number = self.log[base - 1]["body"]["restores"]
        return steps

    def needed(self, claims: Iterable[str], *, at_most: bool = False) -> set[int]:
        """Return the steps that newest versions, holds and consumers need.

        With `at_most`, add what retention may keep besides: steps for a consumer that has read
        nothing, and the earlier steps of a hold whose process died while it replaced them.
        """
        newest = self.log[-1]["version"] if self.log else 0
        steps = {s["step"] for s in self.log if s["version"] > newest - KEPT_VERSIONS}
        for path in claims:
            record = json.loads(self._files[path])
            step = record["step"]
            if "/holds/" in path:
                held = [step, *(record["earlier"] if at_most else [])]
                steps = steps.union(*(self.visible(number) for number in held))
            elif step == 0 and not at_most:
                # A consumer that has read nothing begins with the present snapshot.
                steps |= self.visible(len(self.log))
            else:
                steps |= set(range(step + 1, len(self.log) + 1))
        rollbacks = (self.log[step - 1]["body"]["restores"] for step in list(steps))
        return steps.union(*(self.visible(step) for step in rollbacks if step))

    def look(self, now: int, may_be_lost: Callable[[int], bool], claims: Iterable[str]) -> None:
        """Check all invariants against the present files."""
        if self._files == self._before:
            return
        self._check_outcomes(may_be_lost)
        self._check_log()
        needed = self.needed(claims)
        self._check_removed(now, needed)
        self._check_committed(needed)
        self._before = dict(self._files)

    def _check_outcomes(self, may_be_lost: Callable[[int], bool]) -> None:
        for path, data in self._before.items():
            if path.endswith(".outcome.json"):
                assert self._files.get(path) is data, f"{path} has changed"
        for path in self._files.keys() - self._before.keys():
            if not path.endswith(".outcome.json"):
                continue
            outcome = json.loads(self._files[path])
            query = outcome["query"]
            self.outcomes[query] = outcome
            if outcome["outcome"] == "LOST":
                assert may_be_lost(query), f"{query} was fenced while its lease held"
            if outcome["outcome"] == "COMMITTED":
                own = (p for p in self.data() if p.startswith(f"shuffle/{query}/"))
                self.kept[query] = {p: self._files[p] for p in own if self.is_registered(p)}
                self.kept[query][f"_ffq/manifests/{query}.arrow"] = self._files[
                    f"_ffq/manifests/{query}.arrow"
                ]

    def _check_log(self) -> None:
        before = len(self.log)
        while (path := f"_ffq/steps/{len(self.log) + 1:020d}.json") in self._files:
            self.log.append(json.loads(self._files[path]))
        queries = [step["body"]["query"] for step in self.log]
        assert len(set(queries)) == len(queries), "a query has two steps"
        assert set(queries) <= self.kept.keys(), "a query without COMMITTED has a step"
        for path, data in self._before.items():
            if path.startswith("_ffq/steps/"):
                assert self._files.get(path) is data, f"{path} has changed"
        for step in self.log[before:]:
            self._check_rows(step)

    def _check_rows(self, step: dict[str, Any]) -> None:
        query = step["body"]["query"]
        try:
            rows = read_step(self._files, step["step"])
        except StepExpired:
            assert self.expired(step["step"])
            return
        assert rows == rows_of(query, self.registered(query)), f"step {step['step']}"

    def _check_removed(self, now: int, needed: set[int]) -> None:
        """Check that gc deleted only stale and expired files, no earlier than allowed."""
        steps = {step["body"]["query"]: step for step in self.log}
        for path in self._before.keys() - self._files.keys():
            if not path.startswith("shuffle/"):
                continue
            query = int(path.split("/")[1])
            assert query in self.outcomes, f"{path} of a running query is gone"
            outcome = self.outcomes[query]
            if self.is_registered(path):
                step = steps[query]["step"]
                assert self.expired(step) and step not in needed, f"{path} is gone"
            elif outcome["outcome"] != "LOST":
                assert outcome["at_ms"] + self._ttl_ms <= now, f"{path} went too early"

    def _check_committed(self, needed: set[int]) -> None:
        """Check that needed committed files are unchanged, and other steps right or expired."""
        steps = {step["body"]["query"]: step for step in self.log}
        for query, files in self.kept.items():
            step = steps.get(query)
            whole = all(self._files.get(path) is data for path, data in files.items())
            if step is None or not self.expired(step["step"]) or step["step"] in needed:
                assert whole, f"committed files of query {query} are gone or changed"
            elif self._files.keys() != self._before.keys():
                self._check_rows(step)

    def check_at_rest(self, opened: set[int], granted: set[str], claims: set[str]) -> None:
        """Check that only needed files are left after all processes have ended and gc has run.

        gc must respect the claims in `granted`; `claims` are all claims on storage.
        """
        assert opened == self.outcomes.keys(), "a query never ended"
        published = {step["body"]["query"] for step in self.log}
        assert published == self.kept.keys(), "a committed query never became visible"
        remaining = self.data() | {p for p in self._files if p.startswith("_ffq/manifests/")}
        assert self._files_of(self.needed(granted)) <= remaining, "needed files are gone"
        assert remaining <= self._files_of(self.needed(claims, at_most=True)), "there are orphans"
        assert not any(path.startswith("_ffq/pending/") for path in self._files)

    def _files_of(self, steps: set[int]) -> set[str]:
        queries = (self.log[step - 1]["body"]["query"] for step in steps)
        return {path for query in queries for path in self.kept[query]}
