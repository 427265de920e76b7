"""What a shaped link carries: TCP payload in both directions at once.

As a program, one end of it: goodput.py listen|connect ADDRESS SECONDS, on two hosts. Prints bytes per
second received.
"""

import json
import pathlib
import socket
import subprocess
import sys
import threading
import time

PORT = 7702
PIECE = 1 << 18
WARM_SECONDS = 0.3  # TCP's start, and the shaper's bucket


def measure(listener, connector, seconds=1.5):
    """Bytes per second of payload, the slower direction, while both are busy."""
    script = [sys.executable, pathlib.Path(__file__).resolve()]
    ends = [listener.start(script + ["listen", listener.address, seconds], stdout=subprocess.PIPE,
                           text=True),
            connector.start(script + ["connect", listener.address, seconds],
                            stdout=subprocess.PIPE, text=True)]
    return min(json.loads(end.communicate(timeout=60)[0]) for end in ends)


def connect(role, address):
    if role == "listen":
        with socket.create_server((address, PORT)) as server:
            return server.accept()[0]
    for _ in range(200):
        try:
            return socket.create_connection((address, PORT))
        except OSError:
            time.sleep(0.02)
    raise SystemExit("nobody listens")


def send(end, until):
    piece = bytes(PIECE)
    while time.monotonic() < until:
        end.sendall(piece)
    end.shutdown(socket.SHUT_WR)


def main():
    role, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    end = connect(role, address)
    start = time.monotonic()
    sender = threading.Thread(target=send, args=(end, start + WARM_SECONDS + seconds))
    sender.start()
    buffer = bytearray(PIECE)
    got, began, last = 0, None, start
    while count := end.recv_into(buffer):
        last = time.monotonic()
        if began is None:
            if last - start > WARM_SECONDS:
                began = last
        else:
            got += count
    sender.join()
    print(json.dumps(got / (last - began)))


if __name__ == "__main__":
    main()
