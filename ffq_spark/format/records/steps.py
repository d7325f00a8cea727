"""The records of the step log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ffq_spark.format import paths
from ffq_spark.format.records.json_record import JsonRecord
from ffq_spark.format.records.streams import Offsets, StreamBatch
from ffq_spark.format.registered import Registered, Run


@dataclass(frozen=True)
class StepBody(JsonRecord):
    """A step without its number: everything that decides which rows it holds.

    `registered` names one attempt for each map task. A rollback brings back the snapshot as of step
    `restores`. Each part is sorted by `sort_by`. `rows`, `bytes` and `parts` are sums over the
    manifest, kept here for listings that do not read it. The rows are hash-partitioned into
    `partitions`; 0 stands for the number in `exchange.json`, in steps that do not record their own.
    """

    query: int
    mode: str
    stage: int
    rows: int
    bytes: int
    parts: int
    registered: Registered
    manifest: str
    manifest_bytes: int
    manifest_checksum: int
    committed_at_ms: int
    restores: int = 0
    sort_by: tuple[str, ...] = ()
    stream: StreamBatch | None = None
    offsets: Offsets | None = None
    partitions: int = 0

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StepBody:
        body = super().from_document(document)
        if body.partitions < 0:
            raise ValueError(f"a step cannot have {body.partitions} partitions")
        stream, offsets = document.get("stream"), document.get("offsets")
        return replace(
            body,
            registered=_registered(body.registered),
            stream=None if stream is None else StreamBatch.from_document(stream),
            offsets=None if offsets is None else Offsets.from_document(offsets),
        )

    @property
    def attempts(self) -> dict[int, int]:
        """The registered attempt of each map task."""
        return {
            map_task: attempt
            for first, last, attempt in self.registered
            for map_task in range(first, last + 1)
        }

    def is_registered(self, directory: str) -> bool:
        """Return whether a directory is, or lies in, an attempt that the step registers."""
        names = directory.split("/")[: paths.ATTEMPT_DEPTH]
        if len(names) < paths.ATTEMPT_DEPTH:
            return False
        _, query, stage, map_task, attempt = names
        number = paths.parse_number(map_task)
        registered = None if number is None else self.registered.get(number)
        return (query, stage, attempt) == (str(self.query), str(self.stage), str(registered))

    def is_stale(self, directory: str) -> bool:
        """Return whether a directory is, or lies in, an attempt that the step does not register."""
        return paths.is_in_attempt(directory) and not self.is_registered(directory)


def _registered(value: Any) -> Registered:
    if isinstance(value, Registered):
        return value
    return Registered(_run(run) for run in value)


def _run(run: Any) -> Run:
    first, last, attempt = (int(number) for number in run)
    return first, last, attempt


@dataclass(frozen=True)
class StepRecord(JsonRecord):
    """One entry of the step log. `base` is the first step of the snapshot that ends here."""

    step: int
    version: int
    base: int
    body: StepBody

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StepRecord:
        record = super().from_document(document)
        body = StepBody.from_document(document["body"])
        extends = body.mode == "append" and record.step > 1
        latest_base = record.step - 1 if extends else record.step
        if not 1 <= record.base <= latest_base:
            raise ValueError(f"step {record.step} cannot begin at step {record.base}")
        return replace(record, body=body)

    @classmethod
    def following(cls, last: StepRecord | None, body: StepBody) -> StepRecord:
        """Create the next entry of the log: an append extends the version, a replace begins one."""
        number = last.step + 1 if last else 1
        if last is None or body.mode == "replace":
            return cls(number, last.version + 1 if last else 1, number, body)
        return cls(number, last.version, last.base, body)


@dataclass(frozen=True)
class NewestRecord(JsonRecord):
    """The step at which the search for the newest step begins. The record may be out of date."""

    step: int
