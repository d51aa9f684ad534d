"""Futures of tasks at dataClay backends, and results that stay at a backend until fetched."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

from spliter import BlockLostError, Location, TaskNotSerializableError
from spliter.backend import Executor
from spliter_backends.dataclay.client.backend_calls import BackendLostError, Peer
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.message import decode


class RemoteResult:
    """Handle of a result kept at its backend; the result is freed with this handle."""

    def __init__(self, session: Session, peer: Peer, name: str) -> None:
        self.peer = peer
        self.name = name
        self._session = session
        self._lock = threading.Lock()
        self._fetched: tuple[Any] | None = None
        weakref.finalize(self, peer.free_later, (self.name,)).atexit = False

    async def message(self) -> bytearray:
        """Fetch the result as a message; raise `BlockLostError` if its backend is lost."""
        try:
            return await self.peer.pull(self.name)
        except BackendLostError as error:
            raise BlockLostError(f"the result of a task was lost: {error}; run it again") from None

    def value(self, timeout: float | None = None) -> Any:
        """Return the result, fetched once; raise `TimeoutError` if fetching takes longer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError
        try:
            if self._fetched is None:
                left = None if deadline is None else max(deadline - time.monotonic(), 0)
                self._fetched = (unpickle_result(self._session.wait(self.message(), left)),)
            return self._fetched[0]
        finally:
            self._lock.release()


class DataClayFuture(Future[Any]):
    """A ``concurrent.futures.Future`` of a task at a backend.

    When it is done, its result may still be at the backend: then :meth:`result` fetches it, and a
    task at that backend with this future as an argument uses it in place.

    Parameters
    ----------
    location : Location or None
        Backend that the task is pinned to.
    """

    def __init__(self, executor: Executor, location: Location | None) -> None:
        super().__init__()
        self.executor = executor
        self.location = location
        self.message: bytes | None = None

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the task.

        Parameters
        ----------
        timeout : float, optional
            Maximum wait in seconds, for the task and for fetching its result.

        Raises
        ------
        TimeoutError
            If it takes longer.
        BaseException
            The error of the task.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        result = super().result(timeout)
        if not isinstance(result, RemoteResult):
            return result
        return result.value(None if deadline is None else max(deadline - time.monotonic(), 0))

    def remote_result(self) -> RemoteResult | None:
        """Return the handle of a finished task's result if it is kept at a backend, else None."""
        result = super().result(0)
        return result if isinstance(result, RemoteResult) else None


def unpickle_result(message: bytes | bytearray) -> Any:
    """Unpickle the result in a backend's message."""
    try:
        return decode(message)
    except Exception as error:
        raise TaskNotSerializableError(
            f"the result of the task cannot be unpickled here: {error!r}; its class has to be "
            "importable in this program too"
        ) from error
