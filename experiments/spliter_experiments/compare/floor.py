"""The floor under every way: the same kernel on the same blocks in plain processes, no engine.

Each process holds its share of the blocks, runs what it is told to over a pipe, and ends when the
pipe is closed: also when this process dies without saying goodbye. What a kernel returns comes back
over the pipe, or is kept by name in the process, for later kernels to work on.
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

from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.harness.errors import FloorError

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that say how many threads a process may use; Dask sets them to 1 for its
workers."""

BLOCKS = "blocks"
"""The name by which a process keeps what was loaded."""

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

    def load(self, points: Rows, row_chunks: Sequence[int], *aligned: Rows) -> None:
        """Make each process hold a run of consecutive blocks.

        Parameters
        ----------
        points : Rows
            Where the rows come from.
        row_chunks : sequence of int
            Rows of each block.
        *aligned : Rows
            What goes with the points, such as labels. Blocks are tuples then.
        """
        ends = np.cumsum(row_chunks)
        ranges = [(int(end) - rows, int(end)) for end, rows in zip(ends, row_chunks, strict=True)]
        shares = np.array_split(np.arange(len(ranges)), len(self._members))
        sources = (points, *aligned)
        self._ask([("load", sources, [ranges[i] for i in share]) for share in shares])

    def call(self, kernel: Callable[..., Any], *args: Any, on: str = BLOCKS) -> list[Any]:
        """Run a kernel in every process at once and return what it returns.

        Parameters
        ----------
        kernel : callable
            Called as ``kernel(thing, *args)``.
        *args
            Further arguments, the same in every process.
        on : str
            The name by which the process keeps the thing: the list of its blocks by default.

        Returns
        -------
        list
            What each process returned.
        """
        return self._ask([("call", kernel, on, args)] * len(self._members))

    def keep(self, name: str, kernel: Callable[..., Any], *args: Any) -> None:
        """Run ``kernel(blocks, *args)`` in every process at once and keep what it returns there.

        Parameters
        ----------
        name : str
            The name to keep it by, until the blocks are loaded anew or dropped.
        kernel : callable
            Called with the list of blocks.
        *args
            Further arguments.
        """
        self._ask([("keep", kernel, name, args)] * len(self._members))

    def drop(self) -> None:
        """Make the processes forget their blocks and what they keep."""
        self._ask([("drop",)] * len(self._members))

    def _ask(self, questions: Sequence[tuple[Any, ...]]) -> list[Any]:
        for member, question in zip(self._members, questions, strict=True):
            try:
                member.pipe.send(question)
            except OSError as error:
                raise FloorError(f"{_name(member)} has died") from error
        deadline = time.monotonic() + self._timeout
        # All answers are taken before any is looked at: one left in its pipe would be taken for
        # the answer to the next question.
        answers = [_answer(member, deadline) for member in self._members]
        for member, (succeeded, answer) in zip(self._members, answers, strict=True):
            if not succeeded:
                raise FloorError(f"{_name(member)} failed: {answer}")
        return [answer for _, answer in answers]


@contextmanager
def start_floor(
    processes: int, timeout: float = ANSWER_SECONDS, threads: int = 1
) -> Iterator[Floor]:
    """Start plain processes, ended with the context.

    Parameters
    ----------
    processes : int
        How many.
    timeout : float
        Longest wait for an answer, in seconds.
    threads : int
        Threads that each may use. One process for each core has one thread.

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
        with _environment(dict.fromkeys(THREAD_LIMITS, str(threads))):
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
                held = {BLOCKS: []}  # the old ones go before the new ones come
                if order == "load":
                    held[BLOCKS] = _read_blocks(*details)
            pipe.send((True, answer))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
            pipe.send((False, f"{type(error).__name__}: {error}"))


def _read_blocks(sources: Sequence[Rows], ranges: Sequence[tuple[int, int]]) -> list[Any]:
    if len(sources) == 1:
        return [sources[0].read(start, stop) for start, stop in ranges]
    return [tuple(source.read(start, stop) for source in sources) for start, stop in ranges]


def _answer(member: _Member, deadline: float) -> tuple[bool, Any]:
    """Wait for whether a process has succeeded, and what it says."""
    try:
        if not member.pipe.poll(max(deadline - time.monotonic(), 0)):
            raise FloorError(f"{_name(member)} did not answer in time")
        succeeded, answer = member.pipe.recv()
        return succeeded, answer
    except (EOFError, ConnectionError) as error:
        raise FloorError(f"{_name(member)} has died") from error


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
