"""Start the processes that pack and unpack, each in an environment of its own, and query them.

A peer is a Python that has an MPI library and NumPy; SplIter need not be installed there. It gets a
folder on its path with links to our packages alone, because a whole ``site-packages`` would bring
NumPy of another Python along.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import spliter
import spliter_experiments
from spliter_experiments.harness.errors import PeerError

PROGRAM: Final = "spliter_experiments.layouts.program"

START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 120.0
"""Bounds of a wait. The slowest action takes a second, on a machine that does nothing else."""

END_SECONDS: Final = 5.0

ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Peer:
    """A running peer, of one process or of two ranks; :func:`started` starts one.

    The name is for errors; the greeting is what it said about itself.
    """

    name: str
    greeting: Mapping[str, Any]
    _process: subprocess.Popen[bytes]
    _lines: Sequence[IO[str]]
    _stderr: IO[bytes]

    def query(self, **request: Any) -> dict[str, Any]:
        """Send a request to all ranks, which answer alike, and return the answer."""
        try:
            for lines in self._lines:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
            answers = [_read(lines) for lines in self._lines]
        except (OSError, ValueError) as error:
            raise PeerError(
                f"{self.name} did not answer {request} ({error!r}). {_last_words(self._stderr)}"
            ) from error
        for answer in answers:
            if "error" in answer:
                raise PeerError(f"{self.name} failed on {request}: {answer['error']}")
        return answers[0]


def _read(lines: IO[str]) -> dict[str, Any]:
    line = lines.readline()
    if not line:
        raise ConnectionError("it closed the connection")
    answer = json.loads(line)
    if not isinstance(answer, dict):
        raise ValueError(f"not an answer: {answer!r}")
    return answer


def _last_words(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip().splitlines()
    return f"It wrote: {' / '.join(said[-3:])}" if said else "It wrote nothing."


@contextlib.contextmanager
def started(
    name: str, python: str, ranks: int = 1, mpi: str | None = None, program: str = PROGRAM
) -> Iterator[Peer]:
    """Start a peer, which ends with the context.

    The name is for errors. Two ranks are started by the ``mpiexec`` next to the Python; `mpi` is
    the name that the MPI library must have. A `PeerError` says that it does not start, or has
    another library.
    """
    token = secrets.token_hex()
    with (
        tempfile.TemporaryDirectory(prefix="spliter-peer-") as folder,
        tempfile.TemporaryFile() as stderr,
        socket.create_server(("127.0.0.1", 0)) as server,
        contextlib.ExitStack() as stack,  # last: the process ends before its folder goes
    ):
        launcher = [] if ranks == 1 else [str(Path(python).with_name("mpiexec")), "-n", str(ranks)]
        port = str(server.getsockname()[1])
        command = [*launcher, python, "-m", program, port, token, *(["mpi"] if mpi else [])]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": _path_of(python, Path(folder))}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
            )
        except OSError as error:
            raise PeerError(f"{name} does not start: {error}") from error
        stack.callback(_end, process)
        try:
            lines = [stack.enter_context(_accepted(server, process)) for _ in range(ranks)]
            greetings = [_read(one) for one in lines]
        except (OSError, ValueError) as error:
            raise PeerError(f"{name} does not start ({error}). {_last_words(stderr)}") from error
        first = greetings[0]
        if any(greeting.pop("token", None) != token for greeting in greetings):
            raise PeerError(f"{name} does not start: another process answered")
        found = first.get("mpi"), first.get("ranks")
        if mpi is not None and found != (mpi, ranks):
            raise PeerError(
                f"{python} has {found[0]} with {found[1]} ranks instead of {mpi} with {ranks}; "
                f"give the Python of an environment of {mpi} alone"
            )
        yield Peer(name, first, process, lines, stderr)


def _path_of(python: str, folder: Path) -> str:
    """Return the module search path: that of this process, or links to our packages."""
    if python == sys.executable:
        return os.pathsep.join(filter(None, sys.path))
    for package in (spliter, spliter_experiments):
        assert package.__file__ is not None
        (folder / package.__name__).symlink_to(Path(package.__file__).parent)
    return str(folder)


@contextlib.contextmanager
def _accepted(server: socket.socket, process: subprocess.Popen[bytes]) -> Iterator[IO[str]]:
    """Accept a connection, unless the process ends before."""
    server.settimeout(0.1)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            connection, _ = server.accept()
            break
        except TimeoutError:
            if process.poll() is not None:
                raise ConnectionError(f"it ended with exit code {process.returncode}") from None
            if time.monotonic() > deadline:
                raise
    connection.settimeout(ANSWER_SECONDS)
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        yield lines


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process whose connections are closed."""
    for stop in (process.poll, process.terminate, process.kill):
        stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
            return
