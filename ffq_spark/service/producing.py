"""Producers outside Spark: they begin a query, upload or register map outputs, seal the step."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadRequest, Forbidden
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.format import manifest
from ffq_spark.options import ServeOptions
from ffq_spark.service.roots import Roots
from ffq_spark.service.wire import Attempt, Message

# What a producer may decide. The rest is the server's own, or Spark's.
_OPTIONS = frozenset(
    {
        *("keys", "partitions", "hash", "compression", "layout", "payload", "weightcolumn"),
        *("sortby", "statistics", "query", "stage"),
        *("streamid", "batch", "streamrun", "onmismatch", "takeover"),
    }
)


@dataclass(frozen=True)
class BeginQuery(Message):
    """Open a query: the columns of its rows (an Arrow schema in base64) and options of a write."""

    exchange: str
    schema: str
    mode: str = "append"
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisterMapOutput(Message):
    """Register an attempt that was written to storage directly, after all of it was checked."""

    exchange: str
    query: int
    map_task: int
    attempt: int


@dataclass(frozen=True)
class CommitQuery(Message):
    """Seal the step: map tasks 0 to `map_tasks - 1`, of each the newest registered attempt."""

    exchange: str
    query: int
    map_tasks: int


@dataclass(frozen=True)
class AbortQuery(Message):
    """End a query; nothing of it becomes visible."""

    exchange: str
    query: int
    reason: str = "aborted by its producer"


class Producing:
    """Writes for callers, if the service allows it at all."""

    def __init__(self, roots: Roots, options: ServeOptions) -> None:
        self._roots = roots
        self._options = options

    def begin(self, body: BeginQuery) -> dict[str, Any]:
        """Open a query."""
        self._refuse_read_only()
        strange = [name for name in body.options if name.lower() not in _OPTIONS]
        if strange:
            raise BadRequest(f"a producer may not set {strange[0]!r}")
        upload = SharedWrite.begin(
            self._roots.store(body.exchange),
            _schema(body.schema),
            body.options,
            mode=body.mode,
            lease_seconds=self._options.lease_seconds,
        )
        return {"query": upload.query, "lease_seconds": upload.lease_seconds}

    def put(
        self, place: Attempt, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> dict[str, Any]:
        """Write and register one attempt."""
        upload = self._open(place.exchange, place.query)
        return _told(upload.put(place.map_task, batches, place.attempt))

    def register(self, body: RegisterMapOutput) -> dict[str, Any]:
        """Register an attempt that lies on storage."""
        upload = self._open(body.exchange, body.query)
        return _told(upload.register(body.map_task, body.attempt))

    def commit(self, body: CommitQuery) -> dict[str, Any]:
        """Seal the step."""
        step = self._open(body.exchange, body.query).commit(body.map_tasks)
        if step is None:
            return {"step": None, "rows": 0, "bytes": 0}
        return {"step": step.step, "rows": step.body.rows, "bytes": step.body.bytes}

    def abort(self, body: AbortQuery) -> dict[str, Any]:
        """End a query without a step."""
        outcome = self._open(body.exchange, body.query).abort(body.reason)
        return {"outcome": outcome.outcome.value, "message": outcome.message}

    def beat(self, exchange: str, query: int) -> None:
        """Say that a producer's query is alive."""
        self._open(exchange, query).beat()

    def _open(self, exchange: str, query: int) -> SharedWrite:
        self._refuse_read_only()
        store = self._roots.store(exchange)
        return SharedWrite.open(store, query, buffer_bytes=self._options.write_buffer_bytes)

    def _refuse_read_only(self) -> None:
        if not self._options.writable:
            raise Forbidden("the service only reads", option="writable")


def _schema(text: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        # Names are decoded only when they are asked for.
        list(schema.names)
        return schema
    except (ValueError, OSError, pa.ArrowException):
        raise BadRequest("`schema` is no Arrow schema in base64") from None


def _told(output: AttemptOutput) -> dict[str, Any]:
    table = manifest.decode(output.manifest, output.id.output)
    totals = {name: sum(table[name].to_pylist()) for name in ("rows", "bytes")}
    return {"map_task": output.id.map_task, "attempt": output.id.attempt, **totals}
