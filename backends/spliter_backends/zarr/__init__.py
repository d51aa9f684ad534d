"""Zarr arrays read by Dask workers, each of which reads its own range of chunks.

Not an engine. (A Zarr array by itself is split by the local backend.)

``collection``  ``on_workers``: have Dask workers read an array, as they read files
"""

from __future__ import annotations

from typing import Any

from spliter.backend import Backend
from spliter_backends.zarr.collection import on_workers

__all__ = ["BACKEND", "on_workers"]


def __getattr__(name: str) -> Any:
    """Import the backend when the registry loads it: unlike ``on_workers`` it needs Dask."""
    if name != "BACKEND":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spliter_backends.files.locator import StoredLocator
    from spliter_backends.zarr.collection import ZarrCollection

    return Backend("zarr", StoredLocator(ZarrCollection), lambda _: None)
