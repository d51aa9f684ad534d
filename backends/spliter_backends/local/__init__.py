"""Local backend: collections in this process or its files, tasks on threads of this process.

``locator``   finds the blocks of lists, memory maps, Zarr arrays and computed Dask collections
``executor``  runs tasks on a pool of threads

The blocks of a Split are :class:`spliter_backends._shared.process_blocks.LocalBlocks`.
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.local.executor import LocalExecutor, executor_of_future
from spliter_backends.local.locator import LocalLocator

__all__ = ["BACKEND", "LocalExecutor", "LocalLocator"]

BACKEND = Backend("local", LocalLocator(), executor_of_future)
"""Loaded by the registry under the name ``"local"``."""
