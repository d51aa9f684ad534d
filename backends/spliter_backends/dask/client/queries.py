"""Questions to the scheduler about futures: are they done, who holds them, how big are they.

Each question is asked in batches, in the order of the collection, and every wait has a
bound: it ends with an error when nothing has got ready for ``spliter.block-timeout``.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from dask.typing import Key
from distributed import CancelledError, Client, Future

from spliter import BlockGrid, BlockLostError, BlockTimeoutError
from spliter.backend import IntArray
from spliter_backends.dask.client.scheduler_calls import (
    block_timeout,
    call_client,
    check_open,
    no_answer_error,
)
from spliter_backends.dask.scheduler.client_keys import add_client_keys

BATCH: Final = 10_000
"""Keys per question to the scheduler: bounds the message and how long the scheduler, which
has one thread, is kept from everybody else's work."""

MAX_NAMED: Final = 5
"""Most blocks named in a message."""

IndexesOf: TypeAlias = Callable[[IntArray], Sequence[tuple[int, ...]]]
"""Returns the block indexes of positions in a sequence of blocks."""

T = TypeVar("T")


class BlockQueries:
    """Asks one cluster about futures, from a thread that may wait.

    Parameters
    ----------
    client : distributed.Client
        The futures' client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.timeout = block_timeout()

    def wait_for_holders(
        self, futures: Sequence[Future[Any]], grid: BlockGrid
    ) -> Mapping[Key, Sequence[str]]:
        """Return the holders of every future, waiting while some are not in memory.

        Parameters
        ----------
        futures : sequence of distributed.Future
            The blocks of one collection, in C order of its grid.
        grid : BlockGrid
            Names the blocks in errors.

        Returns
        -------
        mapping of key to sequence of str
            Addresses of workers, at least one for each key.

        Raises
        ------
        BlockLostError, BlockTimeoutError
            If some are gone, or do not get ready in time.
        """
        deadline = time.monotonic() + self.timeout
        fewest = len(futures) + 1
        pause = 0.01
        while True:
            self.wait_done(futures, grid.indexes)
            holders = self._holders(futures)
            absent = sum(not holders.get(future.key) for future in futures)
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

    def _holders(self, futures: Sequence[Future[Any]]) -> Mapping[Key, Sequence[str]]:
        try:
            holders: Mapping[Key, Sequence[str]] = self._sync(
                self._query, self._client.who_has, futures
            )
        except CancelledError:  # meanwhile: the next wait says so
            return {}
        return holders

    def wait_done(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        """Wait for pending blocks; raise the error of one that failed.

        Parameters
        ----------
        futures : sequence of distributed.Future
            Blocks of one collection.
        indexes : callable
            Returns the block indexes of positions in `futures`, for errors.

        Raises
        ------
        BlockLostError, BlockTimeoutError
            If some are gone, or do not get ready in time.
        """
        check_open(self._client)  # which cancelled all futures
        pending = [future for future in futures if future.status in ("pending", "lost")]
        if pending:
            self._request_reports(futures, indexes)
        progress = time.monotonic()
        pause = 0.005
        while pending:
            time.sleep(pause)
            pause = min(pause * 1.2, 0.1)
            left = [future for future in pending if future.status in ("pending", "lost")]
            now = time.monotonic()
            if len(left) < len(pending):
                progress = now
                pending = left
                self._check_not_failed(futures, indexes)
            elif now - progress > self.timeout:
                raise self._timed_out(len(left))
        self._check_not_failed(futures, indexes)

    def _request_reports(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        """Have the scheduler report to this client when pending blocks are in memory.

        It does so by itself for blocks that this client has computed. Futures that were
        unpickled, as part of a collection, are unknown to it until the client asks for them.

        Raises
        ------
        BlockLostError
            If the scheduler does not know some of the blocks.
        """
        pending = {at: future.key for at, future in enumerate(futures) if not future.done()}
        self._wait_for_sent_graphs()
        unknown = set(self._sync(self._ask_for_reports, list(pending.values())))
        lost = np.asarray([at for at, key in pending.items() if key in unknown], dtype=np.int64)
        raise_if_lost(indexes(lost))

    def _wait_for_sent_graphs(self) -> None:
        """Wait until the scheduler knows the tasks of all graphs that the client has sent.

        Graphs and queries reach the scheduler by different connections, so a query may overtake
        the graph that makes the blocks. A graph without tasks that asks for an unknown key takes
        the way of the others, and the scheduler cancels that key at once.
        """
        key = f"spliter-unknown-{uuid.uuid4().hex}"
        answer: Future[Any] = self._client.get({}, key, sync=False)
        try:
            answer.exception(timeout=self.timeout, asynchronous=False)
        except TimeoutError as error:
            raise no_answer_error(self.timeout) from error

    async def _ask_for_reports(self, keys: Sequence[Key]) -> list[Key]:
        unknown: list[Key] = []
        for start in range(0, len(keys), BATCH):
            unknown += await self._client.run_on_scheduler(
                add_client_keys, keys[start : start + BATCH], self._client.id
            )
        return unknown

    def _check_not_failed(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        failed = next((future for future in futures if future.status == "error"), None)
        if failed is not None:
            # The block's own error; the client has it, so nothing is asked for that.
            error = failed.exception(timeout=self.timeout, asynchronous=False)
            if error is not None:
                raise error.with_traceback(failed.traceback(self.timeout, asynchronous=False))
        check_not_cancelled(futures, indexes)

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
        nbytes = functools.partial(self._client.nbytes, summary=False)
        keys = [future.key for future in futures]
        sizes: Mapping[Key, int] = self._sync(self._query, nbytes, keys)
        return np.asarray([sizes.get(key, 0) for key in keys], dtype=np.int64)

    async def _query(
        self, question: Callable[..., Awaitable[Mapping[Key, T]]], about: Sequence[Any]
    ) -> dict[Key, T]:
        answer: dict[Key, T] = {}
        for start in range(0, len(about), BATCH):
            answer.update(await question(about[start : start + BATCH]))
        return answer

    def _sync(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        answer: T = call_client(self._client, fn, *args)
        return answer

    def _timed_out(self, blocks: int) -> BlockTimeoutError:
        return BlockTimeoutError(
            f"{blocks} block(s) did not get into any worker's memory within {self.timeout:g} s "
            "without progress: look at the scheduler for what they wait for; the limit is the "
            "Dask setting spliter.block-timeout"
        )


def check_not_cancelled(futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
    """Raise if blocks were cancelled after they were made or requested.

    Parameters
    ----------
    futures : sequence of distributed.Future
        Blocks of one collection.
    indexes : callable
        Returns the block indexes of positions in `futures`.

    Raises
    ------
    BlockLostError
        Naming the blocks.
    """
    gone = [at for at, future in enumerate(futures) if future.status == "cancelled"]
    raise_if_lost(indexes(np.asarray(gone, dtype=np.int64)))


def raise_if_lost(blocks: Sequence[tuple[int, ...]]) -> None:
    """Raise if there are blocks that are lost.

    Parameters
    ----------
    blocks : sequence of tuple of int
        Their block indexes.

    Raises
    ------
    BlockLostError
        Naming the blocks.
    """
    if blocks:
        named = ", ".join(map(str, blocks[:MAX_NAMED])) + (
            ", ..." if len(blocks) > MAX_NAMED else ""
        )
        raise BlockLostError(
            f"{len(blocks)} block(s) ({named}) were cancelled, dropped by client.restart(), or "
            "lost with the worker they were scattered to; make the collection and split it again",
            tuple(blocks),
        )
