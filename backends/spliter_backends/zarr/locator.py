"""Open Zarr arrays marked with ``on_workers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import get_client

from spliter import BackendNotUsableError, UnsupportedCollectionError
from spliter.backend import Locator
from spliter_backends.dask.locator import check_thread, waiting_executor
from spliter_backends.zarr.blocks import ZarrBlocks
from spliter_backends.zarr.collection import ZarrCollection


class ZarrLocator(Locator):
    """Finds the blocks of Zarr arrays that Dask workers read."""

    def recognises(self, collection: Any) -> bool:
        """Return whether it was returned by :func:`on_workers`."""
        return isinstance(collection, ZarrCollection)

    def open(self, collections: Sequence[Any]) -> ZarrBlocks:
        """Open arrays, to be read by the workers of the client of the first; nothing is read."""
        for collection in collections:
            if not self.recognises(collection):
                raise UnsupportedCollectionError(
                    f"{type(collection).__name__} is not a result of on_workers(array); wrap each "
                    "array: split(on_workers(x), on_workers(y))"
                )
        check_thread()
        try:
            client = collections[0].client or get_client()
        except ValueError as error:
            raise BackendNotUsableError(
                "there is no Dask client whose workers could read the array; connect one, or split "
                "the Zarr array itself, which is read by threads of this process"
            ) from error
        return ZarrBlocks(client, waiting_executor(client), [each.array for each in collections])
