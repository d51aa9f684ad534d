"""Say along which dimension an xarray object is to be split.

xarray names its dimensions, so the order in which they are stored need not be the one that a
program loops by: ``split(along(data, "time"))`` makes partitions of whole chunks of time, each of
which yields DataArrays (or Datasets) with their coordinates.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

import xarray as xr

from spliter import InvalidArgumentError

Labelled: TypeAlias = "xr.DataArray | xr.Dataset"


@dataclass(frozen=True, eq=False)
class Along:
    """An xarray object and the dimension to split it along; made by :func:`along`.

    Parameters
    ----------
    data : DataArray or Dataset
        Chunked.
    dim : hashable
        One of its dimensions.
    """

    data: Labelled
    dim: Hashable


def along(data: Labelled, dim: Hashable) -> Along:
    """Return what :func:`spliter.split` takes to split an xarray object along a dimension.

    Nothing is computed or copied.

    Parameters
    ----------
    data : DataArray or Dataset
        Of chunked variables, persisted: ``data.chunk(time=24).persist()``.
    dim : hashable
        Name of the dimension whose items the program counts as rows.

    Returns
    -------
    Along
        Partitions yield a DataArray (or Dataset) for each chunk, with the coordinates that go
        with it, `dim` first. Where other dimensions are chunked too, block indexes have an axis
        for each, after `dim`.

    Raises
    ------
    InvalidArgumentError
        If there is no such dimension, or `data` is not xarray's.

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
            f"there is no dimension {dim!r}; there are {', '.join(map(repr, data.dims))}"
        )
    return Along(data, dim)
