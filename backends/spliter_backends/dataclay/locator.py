"""Find the persistent objects of a collection's blocks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from spliter import BlockGrid, UnsupportedCollectionError
from spliter.backend import Locator
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends.dataclay.blocks import DataClayBlocks
from spliter_backends.dataclay.collection import DataClayArray
from spliter_backends.dataclay.executor import current_executor
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay import DataClayObject

ALIGNED_ADVICE = (
    "collections that are split together must all be in dataClay: DataClayArrays "
    "(see spliter_backends.dataclay.collection), or lists of persistent objects"
)


class DataClayLocator(Locator):
    """Finds the blocks of DataClayArrays, and of lists of persistent objects."""

    def recognises(self, collection: Any) -> bool:
        """Return whether it is a DataClayArray, or a list of dataClay objects."""
        if isinstance(collection, list | tuple):
            return bool(collection) and isinstance(collection[0], DataClayObject)
        return isinstance(collection, DataClayArray)

    def open(self, collections: Sequence[Any]) -> DataClayBlocks:
        """Open collections, without querying the locations of their blocks yet."""
        executor = current_executor()
        members = [_open(collection) for collection in collections]
        return DataClayBlocks(executor, executor.session, members)


def _open(collection: Any) -> CollectionBlocks[uuid.UUID]:
    if isinstance(collection, DataClayArray):
        grid = BlockGrid.from_chunks(collection.chunks)
        return CollectionBlocks(grid, collection.object_ids, collection.block_nbytes)
    if not isinstance(collection, list | tuple) or not collection:
        raise UnsupportedCollectionError(
            f"{type(collection).__name__} is not a collection in dataClay; {ALIGNED_ADVICE}"
        )
    for position, element in enumerate(collection):
        if not isinstance(element, DataClayObject):
            raise UnsupportedCollectionError(
                f"element {position} of the list is a {type(element).__name__}, not a dataClay "
                f"object; {ALIGNED_ADVICE}"
            )
        if not element._dc_is_registered:
            raise UnsupportedCollectionError(
                f"element {position} of the list, {element!r}, is not persistent, so it is at no "
                "backend yet; call its make_persistent() first"
            )
    object_ids = [element._dc_meta.id for element in collection]
    return CollectionBlocks(BlockGrid.of_unknown_sizes(len(object_ids)), object_ids)
