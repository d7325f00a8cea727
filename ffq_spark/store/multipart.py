"""Large files to S3: parts of one size, a few in flight, all or nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

PART_BYTES = 16 << 20
BLOCKS_AT_ONCE = 2
"""A file of so many blocks is written in one request, a larger one in parts."""
_PARTS_IN_FLIGHT = 4

Call = Callable[..., Any]
"""A method of S3 by its name, retried."""


def blocks(pieces: Iterable[Any], size: int) -> Iterator[bytearray]:
    """The pieces' bytes in blocks of one size; only the last may be smaller.

    >>> [bytes(block) for block in blocks([b"abc", b"", b"defgh"], 3)]
    [b'abc', b'def', b'gh']
    """
    block = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while view:
            taken = view[: size - len(block)]
            block += taken
            view = view[len(taken) :]
            if len(block) == size:
                yield block
                block = bytearray()
    if block:
        yield block


def upload(call: Call, place: dict[str, str], parts: Iterable[bytearray]) -> None:
    """Make one object of all parts; if that fails, nothing of it stays.

    An upload whose creation was answered to nobody holds no bytes; cleanup removes it.
    """
    under_way = {**place, "UploadId": call("create_multipart_upload", **place)["UploadId"]}
    try:
        with _Sender(call, under_way) as sender:
            for part in parts:
                sender.send(part)
        _complete(call, place, under_way, sender)
    except BaseException:
        with contextlib.suppress(Exception):
            call("abort_multipart_upload", **under_way)
        raise


class _Sender:
    """Sends parts by a few threads; the caller waits while all of them are busy."""

    def __init__(self, call: Call, under_way: dict[str, str]) -> None:
        self._call = call
        self._under_way = under_way
        self._pool = ThreadPoolExecutor(_PARTS_IN_FLIGHT, thread_name_prefix="ffq-part")
        self._free = threading.Semaphore(_PARTS_IN_FLIGHT)
        self._sent: list[Future[dict[str, Any]]] = []
        self._failed = threading.Event()
        self.size = 0

    def send(self, part: bytearray) -> None:
        self._free.acquire()
        if self._failed.is_set():
            self.answers()
        self.size += len(part)
        self._sent.append(self._pool.submit(self._send, len(self._sent) + 1, part))

    def _send(self, number: int, part: bytearray) -> dict[str, Any]:
        try:
            answer = self._call("upload_part", **self._under_way, PartNumber=number, Body=part)
        except BaseException:
            self._failed.set()
            raise
        finally:
            self._free.release()
        sums = {name: answer[name] for name in answer if name.startswith("Checksum")}
        return {"PartNumber": number, "ETag": answer["ETag"], **sums}

    def answers(self) -> list[dict[str, Any]]:
        """What completes the upload: each part's number and tag."""
        return [future.result() for future in self._sent]

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, *_: object) -> None:
        # A part that arrives after the upload was given up would stay for ever.
        self._pool.shutdown(wait=True)


def _complete(
    call: Call, place: dict[str, str], under_way: dict[str, str], sender: _Sender
) -> None:
    parts = {"Parts": sender.answers()}
    try:
        call("complete_multipart_upload", **under_way, MultipartUpload=parts)
    except FileNotFoundError:
        # An earlier try's answer was lost: the upload is gone because it is the object now.
        if call("head_object", **place)["ContentLength"] != sender.size:
            raise
