"""Query the scheduler about futures: whether they are done, their holders and sizes.

Queries are sent in batches, in the order of the collection. Every wait is bounded: it ends with an
error if no block becomes ready for ``spliter.block-timeout``.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from dask.typing import Key
from distributed import CancelledError, Client, Future

from spliter import BlockGrid, BlockLostError, BlockTimeoutError
from spliter.backend import IntArray
from spliter_backends._shared.collection_blocks import name_blocks
from spliter_backends._shared.dask_graph import FUSED_FILES
from spliter_backends._shared.waiting import Progress
from spliter_backends.dask.client.scheduler_calls import (
    block_timeout,
    call_client,
    check_open,
    no_answer_error,
)
from spliter_backends.dask.internals.client import lacked_dependencies
from spliter_backends.dask.scheduler.records import add_client_keys

BATCH: Final = 10_000
"""Keys per query: bounds the message, and the time for which the query occupies the scheduler's
only thread."""

IndexesOf: TypeAlias = Callable[[IntArray], Sequence[tuple[int, ...]]]
"""Converts positions in a sequence of blocks to block indexes."""

T = TypeVar("T")


class BlockQueries:
    """Queries one cluster about futures; not used on the client's event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.timeout = block_timeout()

    def wait_for_holders(
        self, futures: Sequence[Future[Any]], grid: BlockGrid
    ) -> Mapping[Key, Sequence[str]]:
        """Wait until all blocks of a collection are in memory; return the holders of each.

        Raises `BlockLostError` or `BlockTimeoutError` if blocks are lost, or do not become ready in
        time.
        """
        progress = Progress(self.timeout)
        while True:
            self.wait_done(futures, grid.indexes)
            holders = self._holders(futures)
            absent = sum(not holders.get(future.key) for future in futures)
            if not absent:
                return holders
            # Moving, or lost with a worker whose death has not been reported yet.
            if not progress.pause(absent):
                raise self._timed_out(absent)

    def _holders(self, futures: Sequence[Future[Any]]) -> Mapping[Key, Sequence[str]]:
        try:
            holders: Mapping[Key, Sequence[str]] = self._sync(
                self._query, self._client.who_has, futures
            )
        except CancelledError:  # raised again by the next wait
            return {}
        return holders

    def wait_done(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        """Wait for pending blocks; raise the error of a failed one.

        Raises `BlockLostError` or `BlockTimeoutError` if blocks are lost, or do not become ready in
        time.
        """
        check_open(self._client)  # closing it cancels all futures
        pending = [future for future in futures if future.status in ("pending", "lost")]
        if pending:
            self._request_reports(futures, indexes)
        progress = Progress(self.timeout, longest=0.1)  # the client is notified
        while pending:
            if not progress.pause(len(pending)):
                raise self._timed_out(len(pending))
            left = [future for future in pending if future.status in ("pending", "lost")]
            if len(left) < len(pending):
                pending = left
                self._check_not_failed(futures, indexes)
        self._check_not_failed(futures, indexes)

    def _request_reports(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        """Make the scheduler report to this client when pending blocks are in memory.

        It does so by default only for blocks that this client has computed, not for unpickled
        futures.
        """
        pending = {at: future.key for at, future in enumerate(futures) if not future.done()}
        self._wait_for_sent_graphs()
        unknown = set(self._sync(self._query_reports, list(pending.values())))
        lost = np.asarray([at for at, key in pending.items() if key in unknown], dtype=np.int64)
        _raise_if_lost(lost, futures, indexes)

    def _wait_for_sent_graphs(self) -> None:
        """Wait until the scheduler has received all graphs that the client has sent.

        Graphs and queries use different connections, so a query may overtake the graph of its
        blocks. An empty graph that requests an unknown key uses the connection of the graphs, and
        the scheduler cancels the key immediately.
        """
        key = f"spliter-unknown-{uuid.uuid4().hex}"
        answer: Future[Any] = self._client.get({}, key, sync=False)
        try:
            answer.exception(timeout=self.timeout, asynchronous=False)
        except TimeoutError as error:
            raise no_answer_error(self.timeout) from error

    async def _query_reports(self, keys: Sequence[Key]) -> list[Key]:
        unknown: list[Key] = []
        for start in range(0, len(keys), BATCH):
            unknown += await self._client.run_on_scheduler(
                add_client_keys, keys[start : start + BATCH], self._client.id
            )
        return unknown

    def _check_not_failed(self, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
        failed = next((future for future in futures if future.status == "error"), None)
        if failed is not None:
            # The client already has the block's error.
            error = failed.exception(timeout=self.timeout, asynchronous=False)
            if error is not None:
                raise error.with_traceback(failed.traceback(self.timeout, asynchronous=False))
        check_not_cancelled(futures, indexes)

    def sizes(self, futures: Sequence[Future[Any]]) -> IntArray:
        """Return the bytes of each result as measured by Dask, 0 if the scheduler has none."""
        nbytes = functools.partial(self._client.nbytes, summary=False)
        keys = [future.key for future in futures]
        sizes: Mapping[Key, int] = self._sync(self._query, nbytes, keys)
        return np.asarray([sizes.get(key, 0) for key in keys], dtype=np.int64)

    async def _query(
        self, query: Callable[..., Awaitable[Mapping[Key, T]]], about: Sequence[Any]
    ) -> dict[Key, T]:
        answer: dict[Key, T] = {}
        for start in range(0, len(about), BATCH):
            answer.update(await query(about[start : start + BATCH]))
        return answer

    def _sync(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        answer: T = call_client(self._client, fn, *args)
        return answer

    def _timed_out(self, blocks: int) -> BlockTimeoutError:
        return BlockTimeoutError(
            f"{blocks} block(s) are pending, and none became ready in {self.timeout:g} s; see "
            "Dask's dashboard for the reason, or raise the Dask setting spliter.block-timeout"
        )


def check_not_cancelled(futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
    """Raise an error that names the cancelled blocks, if there are any."""
    cancelled = [at for at, future in enumerate(futures) if future.status == "cancelled"]
    _raise_if_lost(np.asarray(cancelled, dtype=np.int64), futures, indexes)


def _raise_if_lost(lost: IntArray, futures: Sequence[Future[Any]], indexes: IndexesOf) -> None:
    """Raise an error that names lost blocks, if there are any."""
    if not len(lost):
        return
    blocks = indexes(lost)
    why = (
        "cannot be computed: the blocks that they are made from were cancelled, or lost by Dask, "
        f"{FUSED_FILES}"
        if lacked_dependencies(futures[lost[0]])
        else "were cancelled, dropped by client.restart(), or lost with the worker they were "
        "scattered to; make the collection again and split it"
    )
    raise BlockLostError(f"{name_blocks(blocks)} {why}", tuple(blocks))
