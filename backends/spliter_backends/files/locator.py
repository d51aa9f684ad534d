"""Open stored collections marked with ``on_workers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import get_client

from spliter import BackendNotUsableError, UnsupportedCollectionError
from spliter.backend import Locator
from spliter_backends._shared.stored import OnWorkers
from spliter_backends.dask.locator import check_thread, waiting_executor
from spliter_backends.files.blocks import StoredBlocks


class StoredLocator(Locator):
    """Finds the blocks of stored collections that Dask workers read.

    Parameters
    ----------
    kind : type
        What ``on_workers`` of the format returns.
    """

    def __init__(self, kind: type[OnWorkers]) -> None:
        self._kind = kind

    def recognises(self, collection: Any) -> bool:
        """Return whether it was returned by the format's ``on_workers``."""
        return isinstance(collection, self._kind)

    def open(self, collections: Sequence[Any]) -> StoredBlocks:
        """Open collections, for the workers of the client of the first; nothing is read."""
        for collection in collections:
            if not isinstance(collection, OnWorkers):
                raise UnsupportedCollectionError(
                    f"{type(collection).__name__} is not a result of on_workers(...); wrap each "
                    "collection: split(on_workers(x), on_workers(y))"
                )
        check_thread()
        try:
            client = collections[0].client or get_client()
        except ValueError as error:
            raise BackendNotUsableError(
                "there is no Dask client whose workers could read the blocks; connect one, or "
                "split the collection without on_workers, which threads of this process read"
            ) from error
        return StoredBlocks(client, waiting_executor(client), [each.stored for each in collections])
