"""Dask as locator: from a persisted collection, or a list of futures, to its futures.

What does not have blocks on the cluster is refused here, with what to do about it. Where
the blocks are is asked in ``blocks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask.base import is_dask_collection
from distributed import Client, Future, get_client, get_worker

from spliter import (
    BackendNotUsableError,
    BlockGrid,
    LazyCollectionError,
    UnsupportedCollectionError,
)
from spliter_backends._shared.dask_graph import belongs_to_cluster, block_values, persisted
from spliter_backends.dask.blocks import CollectionBlocks, DaskBlocks, ViewOf
from spliter_backends.dask.client.environment import check_environment
from spliter_backends.dask.executor import DaskExecutor, executor_for_client
from spliter_backends.dask.internals import holds_pool_thread


class DaskLocator:
    """Finds the blocks of collections persisted on a distributed cluster."""

    def recognises(self, collection: Any) -> bool:
        """Whether it is a Dask collection that is not held in this process' graph alone."""
        if isinstance(collection, Future):
            return False
        if isinstance(collection, list | tuple):
            return bool(collection) and all(
                isinstance(value, Future)
                or (is_dask_collection(value) and belongs_to_cluster(value))
                for value in collection
            )
        return is_dask_collection(collection) and belongs_to_cluster(collection)

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Have lazy collections computed; see :class:`spliter.backend.SupportsPersist`."""
        check_thread()
        return persisted(collections)

    def open(self, collections: Sequence[Any]) -> DaskBlocks:
        """Open collections whose blocks are futures."""
        check_thread()
        return open_collections([_open(collection) for collection in collections])


def open_collections(members: Sequence[CollectionBlocks], view: ViewOf | None = None) -> DaskBlocks:
    """Open blocks whose futures have been looked up, of one client.

    Parameters
    ----------
    members : sequence of Member
        The first one is the one being split.
    view : callable, optional
        Makes what tasks on a planned partition see in place of its blocks.

    Returns
    -------
    DaskBlocks
        Holds the futures.
    """
    client = _client_of([future for member in members for future in member.futures])
    return DaskBlocks(client, waiting_executor(client), members, view)


def waiting_executor(client: Client) -> DaskExecutor:
    """Return the executor of a client, if this thread may wait for the scheduler.

    The scheduler runs SplIter's plugin from then on.

    Raises
    ------
    BackendNotUsableError
        If it is the client's event loop, or the cluster lacks SplIter.
    """
    executor = executor_for_client(client)
    if not executor.blocking_call_allowed():
        raise BackendNotUsableError(
            "split() asks the scheduler and waits for the answer, which cannot be done on "
            "the client's own event loop; use await asyncio.to_thread(split, collection)"
        )
    check_environment(client)
    executor.send_plugin()  # before blocks are waited for, which it may have to get started
    return executor


def _open(collection: Any) -> CollectionBlocks:
    """Look up the futures of one collection."""
    if isinstance(collection, list | tuple):
        parts = [_open_element(value) for value in collection]
        return CollectionBlocks(BlockGrid.of_unknown_sizes(len(parts)), parts, None)
    if not is_dask_collection(collection):
        raise UnsupportedCollectionError(
            f"{type(collection).__name__} is not a Dask collection; collections that are split "
            "together must all be Dask's"
        )
    found = block_values(collection)
    if found.lazy:
        raise LazyCollectionError(
            f"this Dask {type(collection).__name__} has not been computed, so its blocks are "
            "nowhere yet; call x = x.persist() and split that, or split(x, persist=True), which "
            "keeps its blocks as long as the Split"
        )
    if not all(isinstance(value, Future) for value in found.values):
        raise LazyCollectionError(
            "the blocks of this Dask collection are values in its graph, in this process and not "
            "on the cluster; call x = x.persist() and split that, or use split(x, persist=True) "
            "or backend='local'"
        )
    return CollectionBlocks(found.grid, found.values, found.nbytes, meta=found.meta)


def _open_element(value: Any) -> Future[Any]:
    if isinstance(value, Future):
        return value
    if not is_dask_collection(value):
        raise UnsupportedCollectionError(
            f"a list of futures has an element of type {type(value).__name__}; if it is a block in "
            "memory, send the blocks to the cluster first: client.scatter(blocks, hash=False)"
        )
    found = block_values(value)
    if len(found.values) != 1:
        raise UnsupportedCollectionError(
            f"a list of futures has a collection of {len(found.values)} blocks as an element; "
            "split collections themselves: split(x, y)"
        )
    if found.lazy:
        raise LazyCollectionError(
            "the list has delayed objects that have not been computed; call "
            "values = dask.persist(*values) and split that, or split(values, persist=True)"
        )
    future: Future[Any] = found.values[0]
    return future


def _client_of(futures: Sequence[Future[Any]]) -> Client:
    """Return the one client of all futures, bound to this process' if they have none."""
    clients = {future.client for future in futures}
    if None in clients:
        for future in futures:
            if future.client is None:
                future.bind_client(get_client())
        clients = {future.client for future in futures}
    if len(clients) == 1:
        client: Client | None = clients.pop()
        assert client is not None
        return client
    if not clients:
        current: Client = get_client()
        return current
    raise UnsupportedCollectionError(
        f"the blocks belong to {len(clients)} different Dask clients; split collections of one "
        "client, or persist them all with the same one"
    )


def check_thread() -> None:
    """Refuse to wait in a worker's thread that other tasks may need to finish first."""
    try:
        get_worker()
    except ValueError:
        return
    if holds_pool_thread():
        raise BackendNotUsableError(
            "split() inside a task would hold the worker's thread while it waits for other "
            "tasks; do it under 'with distributed.worker_client() as client:'"
        )
