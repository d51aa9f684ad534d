"""Futures of tasks at dataClay backends, and results that are kept there."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

from spliter import BlockLostError, Location, TaskNotSerializableError
from spliter.backend import Executor
from spliter_backends.dataclay.client.backend_calls import BackendGoneError, Peer
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.message import decode


class Kept:
    """A result that is kept at the backend that made it; freed there when this is gone.

    Parameters
    ----------
    session : Session
        The client.
    peer : Peer
        The backend.
    name : str
        What it is called there.
    """

    def __init__(self, session: Session, peer: Peer, name: str) -> None:
        self.peer = peer
        self.name = name
        self._session = session
        self._lock = threading.Lock()
        self._fetched: tuple[Any] | None = None
        weakref.finalize(self, peer.free_later, (self.name,)).atexit = False

    async def message(self) -> bytearray:
        """Bring it here, as a message.

        Raises
        ------
        BlockLostError
            If its backend is gone.
        """
        try:
            return await self.peer.pull(self.name)
        except BackendGoneError as error:
            raise BlockLostError(f"the result of a task was lost: {error}; run it again") from None

    def value(self, timeout: float | None = None) -> Any:
        """Return it, fetched on first use.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait.

        Returns
        -------
        object

        Raises
        ------
        TimeoutError
            If it takes longer.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError
        try:
            if self._fetched is None:
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                self._fetched = (unpickled(self._session.wait(self.message(), left)),)
            return self._fetched[0]
        finally:
            self._lock.release()


class DataClayFuture(Future[Any]):
    """A future of a task at a backend; one of ``concurrent.futures``.

    Its result may still be at the backend when it is done: then :meth:`result` brings it, and
    a task at that backend that gets this future as an argument uses it in place.

    Parameters
    ----------
    executor : Executor
        What runs the task.
    location : Location or None
        Where the task was pinned to.
    """

    def __init__(self, executor: Executor, location: Location | None) -> None:
        super().__init__()
        self.executor = executor
        self.location = location
        self.message: bytes | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Return what the task returned.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait, for the task and for its result to get here.

        Returns
        -------
        object

        Raises
        ------
        TimeoutError
            If it takes longer.
        BaseException
            What the task raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        result = super().result(timeout)
        if not isinstance(result, Kept):
            return result
        return result.value(None if deadline is None else max(deadline - time.monotonic(), 0))

    def kept(self) -> Kept | None:
        """Return the result, of a task that is done, if it is kept at a backend."""
        result = super().result(0)
        return result if isinstance(result, Kept) else None


def unpickled(message: bytes | bytearray) -> Any:
    """Return the result that a message holds.

    Parameters
    ----------
    message : bytes or bytearray
        From a backend.

    Returns
    -------
    object

    Raises
    ------
    TaskNotSerializableError
        If it cannot be unpickled here.
    """
    try:
        return decode(message)
    except Exception as error:
        raise TaskNotSerializableError(
            f"the result of the task cannot be unpickled here: {error!r}; its class has to be "
            "importable in this program too"
        ) from error
