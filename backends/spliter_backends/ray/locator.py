"""Find the blocks of a list of references, a `RayArray` or a Ray Data dataset."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ray import ObjectRef

from spliter import (
    BackendNotUsableError,
    BlockGrid,
    LazyCollectionError,
    UnsupportedCollectionError,
)
from spliter.backend import UNKNOWN, Locator
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends.ray.blocks import RayBlocks
from spliter_backends.ray.cluster import connection, may_wait
from spliter_backends.ray.collection import RayArray
from spliter_backends.ray.executor import EXECUTOR


class RayLocator(Locator):
    """Finds the blocks of collections in Ray's object store."""

    def recognises(self, collection: Any) -> bool:
        """Return whether it is a list of references, a :class:`RayArray` or a dataset."""
        if isinstance(collection, list | tuple):
            return bool(collection) and isinstance(collection[0], ObjectRef)
        return isinstance(collection, RayArray) or _is_dataset(collection)

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Materialize lazy datasets and wait for them; return other collections unchanged."""
        connection()
        return [value.materialize() if _is_dataset(value) else value for value in collections]

    def open(self, collections: Sequence[Any]) -> RayBlocks:
        """Open collections, without querying the locations of their blocks yet."""
        connection()
        if not may_wait():
            raise BackendNotUsableError(
                "split() waits for Ray, which would block the event loop of this actor; use "
                "await asyncio.to_thread(split, collection)"
            )
        return RayBlocks(EXECUTOR, [_open(collection) for collection in collections])


def _open(collection: Any) -> CollectionBlocks[ObjectRef]:
    if isinstance(collection, RayArray):
        return CollectionBlocks(BlockGrid(collection.chunks), tuple(collection.blocks))
    if _is_dataset(collection):
        return _open_dataset(collection)
    if not isinstance(collection, list | tuple):
        raise UnsupportedCollectionError(
            f"{type(collection).__name__} is not a collection in Ray; aligned collections must be "
            "lists of references, RayArrays or datasets of Ray Data"
        )
    for at, value in enumerate(collection):
        if not isinstance(value, ObjectRef):
            raise UnsupportedCollectionError(
                f"element {at} of the list is a {type(value).__name__}, not a reference to an "
                "object in Ray; pass the result of ray.put() or of a remote function"
            )
    if not collection:
        raise UnsupportedCollectionError(
            "an empty list has no blocks to split; pass at least one reference"
        )
    return CollectionBlocks(BlockGrid.of_unknown_sizes(len(collection)), tuple(collection))


def _is_dataset(value: Any) -> bool:
    # Not imported here: a program with a dataset has imported it, and the import is slow.
    data = sys.modules.get("ray.data")
    return data is not None and isinstance(value, data.Dataset)


def _open_dataset(dataset: Any) -> CollectionBlocks[ObjectRef]:
    """Return the blocks of a dataset in order, with their numbers of rows."""
    from ray.data.dataset import MaterializedDataset

    if not isinstance(dataset, MaterializedDataset):
        raise LazyCollectionError(
            "this dataset has not been computed, so its blocks have no location; call "
            "ds = ds.materialize() and split that, or split(ds, persist=True)"
        )
    bundles = list(dataset.iter_internal_ref_bundles())
    if any(part is not None for bundle in bundles for part in bundle.slices or ()):
        raise UnsupportedCollectionError(
            "this dataset has parts of blocks; call ds = ds.repartition(n).materialize() and "
            "split that"
        )
    entries = [entry for bundle in bundles for entry in bundle.blocks]
    if not entries:
        raise UnsupportedCollectionError(
            "this dataset has no blocks to split; check that it is not empty"
        )
    rows = [entry.metadata.num_rows for entry in entries]
    sizes = tuple(UNKNOWN if count is None else int(count) for count in rows)
    return CollectionBlocks(BlockGrid((sizes,)), tuple(entry.ref for entry in entries))
