"""A TCP proxy that delays what a client sends, as a network between two machines would.

    python -m spliter_experiments.ahead.proxy HOST PORT SECONDS

prints its own port. Data that follow each other are delayed alike: the delay is of latency, not of
throughput. It is a process of its own, so that it does not wait for the interpreter of the program
it serves.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

HOST: Final = "127.0.0.1"


@contextmanager
def delayed(port: int, seconds: float, host: str = HOST) -> Iterator[int]:
    """Run a proxy of a port; yield its own port."""
    with started_module(__name__, host, port, seconds) as found:
        yield found


@contextmanager
def started_module(module: str, *arguments: object) -> Iterator[int]:
    """Run a module that prints its port; yield that."""
    command: Sequence[str] = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def print_port(listening: Any) -> None:
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()


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


def main(host: str, port: int, delay: float) -> None:
    """Forward connections for ever."""
    listening = socket.create_server((HOST, 0), backlog=100)
    print_port(listening)
    while True:
        client, _ = listening.accept()
        try:
            server = socket.create_connection((host, port))
        except OSError:
            client.close()
            continue
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=forward, args=(client, server, delay), daemon=True).start()
        threading.Thread(target=forward, args=(server, client, 0.0), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
