"""Only the connections of one port are cut, and listening sockets stay open."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from ffq_spark.service.server.tcp_connections import cut_connections


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A listening socket, and the caller's end of a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = socket.create_connection(server.getsockname()[:2], timeout=10)
        with caller, server.accept()[0]:
            yield server, caller


def test_connections_to_other_ports_are_left_alone() -> None:
    with connected() as (server, caller), connected() as (_, other):
        assert cut_connections(server.getsockname()[1]) == 1
        assert caller.recv(1) == b""
        other.settimeout(0.05)
        with pytest.raises(TimeoutError):
            other.recv(1)


def test_the_port_still_listens() -> None:
    with connected() as (server, _):
        address = server.getsockname()[:2]
        cut_connections(address[1])
        with socket.create_connection(address, timeout=10), server.accept()[0]:
            pass
