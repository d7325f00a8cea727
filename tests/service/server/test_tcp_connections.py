"""Only the connections of one port are cut, and listening sockets stay open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(3)
"""


def is_locked(path: Path) -> bool:
    """Return whether another process cannot lock a file."""
    code = subprocess.run([sys.executable, "-c", TRY_TO_LOCK, str(path)], check=False).returncode
    assert code in (0, 3)
    return code == 3


def test_locks_of_the_process_are_kept(tmp_path: Path) -> None:
    """The kernel drops all locks on a file when any descriptor of it is closed, such as a copy."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("r+b") as file, connected() as (server, _):
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert is_locked(path)
        assert cut_connections(server.getsockname()[1]) == 1
        assert is_locked(path)


def test_a_file_that_takes_the_number_of_a_closed_socket_keeps_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    copies = []
    with path.open("r+b") as file, connected() as (server, _):
        fcntl.lockf(file, fcntl.LOCK_EX)
        copy = os.dup

        def reused(descriptor: int) -> int:
            copies.append(copy(file.fileno()))
            return copies[-1]

        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", reused)
            assert cut_connections(server.getsockname()[1]) == 0
        assert copies and is_locked(path)
    for descriptor in copies:
        os.close(descriptor)


def test_no_descriptor_is_left_open() -> None:
    with connected() as (server, _), open(os.devnull), socket.socket(socket.AF_UNIX):
        before = sorted(os.listdir("/dev/fd"))
        cut_connections(server.getsockname()[1])
        assert sorted(os.listdir("/dev/fd")) == before
