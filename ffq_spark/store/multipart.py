"""Upload large files to S3 in parts of equal size, a few of them at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

PART_BYTES = 16 << 20
BLOCKS_AT_ONCE = 2
"""Files of up to this many blocks are written in one request, larger ones in parts."""
_PARTS_IN_FLIGHT = 4

Call = Callable[..., Any]
"""Calls a method of S3 by its name, with retries."""

Piece = TypeVar("Piece")


def blocks(pieces: Iterable[Any], size: int) -> Iterator[bytearray]:
    """Yield the pieces' bytes in blocks of `size` bytes; only the last may be smaller.

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


def chained(head: list[Piece], rest: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the head's pieces and then the rest; drop each piece of the head once it is yielded.

    >>> head = [b"a", b"b"]
    >>> [(piece, len(head)) for piece in chained(head, [b"c"])]
    [(b'a', 1), (b'b', 0), (b'c', 0)]
    """
    while head:
        yield head.pop(0)
    yield from rest


def upload(call: Call, place: dict[str, str], parts: Iterable[bytearray]) -> None:
    """Create one object from all parts; abort the upload if anything fails.

    If the answer to the creation of an upload is lost, the upload stays open without parts until
    gc aborts it.
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
    """Sends parts in a few threads; the caller waits while all of them are busy."""

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
        """Return each part's number and tag, which the completion of the upload needs."""
        return [future.result() for future in self._sent]

    def __enter__(self) -> _Sender:
        return self

    def __exit__(self, *_: object) -> None:
        # Wait for all requests: S3 would keep a part that arrives after the abort.
        self._pool.shutdown(wait=True)


def _complete(
    call: Call, place: dict[str, str], under_way: dict[str, str], sender: _Sender
) -> None:
    parts = {"Parts": sender.answers()}
    try:
        call("complete_multipart_upload", **under_way, MultipartUpload=parts)
    except FileNotFoundError:
        # If the answer to an earlier try was lost, the upload has become the object already.
        if call("head_object", **place)["ContentLength"] != sender.size:
            raise
