"""Find the futures of the blocks of persisted Dask collections and of lists of futures.

Collections without blocks on the cluster are rejected, with advice. Module ``blocks`` queries where
the blocks are.
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
from spliter.backend import Locator
from spliter_backends._shared.dask_graph import (
    belongs_to_cluster,
    block_values,
    persist_collections,
)
from spliter_backends.dask.blocks import DaskBlocks, PersistedCollection, ViewOf
from spliter_backends.dask.client.environment import check_environment
from spliter_backends.dask.executor import DaskExecutor, executor_for_client
from spliter_backends.dask.internals.worker import holds_pool_thread


class DaskLocator(Locator):
    """Finds the blocks of collections persisted on a distributed cluster."""

    def recognises(self, collection: Any) -> bool:
        """Return whether it is a Dask collection whose blocks are not values in its own graph."""
        if isinstance(collection, Future):
            return False
        if isinstance(collection, list | tuple):
            if not collection or isinstance(collection[0], Future):
                return bool(collection)
            collection = collection[0]
        return is_dask_collection(collection) and belongs_to_cluster(collection)

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy collections on the cluster; without waiting for them."""
        check_thread()
        return persist_collections(collections)

    def open(self, collections: Sequence[Any]) -> DaskBlocks:
        """Open collections whose blocks are futures."""
        check_thread()
        return open_collections([_open(collection) for collection in collections])


def open_collections(
    members: Sequence[PersistedCollection], view: ViewOf | None = None
) -> DaskBlocks:
    """Open collections whose futures are known.

    `view` returns the view of a planned partition: what its tasks yield instead of plain blocks.
    """
    client = _client_of([future for member in members for future in member.blocks])
    return DaskBlocks(client, waiting_executor(client), members, view)


def waiting_executor(client: Client) -> DaskExecutor:
    """Return the executor of a client, and install SplIter's plugin in its scheduler.

    Raises `BackendNotUsableError` if this thread is the client's event loop, or the cluster lacks
    SplIter.
    """
    executor = executor_for_client(client)
    if not executor.blocking_call_allowed():
        raise BackendNotUsableError(
            "split() waits for the scheduler and cannot run on the client's own event loop; use "
            "await asyncio.to_thread(split, collection)"
        )
    check_environment(client)
    executor.send_plugin()  # first: pending blocks may need it to be started
    return executor


def _open(collection: Any) -> PersistedCollection:
    """Look up the futures of one collection."""
    if isinstance(collection, list | tuple):
        parts = [_open_element(at, value) for at, value in enumerate(collection)]
        return PersistedCollection(BlockGrid.of_unknown_sizes(len(parts)), parts)
    if not is_dask_collection(collection):
        raise UnsupportedCollectionError(
            f"{type(collection).__name__} is not a Dask collection, list of futures or of lists; "
            "pass collections of one engine only (Dask workers read a Zarr array x as "
            "spliter_backends.zarr.on_workers(x))"
        )
    found = block_values(collection)
    if found.lazy:
        raise LazyCollectionError(
            f"this Dask {type(collection).__name__} has not been computed, so its blocks have no "
            "location; call x = x.persist() and split that, or split(x, persist=True)"
        )
    if not all(isinstance(value, Future) for value in found.values):
        raise LazyCollectionError(
            "the blocks of this Dask collection are values in its graph, in this process, not on "
            "the cluster; call x = x.persist() and split that, or use split(x, persist=True) or "
            "backend='local'"
        )
    return PersistedCollection(
        found.grid, found.values, found.nbytes, meta=found.meta, divisions=found.divisions
    )


def _open_element(at: int, value: Any) -> Future[Any]:
    if isinstance(value, Future):
        return value
    if not is_dask_collection(value):
        raise UnsupportedCollectionError(
            f"element {at} of the list of futures is a {type(value).__name__}; send blocks in "
            "memory to the cluster first: client.scatter(blocks, hash=False)"
        )
    found = block_values(value)
    if len(found.values) != 1:
        raise UnsupportedCollectionError(
            f"element {at} of the list of futures is a collection of {len(found.values)} blocks; "
            "split the collections themselves: split(x, y)"
        )
    if found.lazy or not isinstance(found.values[0], Future):
        raise LazyCollectionError(
            "the list contains delayed objects that have not been computed; call "
            "values = dask.persist(*values) and split that, or split(values, persist=True)"
        )
    future: Future[Any] = found.values[0]
    return future


def _client_of(futures: Sequence[Future[Any]]) -> Client:
    """Return the client of all futures; futures without one get this process's client."""
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
        f"the blocks belong to {len(clients)} different Dask clients; persist all collections "
        "with the same client"
    )


def check_thread() -> None:
    """Raise if this is a worker's pool thread: waiting in it for other tasks can deadlock."""
    try:
        get_worker()
    except ValueError:
        return
    if holds_pool_thread():
        raise BackendNotUsableError(
            "split() inside a task occupies the worker's thread while it waits for other tasks; "
            "call it under 'with distributed.worker_client() as client:'"
        )
