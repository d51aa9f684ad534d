"""Messages from a Dask worker to another one that has not asked for them.

Dask's workers answer each other's questions. Where it is known who will ask, telling takes one
message in place of a question, an answer and a receipt. It names the function that receives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pickle import dumps, loads
from typing import Any, Final

from distributed import Worker

OPERATION: Final = "spliter-post"
"""The name by which a worker is asked to receive something."""

GIVE_UP_AFTER: Final = 30.0
"""Seconds that a message is under way at most. One to a worker that stands still would be kept as
long as that does."""


class Post:
    """Sends messages from one worker to others, and has those received that others send to it.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on; see `of`.

    Attributes
    ----------
    nbytes : int
        Bytes that receivers have counted.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._reached: set[str] = set()
        self.nbytes = 0

    @classmethod
    def of(cls, worker: Worker) -> Post:
        """Return the one of a worker, which receives messages from then on.

        Parameters
        ----------
        worker : distributed.Worker
            The one that this runs on.

        Returns
        -------
        Post
            The same for every call.
        """
        deliver: Any = worker.handlers.get(OPERATION)
        if deliver is None:
            worker.handlers[OPERATION] = deliver = cls(worker)._deliver
        post: Post = deliver.__self__
        return post

    def send(self, addresses: Iterable[str], receive: Callable[..., None], *args: Any) -> None:
        """Have a function called on the event loops of some workers. Nothing tells if it was.

        Parameters
        ----------
        addresses : iterable of str
            Of the workers.
        receive : callable
            A function of a module, whose first argument is the worker it runs on.
        *args
            Further arguments. What pickling them raises is raised.
        """
        message = dumps((receive, args), protocol=5)
        loop: Any = self._worker.loop
        for address in addresses:
            loop.add_callback(self._send, address, message)

    async def _send(self, address: str, message: bytes) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_AFTER):
                await self._reach(address)
                await self._tell(address, message)
        except (OSError, RuntimeError):  # one of the two is gone, or about to go, or stands still
            self._reached.discard(address)

    async def _reach(self, address: str) -> None:
        """Let a worker, which may never have heard of us, receive messages."""
        if address not in self._reached:
            await self._worker.rpc(address).run(function=_OPEN)
            self._reached.add(address)

    async def _tell(self, address: str, message: bytes) -> None:
        pool = self._worker.rpc
        comm = await pool.connect(address)
        try:
            await comm.write({"op": OPERATION, "reply": False, "message": message})
        except BaseException:  # nothing follows half a message
            comm.abort()
            raise
        finally:
            pool.reuse(address, comm)

    def _deliver(self, message: bytes) -> None:
        receive, args = loads(message)
        receive(self._worker, *args)


def _open(dask_worker: Worker) -> None:
    """Let a worker receive messages from now on."""
    Post.of(dask_worker)


_OPEN: Final = dumps(_open)


def received_nbytes(worker: Worker) -> int:
    """Return the bytes of values that a worker was sent by others without asking.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.

    Returns
    -------
    int
        Results by the sizes that Dask gives them, other values as pickled.
    """
    return Post.of(worker).nbytes
