"""The floor under every way: the same kernel on the same blocks in plain processes, no engine.

Each process holds its share of the blocks, runs what it is told to over a pipe, and ends when the
pipe is closed: also when this process dies without saying goodbye.
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

import numpy as np

from spliter_experiments._errors import FloorError
from spliter_experiments._inputs import Floats, Points

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""One process per core, so one thread per process; Dask sets the same for its workers."""

ANSWER_SECONDS = 600.0
"""Longest wait for a process that is alive."""

END_SECONDS = 5.0


@dataclass(frozen=True)
class _Member:
    """One process and our end of its pipe."""

    process: BaseProcess
    pipe: Connection


class Floor:
    """A set of plain processes; made by :func:`start_floor`."""

    def __init__(self, members: Sequence[_Member], timeout: float) -> None:
        self._members = members
        self._timeout = timeout

    def load(self, points: Points, row_chunks: Sequence[int]) -> None:
        """Make each process hold a run of consecutive blocks.

        Parameters
        ----------
        points : Points
            Where the rows come from.
        row_chunks : sequence of int
            Rows of each block.
        """
        ends = np.cumsum(row_chunks)
        ranges = [(int(end) - rows, int(end)) for end, rows in zip(ends, row_chunks, strict=True)]
        shares = np.array_split(np.arange(len(ranges)), len(self._members))
        self._ask([("load", points, [ranges[i] for i in share]) for share in shares])

    def call(self, kernel: Callable[..., Any], *args: Any) -> list[Any]:
        """Run ``kernel(blocks, *args)`` in every process at once and return what it returns."""
        return self._ask([("call", kernel, args)] * len(self._members))

    def drop(self) -> None:
        """Make the processes forget their blocks."""
        self._ask([("drop",)] * len(self._members))

    def _ask(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        for member, question in zip(self._members, questions, strict=True):
            try:
                member.pipe.send(question)
            except OSError as error:
                raise FloorError(f"{_name(member)} has died") from error
        deadline = time.monotonic() + self._timeout
        return [_answer(member, deadline) for member in self._members]


@contextmanager
def start_floor(processes: int, timeout: float = ANSWER_SECONDS) -> Iterator[Floor]:
    """Start plain processes, ended with the context.

    Parameters
    ----------
    processes : int
        How many.
    timeout : float
        Longest wait for an answer, in seconds.

    Yields
    ------
    Floor
        The processes.

    Raises
    ------
    FloorError
        When used: if a process died, failed or did not answer in time.
    """
    # Spawned, not forked: this process has threads, and a fork would share Dask's sockets.
    context = multiprocessing.get_context("spawn")
    members: list[_Member] = []
    try:
        with _environment(ONE_THREAD):
            for _ in range(processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                members.append(_Member(process, ours))
        yield Floor(members, timeout)
    finally:
        for member in members:
            member.pipe.close()
        for member in members:
            _end(member.process)


def serve(pipe: Connection) -> None:
    """Do what the pipe says until it is closed."""
    # Ctrl-C reaches the whole process group; the parent closes the pipe in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    blocks: list[Floats] = []
    while True:
        try:
            order, *details = pipe.recv()
        except EOFError:
            return
        try:
            answer: Any = None
            if order == "load":
                points, ranges = details
                blocks = []  # the old ones go before the new ones come
                blocks = [points.read(start, stop) for start, stop in ranges]
            elif order == "call":
                kernel, args = details
                answer = kernel(blocks, *args)
            else:
                blocks = []
            pipe.send((True, answer))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
            pipe.send((False, f"{type(error).__name__}: {error}"))


def _answer(member: _Member, deadline: float) -> Any:
    try:
        if not member.pipe.poll(max(deadline - time.monotonic(), 0)):
            raise FloorError(f"{_name(member)} did not answer in time")
        succeeded, answer = member.pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise FloorError(f"{_name(member)} has died") from error
    if not succeeded:
        raise FloorError(f"{_name(member)} failed: {answer}")
    return answer


def _name(member: _Member) -> str:
    return f"plain process {member.process.pid}"


def _end(process: BaseProcess) -> None:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join(END_SECONDS)
    process.close()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
