"""What runs on a Dask worker to keep there what a task has made.

A partition that is put into one block becomes data of the worker like any other: it has its size,
shows on the dashboard, may be spilled, and is freed by the client that asked for it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Worker
from distributed.utils import sync

from spliter import BlockTimeoutError
from spliter_backends._dask_memory import MISSING, read_here, room_for


def bounded_sync(
    worker: Worker, timeout: float, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Run something on the worker's event loop and wait for it, within bounds.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    timeout : float
        Seconds.
    fn : coroutine function
        Called with the further arguments.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    BlockTimeoutError
        If it takes longer.
    """
    try:
        return sync(worker.loop, fn, *args, callback_timeout=timeout, **kwargs)
    except TimeoutError as error:
        raise BlockTimeoutError(
            f"neither the scheduler nor another worker answered {worker.address} within "
            f"{timeout:g} s; the limit is the Dask setting spliter.block-timeout"
        ) from error


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
            value = read_here(worker, self.key)
            return value if value is not MISSING else self._made(worker, make, keep)

    def _made(self, worker: Worker, make: Callable[[], Any], keep: bool) -> Any:
        if not keep:
            return make()
        with room_for(worker, self.nbytes, self.made_of, self.timeout):
            value = make()
            bounded_sync(worker, self.timeout, _keep, worker, self.key, value, self.client)
        return value


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
