"""Receive the batches of uploads. Nothing computes with a batch before all of it is validated."""

from __future__ import annotations

import logging
import queue
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadRequest, CorruptPart, Unavailable
from ffq_spark.exchange.compute.plain_size import plain_size
from ffq_spark.exchange.read.decode import validate
from ffq_spark.format.schemas import decode_names
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

    @contextmanager
    def incoming(self, reader: Any) -> Iterator[IncomingMessages]:
        """Receive the messages of an upload while the block runs.

        After an error this waits for the caller, who may neither send nor disconnect for long.
        """
        messages = IncomingMessages(reader, self._options.max_idle)
        try:
            yield messages
        except BaseException as error:
            # The error would keep the rows in memory that the write has buffered.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            messages.close()

    def batches(self, messages: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of an upload; raise BadRequest if it was cut off."""
        rows, done = 0, None
        for chunk in messages:
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
            decode_names(batch.schema)
            validate(batch, "", full=True, any_bytes=False)
        except UnicodeDecodeError:
            raise BadRequest("a name in the upload is not valid UTF-8") from None
        except CorruptPart as error:
            raise BadRequest(error.message) from None
        size, limit = plain_size(batch), self._options.max_upload_bytes
        if size > limit:
            raise BadRequest(
                f"batch of {size} bytes exceeds the limit of {limit} (option maxUploadBytes)"
            )


class IncomingMessages:
    """The messages of an upload, each received when it is asked for, by a thread of its own.

    Nothing can interrupt a thread that waits for a message, and the call must not return before it.
    So the call's own thread runs the write, and ends it when a message takes too long.
    """

    def __init__(self, reader: Any, idle_seconds: float) -> None:
        self._reader = reader
        self._idle_seconds = idle_seconds
        self._wanted = threading.Semaphore(0)
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._receive, name="ffq-upload", daemon=True)
        self._thread.start()

    def __iter__(self) -> IncomingMessages:
        return self

    def __next__(self) -> Any:
        self._wanted.release()
        try:
            message = self._received.get(timeout=self._idle_seconds)
        except queue.Empty:
            raise Unavailable(
                f"nothing arrived for {self._idle_seconds} s (option maxIdle): repeat the upload"
            ) from None
        if isinstance(message, (flight.FlightError, pa.ArrowException, OSError)):
            # The message of the error may quote bytes of the upload.
            logger.info("an upload ended: %s", message)
            kind = type(message).__name__
            raise BadRequest(f"the upload is not an Arrow stream, or was cut off: {kind}")
        if isinstance(message, BaseException):
            raise message
        return message

    def close(self) -> None:
        """Wait until the thread has ended: with the message that it waits for, if it does."""
        self._closed = True
        self._wanted.release()
        self._thread.join()

    def _receive(self) -> None:
        while self._wanted.acquire() and not self._closed:
            try:
                self._received.put(next(self._reader))
            except BaseException as error:
                self._received.put(error)
                return
