"""The processes of an embedded dataClay: what to run, on which port, and what went wrong.

Three kinds: a key-value store that speaks the Redis protocol, the metadata service, backends.
All listen on the loopback interface only: dataClay unpickles what it is sent and asks nobody who
they are.
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
from spliter_backends.dataclay.cluster import guard as dataclay_guard

LOG_LINES = 25

# dataClay runs as many active methods at once as a pool made at import has threads: a multiple of
# the cores, which no setting of it can lower. The pool starts no thread before its first use.
_BACKEND_WITH_THREADS = """
import concurrent.futures, runpy, sys
import dataclay.event_loop
dataclay.event_loop.io_bound_executor = concurrent.futures.ThreadPoolExecutor(int(sys.argv[1]))
runpy.run_module("dataclay.backend", run_name="__main__")
"""


class Port:
    """A free port of the loopback interface, kept from others until it is released.

    The system hands free ports to outgoing connections too, also between the moment one was
    found free and the moment a service listens on it. On Linux a socket that is bound but does not
    listen keeps the port from that, and lets those listen that share addresses, as Redis and gRPC
    do. Elsewhere sharing has other rules, and the port is released before it is used.
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
        """Let others have it."""
        self._socket.close()


@dataclass(frozen=True)
class Service:
    """One running process and what it wrote.

    Parameters
    ----------
    name : str
        What it is, for people.
    process : subprocess.Popen
        The process.
    port : Port
        Where it listens.
    log : Path
        What it writes to standard output and error.
    """

    name: str
    process: subprocess.Popen[bytes]
    port: Port
    log: Path

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """Return the last lines that it wrote."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join(lines[-LOG_LINES:]) or "(it wrote nothing)"


def start(
    name: str, command: Sequence[str], port: Port, folder: Path, group: int, env: Mapping[str, str]
) -> Service:
    """Start a process of the group, with its log in the folder.

    Parameters
    ----------
    name : str
        What it is, for people.
    command : sequence of str
        What to run.
    port : Port
        Where it is going to listen.
    folder : Path
        Where it runs: dataClay reads a file ``.env`` from there, and must not find the user's.
    group : int
        Process group to join.
    env : mapping of str to str
        Its whole environment.
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


def start_guard(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that ends the others once this one is gone; its pid is their group."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", dataclay_guard.__file__, str(folder), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )


def release_guard(guard: subprocess.Popen[bytes], timeout: float) -> None:
    """Tell it that there is nothing left to do, whereupon it ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        guard.communicate(b".", timeout)


def environment(python_path: Sequence[str | Path], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a service: this one, without settings of another dataClay.

    Parameters
    ----------
    python_path : sequence of str or Path
        Folders to import from, before those of this process: what can be imported here (the
        classes of persistent objects, modules of tasks) can be imported there too.
    settings : mapping of str to str
        Settings of dataClay.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATACLAY_", "DC_"))
    }
    here = [folder or os.getcwd() for folder in sys.path]  # noqa: PTH109 (a string is wanted)
    path = os.pathsep.join([*map(str, python_path), *here])
    # As Dask does for its workers: several processes on one machine, each with a thread per core
    # for every matrix product, would be in each other's way.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**threads, **own, "PYTHONPATH": path, **settings}


def metadata_command() -> list[str]:
    """Return what runs the metadata service."""
    # -P: the folder it runs in is nothing to import from.
    return [sys.executable, "-P", "-m", "dataclay.metadata"]


def backend_command(threads: int | None) -> list[str]:
    """Return what runs a backend, with so many active methods at once or as many as it likes."""
    if threads is None:
        return [sys.executable, "-P", "-m", "dataclay.backend"]
    return [sys.executable, "-P", "-c", _BACKEND_WITH_THREADS, str(threads)]
