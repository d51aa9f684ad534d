"""Commands, ports, environment and logs of the processes of an embedded dataClay.

There are three kinds: a key-value store with the Redis protocol, the metadata service, backends.
All listen on the loopback interface only, because dataClay unpickles what it receives without
authentication.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spliter_backends._shared.redis_store import HOST
from spliter_backends.dataclay.cluster import watchdog

LOG_LINES = 25

# dataClay's number of concurrent active methods is the size of a pool made at import: a multiple of
# the cores, which no setting lowers. The pool starts no thread before its first use.
_BACKEND_WITH_THREADS = """
import concurrent.futures, runpy, sys
import dataclay.event_loop
dataclay.event_loop.io_bound_executor = concurrent.futures.ThreadPoolExecutor(int(sys.argv[1]))
runpy.run_module("dataclay.backend", run_name="__main__")
"""


class Port:
    """A free port of the loopback interface, reserved until it is released.

    The system also assigns free ports to outgoing connections, even between the moment a port was
    found free and the moment a service listens on it. On Linux, a bound socket that does not listen
    prevents this, but allows services to listen that share addresses, as Redis and gRPC do. On
    other systems the port is released immediately.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((HOST, 0))
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()

    def release(self) -> None:
        """Free the port for other processes."""
        self._socket.close()


@dataclass(frozen=True)
class Service:
    """A running process, and the file of its standard output and error."""

    name: str
    process: subprocess.Popen[bytes]
    port: Port
    log: Path

    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join(lines[-LOG_LINES:]) or "(it wrote nothing)"


def start(
    name: str, command: Sequence[str], port: Port, folder: Path, group: int, env: Mapping[str, str]
) -> Service:
    """Start a process in the group, with its log in the folder.

    The folder is also its working directory: dataClay reads a file ``.env`` from it, and must not
    find the user's.
    """
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=group,
        )
    return Service(name, process, port, log)


def start_watchdog(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that ends the others if this one dies; its pid is their group."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, str(folder), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )


def stop_watchdog(watchdog: subprocess.Popen[bytes], timeout: float) -> None:
    """Notify the watchdog that everything is cleaned up, so that it ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        watchdog.communicate(b".", timeout)


def environment(python_path: Sequence[str | Path], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a service: this process's, without settings of another dataClay.

    Services import from `python_path`, then from where this process does, so that modules
    importable here (classes of persistent objects, modules of tasks) are importable there too.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATACLAY_", "DC_"))
    }
    here = [folder or os.getcwd() for folder in sys.path]  # noqa: PTH109 (a string is wanted)
    path = os.pathsep.join([*map(str, python_path), *here])
    # As Dask does for its workers: several processes on one machine would slow each other down
    # with a thread per core each in every matrix product.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**threads, **own, "PYTHONPATH": path, **settings}


def metadata_command() -> list[str]:
    """Return the command of the metadata service."""
    # -P: do not import from the working directory.
    return [sys.executable, "-P", "-m", "dataclay.metadata"]


def backend_command(threads: int | None) -> list[str]:
    """Return the command of a backend with a number of concurrent methods, or the default."""
    if threads is None:
        return [sys.executable, "-P", "-m", "dataclay.backend"]
    return [sys.executable, "-P", "-c", _BACKEND_WITH_THREADS, str(threads)]
