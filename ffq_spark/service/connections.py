"""The TCP connections of a server's callers, which gRPC does not show to Python."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_OPEN_FILES = "/dev/fd"


def cut_connections(port: int) -> int:
    """Shut down all connections that callers have to a port of this process; return their number.

    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     port = server.getsockname()[1]
    ...     with socket.create_connection(("127.0.0.1", port)) as caller, server.accept()[0]:
    ...         cut_connections(port), caller.recv(1)
    (1, b'')
    """
    count = 0
    for connection in _sockets():
        with connection, contextlib.suppress(OSError):
            # A listening socket has no peer, and raises.
            if connection.getpeername() and connection.getsockname()[1] == port:
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _sockets() -> Iterator[socket.socket]:
    """Duplicates of the process's TCP sockets: a number may be closed and used again meanwhile."""
    for name in os.listdir(_OPEN_FILES) if os.path.isdir(_OPEN_FILES) else ():
        with contextlib.suppress(OSError):
            copy = os.dup(int(name))
            try:
                found = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            if found.family in (socket.AF_INET, socket.AF_INET6):
                yield found
            else:
                found.close()
