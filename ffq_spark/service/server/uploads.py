"""Receive the batches of uploads. Nothing computes with a batch before all of it is validated."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadRequest, CorruptPart
from ffq_spark.exchange.compute.plain_size import plain_size
from ffq_spark.exchange.read.decode import validate
from ffq_spark.options import ServeOptions
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.calls import refuse_large
from ffq_spark.service.wire.messages import Done

logger = logging.getLogger("ffq_spark.service")


class Uploads:
    """Check the messages of uploads against the service's limits, and count their rows."""

    def __init__(self, options: ServeOptions, activity: Activity) -> None:
        self._options = options
        self._activity = activity

    def receive(self, reader: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of an upload; raise BadRequest if it was cut off."""
        rows, done = 0, None
        for chunk in _decoded(reader):
            batch = chunk.data
            if chunk.app_metadata is not None:
                metadata = chunk.app_metadata.to_pybytes()
                refuse_large(metadata, self._options.max_request_bytes)
                done = Done.decode(metadata)
            if batch is None:
                continue
            self._check(batch)
            rows += batch.num_rows
            self._activity.calls.refuse_stopped()
            self._activity.totals.count_received(rows=batch.num_rows, size=batch.nbytes)
            yield batch
        if done is None or done.rows != rows:
            raise BadRequest(
                f"the upload ended after {rows} rows without a last message that counts them: "
                "it was cut off, repeat it"
            )

    def _check(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch whose buffers contradict its schema, or that is too large.

        Offsets outside a buffer would end the process, or store bytes of its memory. Computing the
        size of a batch reads offsets, so it comes after the validation. A batch may become much
        larger than its message when the server decodes it for the exchange.
        """
        try:
            validate(batch, "", full=True, any_bytes=False)
        except CorruptPart as error:
            raise BadRequest(error.message) from None
        size, limit = plain_size(batch), self._options.max_upload_bytes
        if size > limit:
            raise BadRequest(
                f"batch of {size} bytes exceeds the limit of {limit} (option maxUploadBytes)"
            )


def _decoded(reader: Any) -> Iterator[Any]:
    """Yield the messages of an upload; raise BadRequest for bytes that are not Arrow."""
    while True:
        try:
            chunk = next(reader)
        except StopIteration:
            return
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            # The message of the error may quote bytes of the upload.
            logger.info("an upload ended: %s", error)
            kind = type(error).__name__
            raise BadRequest(f"the upload is not an Arrow stream, or was cut off: {kind}") from None
        yield chunk
