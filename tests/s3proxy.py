"""A proxy in front of an S3 server that counts requests and injects scripted faults.

It passes requests on byte for byte, including the Host header: clients sign the header, and the
server verifies the signature with the host name of the request.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

_CHUNK = 64 << 10
_TIMEOUT_SECONDS = 120
_ANSWERS = {
    "403": ("403 Forbidden", "AccessDenied"),
    "500": ("500 Internal Server Error", "InternalError"),
    "503": ("503 Slow Down", "SlowDown"),
    "429": ("429 Too Many Requests", "TooManyRequests"),
}

KINDS = ("500", "503", "429", "slow", "cut", "drop", "reset", "lost")
"""Kinds of faults that a retry overcomes; a retry does not overcome `403`.

`drop` and `reset` end the connection before the request is passed on, `lost` afterwards.
"""


@dataclass(frozen=True)
class Request:
    """A client's request."""

    method: str
    path: str
    query: str = ""
    range: str = ""

    @property
    def operation(self) -> str:
        """Name of the S3 operation, in one word.

        >>> Request("GET", "/b", "list-type=2").operation, Request("GET", "/b/k").operation
        ('LIST', 'GET')
        """
        names = parse_qs(self.query, keep_blank_values=True)
        is_bucket = self.path.strip("/").count("/") == 0
        if self.method == "GET" and "uploads" in names:
            return "LIST_UPLOADS"
        if self.method == "GET" and is_bucket:
            return "LIST"
        if self.method == "POST":
            return next(
                (kind for name, kind in _POSTS.items() if name in names),
                "POST",
            )
        if "uploadId" in names:
            return {"PUT": "PART", "DELETE": "ABORT"}.get(self.method, self.method)
        return self.method


_POSTS = {"delete": "DELETE_MANY", "uploads": "CREATE_UPLOAD", "uploadId": "COMPLETE"}


@dataclass(frozen=True)
class Fault:
    """A fault for the requests that `when` selects, at most `count` of them.

    `share` is the fraction of these requests that fail, drawn at random from `seed`. A `cut` comes
    after half of the body; a `slow` body arrives at `bytes_per_second`.
    """

    kind: str
    when: Callable[[Request], bool] = lambda request: True
    count: int | None = None
    share: float = 1.0
    seed: int = 0
    bytes_per_second: int = 1 << 20


def on(*operations: str) -> Callable[[Request], bool]:
    """Return a condition that selects requests by their operation.

    >>> on("PUT", "PART")(Request("PUT", "/b/k"))
    True
    """
    return lambda request: request.operation in operations


