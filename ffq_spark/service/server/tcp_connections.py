"""Shut down the TCP connections of a server's callers, which gRPC does not expose to Python."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator

_OPEN_FILES = "/dev/fd"


def cut_connections(port: int) -> int:
    """Shut down all connections to a listening port of this process; return their number.

    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     port = server.getsockname()[1]
    ...     with socket.create_connection(("127.0.0.1", port)) as caller, server.accept()[0]:
    ...         cut_connections(port), caller.recv(1)
    (1, b'')
    """
    count = 0
    for connection in _tcp_sockets():
        with connection, contextlib.suppress(OSError):
            # `getpeername` raises for a listening socket.
            if connection.getpeername() and connection.getsockname()[1] == port:
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yield duplicates of this process's TCP sockets.

    Duplicates, because gRPC may close a descriptor meanwhile, and the system use its number again.
    """
    for name in os.listdir(_OPEN_FILES) if os.path.isdir(_OPEN_FILES) else ():
        with contextlib.suppress(OSError):
            # Never duplicate a file: when the duplicate is closed, the kernel drops all locks that
            # this process holds on the file.
            if not _is_socket(int(name)):
                continue
            copy = os.dup(int(name))
            if not _is_socket(copy):
                # The number became that of a file in between. Leave the duplicate open.
                continue
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                yield connection
            else:
                connection.close()


def _is_socket(descriptor: int) -> bool:
    return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
