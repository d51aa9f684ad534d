"""xarray: split labelled arrays along a dimension, with their coordinates.

Not an engine: the chunks are Dask's, on a cluster or in this process.

``collection``  ``along``: which dimension to split
``locator``     finds the chunks
``view``        puts coordinates and attributes back on chunks, at the location of a partition
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.xarray.collection import along
from spliter_backends.xarray.locator import XarrayLocator

__all__ = ["BACKEND", "along"]

BACKEND = Backend("xarray", XarrayLocator(), lambda _: None)
"""What the registry loads under the name ``"xarray"``."""
