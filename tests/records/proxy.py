"""A TCP proxy that delays what it forwards, as a network between two machines would.

    python -m tests.records.proxy PORT SECONDS

prints its own port, forwards connections to PORT of this host, and delays what a client sends by
SECONDS. Data that follow each other are delayed alike: the delay is of latency, not of throughput.
It is a process of its own, so that it does not wait for the interpreter of the program it serves.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.records.servers import HOST, start_process


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """Run a proxy of a port; yield its own port."""
    command = [sys.executable, "-m", "tests.records.proxy", str(port), str(seconds)]
    with start_process(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def forward(source: socket.socket, target: socket.socket, delay: float) -> None:
    """Forward what one side sends until it closes."""
    chunks: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=deliver, args=(target, chunks), daemon=True).start()
    data = b"more"
    while data:
        with suppress(OSError):
            data = b""
            data = source.recv(2**16)
        chunks.put((time.monotonic() + delay, data))


def deliver(target: socket.socket, chunks: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    """Send each chunk when it is due."""
    while True:
        due, data = chunks.get()
        time.sleep(max(due - time.monotonic(), 0))
        with suppress(OSError):
            if not data:
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)


def main(port: int, delay: float) -> None:
    """Forward connections for ever."""
    listening = socket.create_server((HOST, 0), backlog=100)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        client, _ = listening.accept()
        try:
            server = socket.create_connection((HOST, port))
        except OSError:
            client.close()
            continue
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=forward, args=(client, server, delay), daemon=True).start()
        threading.Thread(target=forward, args=(server, client, 0.0), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
