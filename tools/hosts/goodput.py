"""What a shaped link carries: TCP payload in both directions at once; and what that costs.

As a program, one end of it: goodput.py listen|connect ADDRESS SECONDS, on two hosts. Prints bytes per
second received, and CPU seconds of this end per byte received.
"""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Goodput:
    bytes_per_s: float  # of payload, the slower direction, while both are busy
    cpu_s_per_gb: float  # of both ends, for what crossed the link; sockets and nothing else


def measure(listener, connector, seconds=1.5):
    script = [sys.executable, pathlib.Path(__file__).resolve()]
    ends = [listener.start(script + ["listen", listener.address, seconds], stdout=subprocess.PIPE,
                           text=True),
            connector.start(script + ["connect", listener.address, seconds],
                            stdout=subprocess.PIPE, text=True)]
    rates, costs = zip(*(json.loads(end.communicate(timeout=60)[0]) for end in ends))
    return Goodput(min(rates), 1e9 * sum(costs) / len(costs))


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
    got, began, last, cpu = 0, None, start, 0.0
    while count := end.recv_into(buffer):
        last = time.monotonic()
        if began is None:
            if last - start > WARM_SECONDS:
                began, cpu = last, time.process_time()
        else:
            got += count
    cpu = time.process_time() - cpu
    sender.join()
    print(json.dumps([got / (last - began), cpu / got]))


if __name__ == "__main__":
    main()
