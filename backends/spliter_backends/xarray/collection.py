"""Select the dimension along which an xarray object is split.

xarray names its dimensions, so their order in memory need not be the order of a program's loops:
``split(along(data, "time"))`` makes partitions of whole chunks of time, each of which yields
DataArrays (or Datasets) with their coordinates.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

import xarray as xr

from spliter import InvalidArgumentError

XarrayObject: TypeAlias = "xr.DataArray | xr.Dataset"


@dataclass(frozen=True, eq=False)
class XarrayCollection:
    """An xarray object and the dimension to split it along; returned by :func:`along`.

    Parameters
    ----------
    data : DataArray or Dataset
        Object with chunked variables.
    dim : hashable
        Name of one of its dimensions.
    """

    data: XarrayObject
    dim: Hashable


def along(data: XarrayObject, dim: Hashable) -> XarrayCollection:
    """Select the dimension to split an xarray object along, for :func:`spliter.split`.

    Nothing is computed or copied.

    Parameters
    ----------
    data : DataArray or Dataset
        Its chunked variables must be persisted: ``data.chunk(time=24).persist()``.
    dim : hashable
        Name of the dimension whose items are the rows.

    Returns
    -------
    XarrayCollection
        Partitions yield a DataArray (or Dataset) for each chunk, with its coordinates, `dim` first.
        If other dimensions are chunked too, block indexes have an axis for each, after `dim`.

    Raises
    ------
    InvalidArgumentError
        If there is no such dimension, or `data` is not an xarray object.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from spliter import split
    >>> data = xr.DataArray(
    ...     np.arange(12.0).reshape(2, 6),
    ...     dims=("site", "time"),
    ...     coords={"time": np.arange(100, 106), "site": ["a", "b"]},
    ... )
    >>> chunks = data.chunk(time=3).persist(scheduler="threads")
    >>> def means(partition):
    ...     return [
    ...         (int(block.time[0]), block.mean("time").sel(site="b").item()) for block in partition
    ...     ]
    >>> parts = split(along(chunks, "time"), partitions_per_location=1)
    >>> parts.map(means)[0].result()
    [(100, 7.0), (103, 10.0)]
    """
    if not isinstance(data, xr.DataArray | xr.Dataset):
        raise InvalidArgumentError(
            f"along() takes a DataArray or a Dataset of xarray, got a {type(data).__name__}"
        )
    if dim not in data.dims:
        raise InvalidArgumentError(
            f"there is no dimension {dim!r}; choose from {', '.join(map(repr, data.dims))}"
        )
    return XarrayCollection(data, dim)
