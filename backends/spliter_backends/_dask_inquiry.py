"""Questions to the scheduler about futures: are they done, who holds them, how big are they.

Each question is asked in batches, in the order of the collection, and every wait has a
bound: it ends with an error when nothing has got ready for ``spliter.block-timeout``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from dask.typing import Key
from distributed import Client, Future

from spliter import BlockLostError, BlockTimeoutError
from spliter._grid import IntArray
from spliter_backends.dask_executor import DaskExecutor, ask, block_timeout

BATCH: Final = 10_000
"""Keys per question to the scheduler: bounds the message and how long the scheduler, which
has one thread, is kept from everybody else's work."""

WAKE_INTERVAL: Final = 1.0
"""Seconds between two looks, while waiting, for blocks that nobody would start to make."""

NAMED: Final = 5
"""Most blocks named in a message."""

T = TypeVar("T")


class Inquiry:
    """Asks one cluster about futures, from a thread that may wait.

    Parameters
    ----------
    client : distributed.Client
        The futures' client.
    executor : DaskExecutor
        Has tasks started that the scheduler would leave lying.
    """

    def __init__(self, client: Client, executor: DaskExecutor) -> None:
        self._client = client
        self._executor = executor
        self.timeout = block_timeout()

    def wait_located(self, futures: Sequence[Future[Any]]) -> Mapping[Key, Sequence[str]]:
        """Return the holders of every future, waiting while some are not in memory.

        Parameters
        ----------
        futures : sequence of distributed.Future
            The blocks of one collection in its order.

        Returns
        -------
        mapping of key to sequence of str
            Addresses of workers, at least one for each key.

        Raises
        ------
        BlockLostError, BlockTimeoutError
            If some are gone, or do not get ready in time.
        """
        keys = [future.key for future in futures]
        scheduler: Any = self._client.scheduler
        deadline = time.monotonic() + self.timeout
        fewest = len(keys) + 1
        pause = 0.01
        while True:
            self.wait_done(futures)
            holders: Mapping[Key, Sequence[str]] = self._sync(self._ask, scheduler.who_has, keys)
            absent = sum(not holders.get(key) for key in keys)
            if not absent:
                return holders
            # Moving, or lost with a worker whose death the client has not heard of yet.
            if absent < fewest:
                fewest = absent
                deadline = time.monotonic() + self.timeout
            if time.monotonic() > deadline:
                raise self._timed_out(absent)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def wait_done(self, futures: Sequence[Future[Any]]) -> None:
        """Wait for blocks under way; raise the error of one that failed.

        Parameters
        ----------
        futures : sequence of distributed.Future
            The blocks of one collection in its order.

        Raises
        ------
        BlockLostError, BlockTimeoutError
            If some are gone, or do not get ready in time.
        """
        pending = [future for future in futures if future.status in ("pending", "lost")]
        progress = asked = time.monotonic()
        pause = 0.005
        while pending:
            time.sleep(pause)
            pause = min(pause * 1.2, 0.1)
            left = [future for future in pending if future.status in ("pending", "lost")]
            now = time.monotonic()
            if len(left) < len(pending):
                progress = now
                pending = left
                self._refuse_failed(futures)
            elif now - progress > self.timeout:
                raise self._timed_out(len(left))
            if now - asked > WAKE_INTERVAL:
                asked = now
                self._sync(self._executor.release_pins)
        self._refuse_failed(futures)

    def _refuse_failed(self, futures: Sequence[Future[Any]]) -> None:
        failed = next((future for future in futures if future.status == "error"), None)
        if failed is not None:
            # Raises the block's own error, with its traceback; nothing is asked for that.
            self._client.sync(failed._result, asynchronous=False, callback_timeout=self.timeout)
        refuse_cancelled(
            {(at,): future for at, future in enumerate(futures) if future.status == "cancelled"}
        )

    def sizes(self, futures: Sequence[Future[Any]]) -> IntArray:
        """Return the bytes of each future's result, 0 where the scheduler does not know.

        Parameters
        ----------
        futures : sequence of distributed.Future
            Futures that are done.

        Returns
        -------
        ndarray of int64, one per future
            Bytes as Dask has measured them.
        """
        scheduler: Any = self._client.scheduler
        nbytes = functools.partial(scheduler.nbytes, summary=False)
        keys = [future.key for future in futures]
        sizes: Mapping[Key, int] = self._sync(self._ask, nbytes, keys)
        return np.asarray([sizes.get(key, 0) for key in keys], dtype=np.int64)

    async def _ask(
        self, question: Callable[..., Awaitable[Mapping[Key, T]]], keys: Sequence[Key]
    ) -> dict[Key, T]:
        answer: dict[Key, T] = {}
        for start in range(0, len(keys), BATCH):
            answer.update(await question(keys=keys[start : start + BATCH]))
        return answer

    def _sync(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        answer: T = ask(self._client, fn, *args)
        return answer

    def _timed_out(self, blocks: int) -> BlockTimeoutError:
        return BlockTimeoutError(
            f"{blocks} block(s) did not get into any worker's memory within {self.timeout:g} s "
            "without progress: look at the scheduler for what they wait for; the limit is the "
            "Dask setting spliter.block-timeout"
        )


def refuse_cancelled(futures: Mapping[tuple[int, ...], Future[Any]]) -> None:
    """Raise if blocks were cancelled behind the Split's back.

    Parameters
    ----------
    futures : mapping of tuple of int to distributed.Future
        Blocks by block index.

    Raises
    ------
    BlockLostError
        Naming the blocks.
    """
    gone = tuple(index for index, future in futures.items() if future.status == "cancelled")
    if gone:
        named = ", ".join(map(str, gone[:NAMED])) + (", ..." if len(gone) > NAMED else "")
        raise BlockLostError(
            f"{len(gone)} block(s) ({named}) were cancelled, dropped by client.restart(), or "
            "lost with the worker they were scattered to; make the collection and split it again",
            gone,
        )
