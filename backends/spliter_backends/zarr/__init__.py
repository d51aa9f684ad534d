"""Zarr: stored arrays whose chunks Dask workers read, each its own range of them.

Not an engine. (A Zarr array by itself is split by the local backend.)

``collection``  ``on_workers``: have Dask workers read an array
``locator``     opens such an array
``blocks``      which worker reads which chunks, and how
"""

from __future__ import annotations

from typing import Any

from spliter.backend import Backend
from spliter_backends.zarr.collection import on_workers

__all__ = ["BACKEND", "on_workers"]


def __getattr__(name: str) -> Any:
    """Make what the registry loads when it is asked for: unlike ``on_workers`` it needs Dask."""
    if name != "BACKEND":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spliter_backends.zarr.locator import ZarrLocator

    return Backend("zarr", ZarrLocator(), lambda _: None)
