"""What runs on a Dask worker to keep there what a task has made.

A partition that is put into one block becomes data of the worker like any other: it has its size,
shows on the dashboard, may be spilled, and is freed by the client that asked for it. The scheduler
has to hear of it, which takes a message there and back: a task goes on meanwhile, and waits for the
answer at its end (:func:`known_by_the_end`), so that it is known before the task's result is::

    task     put together ── compute ──────────────── wait ─> result
    loop              └─ "this worker has it" ─> known ──┘
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Worker

from spliter import BlockTimeoutError
from spliter_backends.dask.worker.memory import MISSING, read_here, room_for


@contextmanager
def within(timeout: float, worker: Worker) -> Iterator[None]:
    """Say of a call that timed out who has not answered.

    Parameters
    ----------
    timeout : float
        Seconds that the call may take.
    worker : distributed.Worker
        The one that it is made from.

    Yields
    ------
    None

    Raises
    ------
    BlockTimeoutError
        If it takes longer.
    """
    try:
        yield
    except TimeoutError as error:
        raise _no_answer(worker, timeout) from error


def _no_answer(worker: Worker, timeout: float) -> BlockTimeoutError:
    return BlockTimeoutError(
        f"neither the scheduler nor another worker answered {worker.address} within "
        f"{timeout:g} s; the limit is the Dask setting spliter.block-timeout"
    )


@dataclass(frozen=True)
class Kept:
    """A value that tasks at one worker share.

    Parameters
    ----------
    key : str
        What it is kept by.
    nbytes : int
        About how large it will be.
    client : str
        In whose name; the client releases it.
    timeout : float
        Seconds to wait for the scheduler.
    made_of : tuple of key
        Values of the worker's that are put into one for it.
    """

    key: str
    nbytes: int
    client: str
    timeout: float
    made_of: tuple[Key, ...] = ()

    def get(self, worker: Worker, make: Callable[[], Any], *, keep: bool = True) -> Any:
        """Return it, made by the first task that asks while others wait.

        Parameters
        ----------
        worker : distributed.Worker
            The one that this runs on.
        make : callable
            Makes it.
        keep : bool
            Whether the worker is to keep it.

        Returns
        -------
        object
            To be shared, and not changed in place.

        Raises
        ------
        NotEnoughMemoryError
            If the worker has not the memory to make it.
        """
        with _lock_for(self.key):
            # Looked for in this order: what has become known is data of the worker before it is
            # not here any more.
            value = _not_known_yet.get(self.key, MISSING)
            if value is MISSING:
                value = read_here(worker, self.key)
            return value if value is not MISSING else self._made(worker, make, keep)

    def _made(self, worker: Worker, make: Callable[[], Any], keep: bool) -> Any:
        if not keep:
            return make()
        with ExitStack() as room:
            room.enter_context(room_for(worker, self.nbytes, self.made_of, self.timeout))
            value = make()
            known = self._begin_to_tell(worker, value)
            _not_known_yet[self.key] = value
            # The memory is set aside until Dask counts it.
            room.callback(_not_known_yet.pop, self.key)
            end = room.pop_all()
            known.telling.add_done_callback(lambda _: end.close())
        if _this_thread.begun is None:
            known.wait()
        else:
            _this_thread.begun.append(known)
        return value

    def _begin_to_tell(self, worker: Worker, value: Any) -> _Known:
        """Begin to make a value one of the worker's data."""
        loop: Any = worker.loop
        telling = asyncio.run_coroutine_threadsafe(
            _keep(worker, self.key, value, self.client), loop.asyncio_loop
        )
        return _Known(worker, telling, self.timeout)


@dataclass(frozen=True)
class _Known:
    """That a value has become one of the worker's data, or that it is about to."""

    worker: Worker
    telling: Future[None]
    timeout: float

    def wait(self) -> None:
        """Wait until it has, within bounds."""
        try:
            self.telling.result(self.timeout)
        except TimeoutError as error:
            self.telling.cancel()
            raise _no_answer(self.worker, self.timeout) from error


class _Begun(threading.local):
    """What the task that a thread runs has made and has not waited for."""

    begun: list[_Known] | None = None


_this_thread = _Begun()

_not_known_yet: dict[str, Any] = {}
"""Values that tasks of this process may use already, by their keys."""


@contextmanager
def known_by_the_end() -> Iterator[None]:
    """Let the task that this thread runs go on while what it keeps is being made known.

    Yields
    ------
    None
        At the end of the context the scheduler knows of all that was kept.

    Raises
    ------
    BlockTimeoutError
        If the scheduler does not answer.
    """
    before, begun = _this_thread.begun, list[_Known]()
    _this_thread.begun = begun
    try:
        yield
    finally:
        _this_thread.begun = before
        with ExitStack() as ends:  # all are waited for, whichever fails
            for known in begun:
                ends.callback(known.wait)


_locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
_locks_guard = threading.Lock()


def _lock_for(key: str) -> threading.Lock:
    """Return the lock that tasks at this worker share for a key."""
    with _locks_guard:
        lock = _locks.get(key)
        if lock is None:
            lock = _locks[key] = threading.Lock()
        return lock


async def _keep(worker: Worker, key: str, value: Any, client: str) -> None:
    """Make a value one of the worker's data, as scatter does: sized, spilled, freed by Dask.

    The scheduler hears of it first: it has workers drop data that it does not know. The
    client has to release it, under the name given here.
    """
    await worker.scheduler.update_data(
        who_has={key: [worker.address]}, nbytes={key: sizeof(value)}, client=client
    )
    worker.update_data({key: value})
