"""SIGTERM and Ctrl-C, acted on whichever thread the kernel gives them to.

CPython runs a signal's handler in the main thread, once that thread runs Python again. A signal
that a thread of gRPC takes does not interrupt the main thread's wait. So the interpreter's own
C handler, which runs in any thread, writes to a socket that a thread of ours reads. No signal is
blocked, so child processes inherit nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import threading

from ffq_spark.cli.context import FINDING

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def stop_requested() -> threading.Event:
    """Return an event that the first SIGTERM or SIGINT sets; a second one ends the process."""
    requested = threading.Event()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    for number in _STOPPING:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    # The thread keeps the sender open.
    threading.Thread(target=_watch, args=(receiver, sender, requested), daemon=True).start()
    return requested


def _watch(receiver: socket.socket, sender: socket.socket, requested: threading.Event) -> None:
    while signals := receiver.recv(1):
        if signals[0] not in _STOPPING:
            continue
        if requested.is_set():
            os._exit(FINDING)
        requested.set()
