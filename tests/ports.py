"""Ports for a test's jobs."""

import contextlib
import random
import socket


def free_port():
    """Below those that the system gives to whoever asks for any, so that nobody gets it meanwhile."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as end:
            end.bind(("127.0.0.1", port))
            return port