class _Armed:
    """An active fault, with the number of requests that it may still fail."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.left = fault.count
        self.random = random.Random(fault.seed)

    def strikes(self, request: Request) -> bool:
        if self.left == 0 or not self.fault.when(request):
            return False
        if self.fault.share < 1.0 and self.random.random() >= self.fault.share:
            return False
        if self.left is not None:
            self.left -= 1
        return True


class S3Proxy:
    """A proxy on its own loopback port, with TLS if a TLS context is passed."""

    def __init__(self, upstream_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._upstream = ("127.0.0.1", upstream_port)
        self._tls = tls
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._armed: list[_Armed] = []
        self._struck: Counter[str] = Counter()
        self._listener = socket.socket()
        self._open: set[socket.socket] = set()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> S3Proxy:
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # --- requests and faults ---------------------------------------------------------------------

    @property
    def requests(self) -> list[Request]:
        """Return all requests since the last `forget`, in order of arrival."""
        with self._lock:
            return list(self._requests)

    def counts(self) -> dict[str, int]:
        """Return the number of requests by operation."""
        return dict(Counter(request.operation for request in self.requests))

    def struck(self) -> dict[str, int]:
        """Return the number of injected faults by kind."""
        with self._lock:
            return dict(self._struck)

    def forget(self) -> None:
        """Reset the requests and the counts."""
        with self._lock:
            self._requests.clear()
            self._struck.clear()

    @contextlib.contextmanager
    def faults(self, *faults: Fault) -> Iterator[None]:
        """Inject faults while the context is open; the first that selects a request applies."""
        with self._lock:
            self._armed = [_Armed(fault) for fault in faults]
        try:
            yield
        finally:
            with self._lock:
                self._armed = []

    # --- connections ------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError))
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.socket()
            for connection in (client, server):
                stack.enter_context(connection)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(_TIMEOUT_SECONDS)
                with self._lock:
                    self._open.add(connection)
                stack.callback(self._open.discard, connection)
            server.connect(self._upstream)
            questions = stack.enter_context(client.makefile("rb"))
            answers = stack.enter_context(server.makefile("rb"))
            while self._exchange(client, server, questions, answers):
                pass

    def _exchange(
        self,
        client: socket.socket,
        server: socket.socket,
        questions: BinaryIO,
        answers: BinaryIO,
    ) -> bool:
        """Pass on one request and its response; return whether the connection stays open."""
        head = _read_head(questions)
        if head is None:
            return False
        method, target, _ = head.first.split(" ", 2)
        place = urlsplit(target)
        request = Request(method, unquote(place.path), place.query, head.get("range"))
        if head.get("expect").lower() == "100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = head.without("expect")
        body = b"".join(_body(questions, head, is_answer=False))
        fault = self._note(request)
        kind = fault.kind if fault else ""
        if kind in _ANSWERS:
            client.sendall(_error(*_ANSWERS[kind], with_body=method != "HEAD"))
            return True
        if kind == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if kind in ("drop", "reset"):
            return False
        server.sendall(head.raw + body)
        answer = _read_head(answers)
        if answer is None:
            return False
        bodiless = method == "HEAD" or answer.status in (204, 304)
        pieces = iter(()) if bodiless else _body(answers, answer, is_answer=True)
        if kind == "lost":
            for _ in pieces:
                pass
            return False
        client.sendall(answer.raw)
        if fault and kind == "slow":
            pieces = _slowly(pieces, fault.bytes_per_second)
        if kind == "cut":
            pieces = _half(pieces, answer.length)
        for piece in pieces:
            client.sendall(piece)
        closes = "close" in (head.get("connection").lower(), answer.get("connection").lower())
        return kind != "cut" and not closes

    def _note(self, request: Request) -> Fault | None:
        with self._lock:
            self._requests.append(request)
            armed_fault = next((armed for armed in self._armed if armed.strikes(request)), None)
            if armed_fault is None:
                return None
            self._struck[armed_fault.fault.kind] += 1
            return armed_fault.fault


# --- HTTP -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Head:
    """The first line and the headers of a message, exactly as received."""

    lines: tuple[bytes, ...]

    @property
    def raw(self) -> bytes:
        return b"".join(self.lines) + b"\r\n"

    @property
    def first(self) -> str:
        return self.lines[0].decode("latin-1").strip()

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    @property
    def length(self) -> int:
        return int(self.get("content-length") or 0)

    def get(self, name: str) -> str:
        for line in self.lines[1:]:
            header, _, value = line.decode("latin-1").partition(":")
            if header.strip().lower() == name:
                return value.strip()
        return ""

    def without(self, name: str) -> _Head:
        wanted = f"{name}:".encode()
        return _Head(tuple(line for line in self.lines if not line.lower().startswith(wanted)))


def _read_head(source: BinaryIO) -> _Head | None:
    lines = []
    while line := source.readline():
        if line == b"\r\n":
            return _Head(tuple(lines))
        lines.append(line)
    return None


def _body(source: BinaryIO, head: _Head, *, is_answer: bool) -> Iterator[bytes]:
    """Yield the body's bytes as they are on the wire, including chunk headers."""
    if "chunked" in head.get("transfer-encoding").lower():
        while True:
            mark = source.readline()
            size = int(mark.split(b";")[0], 16)
            yield mark + source.read(size + 2)
            if size == 0:
                return
    left = head.length
    while left > 0 and (piece := source.read(min(left, _CHUNK))):
        left -= len(piece)
        yield piece
    if is_answer and not head.get("content-length"):
        while piece := source.read(_CHUNK):
            yield piece


def _slowly(pieces: Iterator[bytes], bytes_per_second: int) -> Iterator[bytes]:
    step = max(1, bytes_per_second // 20)
    for piece in pieces:
        for start in range(0, len(piece), step):
            time.sleep(len(piece[start : start + step]) / bytes_per_second)
            yield piece[start : start + step]


def _half(pieces: Iterator[bytes], length: int) -> Iterator[bytes]:
    left = length // 2
    for piece in pieces:
        if left > 0:
            yield piece[:left]
        left -= len(piece)


def _error(status: str, code: str, *, with_body: bool) -> bytes:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
        f"<Message>Please reduce your request rate.</Message></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + (text if with_body else b"")
