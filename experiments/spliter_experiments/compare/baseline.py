"""Run the same kernel on the same blocks in plain processes, without an engine, as lower bound.

Each process holds its share of the blocks, executes requests from a pipe, and exits when the pipe
is closed, even if this process is killed. The result of a kernel is sent back over the pipe, or
stored by name in the process for later kernels.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any
from unittest import mock

import numpy as np

from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.harness.errors import BaselineError

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Environment variables that limit the threads of a process; Dask sets them to 1 in workers."""

BLOCKS = "blocks"
"""Name under which a process stores the loaded blocks."""

ANSWER_SECONDS = 600.0
"""Maximum wait for a reply, in seconds."""

END_SECONDS = 5.0


@dataclass(frozen=True)
class _Process:
    """A process and the parent's end of its pipe."""

    process: BaseProcess
    pipe: Connection


class Baseline:
    """A set of plain processes; created by :func:`start_baseline`."""

    def __init__(self, members: Sequence[_Process], timeout: float) -> None:
        self._processes = members
        self._timeout = timeout

    def load(self, points: Rows, row_chunks: Sequence[int], *aligned: Rows) -> None:
        """Load consecutive blocks of `row_chunks` rows into each process.

        With `aligned` rows, such as labels, blocks are tuples.
        """
        ends = np.cumsum(row_chunks)
        ranges = [(int(end) - rows, int(end)) for end, rows in zip(ends, row_chunks, strict=True)]
        shares = np.array_split(np.arange(len(ranges)), len(self._processes))
        sources = (points, *aligned)
        self._ask([("load", sources, [ranges[i] for i in share]) for share in shares])

    def call(self, kernel: Callable[..., Any], *args: Any, on: str = BLOCKS) -> list[Any]:
        """Run ``kernel(value, *args)`` in all processes in parallel and return the list of results.

        The value is the one stored under the name `on`, by default the list of blocks.
        """
        return self._ask([("call", kernel, on, args)] * len(self._processes))

    def keep(self, name: str, kernel: Callable[..., Any], *args: Any) -> None:
        """Run ``kernel(blocks, *args)`` in all processes and store each result there.

        It is kept under its name until blocks are loaded or dropped.
        """
        self._ask([("keep", kernel, name, args)] * len(self._processes))

    def drop(self) -> None:
        self._ask([("drop",)] * len(self._processes))

    def _ask(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        for member, question in zip(self._processes, questions, strict=True):
            try:
                member.pipe.send(question)
            except OSError as error:
                raise BaselineError(f"{_name(member)} has died") from error
        deadline = time.monotonic() + self._timeout
        # Receive all replies before checking any: a reply left in its pipe would be read as the
        # reply to the next request.
        answers = [_answer(member, deadline) for member in self._processes]
        for member, (succeeded, answer) in zip(self._processes, answers, strict=True):
            if not succeeded:
                raise BaselineError(f"{_name(member)} failed: {answer}")
        return [answer for _, answer in answers]


@contextmanager
def start_baseline(
    processes: int, timeout: float = ANSWER_SECONDS, threads: int = 1
) -> Iterator[Baseline]:
    """Start plain processes with a limit of threads each; they exit with the context.

    A request raises a `BaselineError` if a process died, failed or did not reply in time.
    """
    # Spawn, because this process has threads, and a fork would share Dask's sockets.
    context = multiprocessing.get_context("spawn")
    members: list[_Process] = []
    try:
        with mock.patch.dict(os.environ, dict.fromkeys(THREAD_LIMITS, str(threads))):
            for _ in range(processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                members.append(_Process(process, ours))
        yield Baseline(members, timeout)
    finally:
        for member in members:
            member.pipe.close()
        for member in members:
            _end(member.process)


def serve(pipe: Connection) -> None:
    """Execute requests from the pipe until it is closed."""
    # Ctrl-C reaches the whole process group; the parent closes the pipe when it is ready.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held: dict[str, Any] = {BLOCKS: []}
    while True:
        try:
            order, *details = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer: Any = None
            if order == "call":
                kernel, name, args = details
                answer = kernel(held[name], *args)
            elif order == "keep":
                kernel, name, args = details
                held[name] = kernel(held[BLOCKS], *args)
            else:
                held = {BLOCKS: []}  # free the old blocks before reading new ones
                if order == "load":
                    held[BLOCKS] = _read_blocks(*details)
            pipe.send((True, answer))
        except Exception as error:  # noqa: BLE001 - the parent reports any error
            pipe.send((False, f"{type(error).__name__}: {error}"))


def _read_blocks(sources: Sequence[Rows], ranges: Sequence[tuple[int, int]]) -> list[Any]:
    if len(sources) == 1:
        return [sources[0].read(start, stop) for start, stop in ranges]
    return [tuple(source.read(start, stop) for source in sources) for start, stop in ranges]


def _answer(member: _Process, deadline: float) -> tuple[bool, Any]:
    """Wait for a reply: whether the process succeeded, and its result or error."""
    try:
        if not member.pipe.poll(max(deadline - time.monotonic(), 0)):
            raise BaselineError(f"{_name(member)} did not answer in time")
        succeeded, answer = member.pipe.recv()
        return succeeded, answer
    except (EOFError, ConnectionError) as error:
        raise BaselineError(f"{_name(member)} has died") from error


def _name(member: _Process) -> str:
    return f"plain process {member.process.pid}"


def _end(process: BaseProcess) -> None:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(END_SECONDS)
    process.close()
