"""Write steps for producers outside Spark: begin, upload or register map outputs, commit."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ffq_spark.errors import (
    BadRequest,
    CommitUnknown,
    FfqError,
    FfqIoError,
    Forbidden,
    UnsupportedType,
)
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.format import manifest
from ffq_spark.format.schemas import decode_names
from ffq_spark.options import ServeOptions
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.wire.actions import (
    AbortQuery,
    BeginQuery,
    CommitQuery,
    Heartbeat,
    RegisterMapOutput,
)
from ffq_spark.service.wire.messages import Attempt

logger = logging.getLogger("ffq_spark.service")

# The write options that a producer may set. All others are set by the server, or by Spark.
_PRODUCER_OPTIONS = frozenset(
    {
        *("keys", "partitions", "hash", "compression", "layout", "payload", "weightcolumn"),
        *("sortby", "statistics", "query", "stage"),
        *("streamid", "batch", "streamrun", "onmismatch", "takeover"),
    }
)


class RemoteWrites:
    """The write actions, on the served roots, if the service is writable."""

    def __init__(self, roots: Roots, options: ServeOptions) -> None:
        self._roots = roots
        self._options = options

    def begin(self, body: BeginQuery) -> dict[str, Any]:
        """Begin a write."""
        self._require_writable()
        refused = [name for name in body.options if name.lower() not in _PRODUCER_OPTIONS]
        if refused:
            allowed = ", ".join(sorted(_PRODUCER_OPTIONS))
            raise BadRequest(f"producers may not set the option {refused[0]!r}, only {allowed}")
        write = SharedWrite.begin(
            self._roots.store_to_begin(body.exchange),
            _decode_schema(body.schema),
            body.options,
            mode=body.mode,
            lease_seconds=self._options.lease_seconds,
        )
        return {"query": write.query, "lease_seconds": write.lease_seconds}

    def put(self, target: Attempt, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Write and register one attempt."""
        write = self._open(target.exchange, target.query)
        try:
            return _summary(write.put(target.map_task, batches, target.attempt))
        except pa.ArrowNotImplementedError as error:
            raise UnsupportedType(f"Arrow cannot write these columns: {error}") from error

    def register(self, body: RegisterMapOutput) -> dict[str, Any]:
        """Validate and register an attempt that is already on storage."""
        write = self._open(body.exchange, body.query)
        return _summary(write.register(body.map_task, body.attempt))

    def commit(self, body: CommitQuery) -> dict[str, Any]:
        """Commit a write as a step; the step is None if the stream's batch is already committed.

        An earlier try may have succeeded whose answer was lost. So an error that does not say how
        the query has ended must not say that its rows are never visible.
        """
        try:
            write = self._open(body.exchange, body.query)
        except FfqIoError as error:
            raise CommitUnknown(f"query {body.query}: {error.message}", path=error.path) from error
        try:
            step = write.commit(body.map_tasks)
        except FfqError:
            raise
        except Exception as error:
            logger.exception("the commit of query %d failed", body.query)
            raise CommitUnknown(
                f"query {body.query}: internal error of the service: see the service's log"
            ) from error
        if step is None:
            return {"step": None, "rows": 0, "bytes": 0}
        return {"step": step.step, "rows": step.body.rows, "bytes": step.body.bytes}

    def abort(self, body: AbortQuery) -> dict[str, Any]:
        """Abort a write."""
        outcome = self._open(body.exchange, body.query).abort(body.reason)
        return {"outcome": outcome.outcome.value, "message": outcome.message}

    def heartbeat(self, body: Heartbeat) -> dict[str, Any]:
        """Renew the lease of a write that has not ended."""
        self._open(body.exchange, body.query).heartbeat()
        return {"accepted": True}

    def _open(self, exchange: str, query: int) -> SharedWrite:
        self._require_writable()
        store = self._roots.store(exchange)
        return SharedWrite.open(store, query, buffer_bytes=self._options.write_buffer_bytes)

    def _require_writable(self) -> None:
        if not self._options.writable:
            raise Forbidden("the service is read-only", option="writable")


def _decode_schema(text: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        decode_names(schema)
        return schema
    except (ValueError, OSError, pa.ArrowException):
        raise BadRequest("`schema` is not an Arrow schema in base64") from None


def _summary(output: AttemptOutput) -> dict[str, Any]:
    table = manifest.decode(output.manifest, output.id.output)
    totals = {name: sum(table[name].to_pylist()) for name in ("rows", "bytes")}
    return {"map_task": output.id.map_task, "attempt": output.id.attempt, **totals}
