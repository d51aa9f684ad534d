"""xarray: split labelled arrays along a dimension, with their coordinates.

Not an engine: the chunks are Dask arrays, on a cluster or in this process.

``collection``  ``along``: selects the dimension to split
``locator``     finds the chunks
``view``        restores coordinates and attributes of chunks, at the location of a partition
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.xarray.collection import along
from spliter_backends.xarray.locator import XarrayLocator

__all__ = ["BACKEND", "along"]

BACKEND = Backend("xarray", XarrayLocator(), lambda _: None)
"""Loaded by the registry under the name ``"xarray"``."""
