"""Programs of Dask's own methods, and the collections that they run on.

Dask, xarray and dask-ml are imported when a program is run: the command's help reads the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spliter_experiments.compare.data.sources import Points, no_points, row_starts

COLUMNS: Final = 8
"""Columns of arrays; points of the map, in each hour, of fields."""

GROUPS: Final = 50

STATISTICS: Final = {"v": ["mean", "std"], "w": "sum"}
"""Aggregations of the groups."""

Make = Callable[[Points, Sequence[int]], Any]
"""Makes a lazy collection of points, in chunks of so many rows."""


@dataclass(frozen=True)
class Program:
    """A program, and the collection that it runs on.

    Given the collection, `run` returns the result, lazy or not. Results of other chunks may differ
    by the relative `tolerance`; `needs` is a module that has to be there.
    """

    meaning: str
    make: Make
    run: Callable[[Any], Any]
    tolerance: float = 1e-9
    needs: str = ""


def make_array(points: Points, row_chunks: Sequence[int]) -> Any:
    from spliter_experiments.compare.engines.dask_engine import lazy_rows

    return lazy_rows(points, row_chunks, no_points(points))


def make_field(points: Points, row_chunks: Sequence[int]) -> Any:
    """Return points as hours from 1900 on of a map, dimensions time, lat and lon."""
    import pandas as pd
    import xarray as xr

    from spliter_experiments.compare.engines.dask_engine import lazy_rows

    values = lazy_rows(points, row_chunks, np.empty((0, 2, COLUMNS // 2)))
    hours = pd.date_range("1900", periods=points.rows, freq="h")
    return xr.DataArray(values, dims=("time", "lat", "lon"), coords={"time": hours})


def make_frame(points: Points, row_chunks: Sequence[int]) -> Any:
    """Return points as a frame: keys ``k`` of groups, and values ``v`` and ``w``."""
    import dask.dataframe as dd

    meta = read_frame(0, 0, points)
    return dd.from_map(read_frame, row_starts(row_chunks), row_chunks, points=points, meta=meta)


def read_frame(start: int, size: int, points: Points) -> Any:
    import pandas as pd

    k, v, w, *_ = points.read(start, start + size).T
    return pd.DataFrame({"k": (k * GROUPS).astype(np.int64), "v": v, "w": w})


def make_bag(points: Points, row_chunks: Sequence[int]) -> Any:
    import dask.bag as db

    return db.range(points.rows, npartitions=len(row_chunks))


def in_large_chunks(collection: Any, count: int) -> Any:
    """Return a collection rechunked along its first axis, or repartitioned, to so many chunks."""
    import dask

    if hasattr(collection, "repartition"):
        return collection.repartition(npartitions=count)
    rows = -(-collection.shape[0] // count)
    # By P2P, which may be Dask's choice, bytes are not counted.
    with dask.config.set({"array.rechunk.method": "tasks"}):
        if hasattr(collection, "dims"):
            return collection.chunk({collection.dims[0]: rows})
        return collection.rechunk({0: rows})


def smooth(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    mean: npt.NDArray[Any] = (np.roll(block, 1, axis=0) + block + np.roll(block, -1, axis=0)) / 3
    return mean


def histogram(x: Any) -> Any:
    import dask.array as da

    return da.histogramdd(x[:, :2], bins=8, range=((0, 1), (0, 1)))[0]


def singular_values(x: Any) -> Any:
    import dask.array as da

    return da.linalg.svd_compressed(x, 3, seed=0)[1]


def merge(frame: Any) -> Any:
    """Join a small frame, which goes everywhere, and sum a column of it."""
    import pandas as pd

    other = pd.DataFrame({"k": np.arange(GROUPS), "z": np.arange(GROUPS) / 7})
    return frame.merge(other, on="k").z.sum()


def fold(bag: Any) -> Any:
    add = int.__add__
    return bag.foldby(functools.partial(remainder, by=7), add, 0, add, 0)


def remainder(number: int, by: int) -> int:
    return number % by


def scale(x: Any) -> Any:
    from dask_ml.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    return np.asarray(scaler.mean_), np.asarray(scaler.var_)


def _of_array(meaning: str, run: Callable[[Any], Any], needs: str = "") -> Program:
    return Program(meaning, make_array, run, needs=needs)


def _of_field(meaning: str, run: Callable[[Any], Any]) -> Program:
    return Program(meaning, make_field, run, needs="xarray")


def _of_frame(meaning: str, run: Callable[[Any], Any], tolerance: float = 1e-9) -> Program:
    return Program(meaning, make_frame, run, tolerance)


DASK_PROGRAMS: Final = {
    "sum": _of_array("x.sum()", lambda x: x.sum()),
    "mean": _of_array("x.mean(axis=0)", lambda x: x.mean(axis=0)),
    "std": _of_array("x.std(axis=0)", lambda x: x.std(axis=0)),
    "histogramdd": _of_array("da.histogramdd of two columns", histogram),
    "normalise": _of_array(
        "((x - x.mean(axis=0)) ** 2).sum(axis=0)", lambda x: ((x - x.mean(axis=0)) ** 2).sum(axis=0)
    ),
    "svd": _of_array("da.linalg.svd_compressed(x, 3)", singular_values),
    "stencil": _of_array(
        "x.map_overlap(f, depth={0: 1}).sum()",
        lambda x: x.map_overlap(smooth, depth={0: 1}, boundary="reflect").sum(),
    ),
    "cumsum": _of_array("x[:, 0].cumsum(axis=0)[-5:]", lambda x: x[:, 0].cumsum(axis=0)[-5:]),
    "climatology": _of_field(
        'field.groupby("time.month").mean()', lambda field: field.groupby("time.month").mean()
    ),
    "anomalies": _of_field(
        '(field - field.mean("time")).std("time")',
        lambda field: (field - field.mean("time")).std("time"),
    ),
    "rolling": _of_field(
        'field.rolling(time=5).mean().std("time")',
        lambda field: field.rolling(time=5).mean().std("time"),
    ),
    "zonal": _of_field(
        'field.mean("lon").mean("time")', lambda field: field.mean("lon").mean("time")
    ),
    # Quantiles are approximate: those of 48 partitions of 80 rows are 40 % off those of two.
    "describe": _of_frame("frame.describe()", lambda frame: frame.describe(), tolerance=1.0),
    # The order after a shuffle is that of the partitions.
    "value-counts": _of_frame(
        "frame.k.value_counts(), with a shuffle",
        lambda frame: frame.k.value_counts().compute().sort_index(),
    ),
    "group-by": _of_frame(
        f'frame.groupby("k").agg(...), {GROUPS} groups, with a shuffle',
        lambda frame: frame.groupby("k").agg(STATISTICS).compute().sort_index(),
    ),
    "group-by-sorted": _of_frame(
        'frame.groupby("k", sort=True).agg(...), without a shuffle',
        lambda frame: frame.groupby("k", sort=True).agg(STATISTICS),
    ),
    "merge": _of_frame("frame.merge(small).z.sum()", merge),
    "foldby": Program("bag.foldby(...)", make_bag, fold),
    "scaler": _of_array(
        "dask_ml.preprocessing.StandardScaler().fit(x)", scale, needs="dask_ml.preprocessing"
    ),
}
"""Programs by name, in the order of the tables."""
