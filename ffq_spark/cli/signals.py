"""Handling of SIGTERM and Ctrl-C in a process with threads of gRPC.

CPython runs a signal's handler in the main thread, once that thread runs Python again. If the
kernel delivers a signal to a thread of gRPC, the main thread's wait is not interrupted. Therefore
the interpreter's C handler, which runs in any thread, writes to a socket that a watching thread
reads. No signal is blocked, because child processes would inherit that.
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
    # The thread holds the sender, which would be closed otherwise.
    threading.Thread(target=_watch, args=(receiver, sender, requested), daemon=True).start()
    return requested


def _watch(receiver: socket.socket, sender: socket.socket, requested: threading.Event) -> None:
    while signals := receiver.recv(1):
        if signals[0] not in _STOPPING:
            continue
        if requested.is_set():
            os._exit(FINDING)
        requested.set()
