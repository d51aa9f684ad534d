"""Data put on an engine, as a comparison does it, for ways to run at."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from distributed import Client
from sklearn.datasets import load_iris

from spliter_experiments.compare.data.sources import Dataset, cut_rows
from spliter_experiments.compare.engines.dask_engine import DaskEngine
from spliter_experiments.compare.engines.engine import Engine
from spliter_experiments.compare.ways import OFF_CLUSTER
from spliter_experiments.compare.workloads.app import App, Ways
from spliter_experiments.compare.workloads.site import Site, loaded

IRIS = "0,1,2,3"
"""Columns of iris; the next one, "target", is the class."""


@functools.cache
def iris_file(rows: int) -> str:
    """Write iris, sorted by its three classes and repeated up to so many rows."""
    folder = tempfile.mkdtemp(prefix="spliter-iris-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    frame = load_iris(as_frame=True).frame
    repeated = pd.concat([frame] * (rows // len(frame) + 1))[:rows]
    repeated.to_parquet(Path(folder) / "iris.parquet", index=False)
    return str(Path(folder) / "iris.parquet")


@contextmanager
def staged(engine: Engine, dataset: Dataset, nblocks: int, **processes: Any) -> Iterator[Site[Any]]:
    """Load a data set in so many blocks."""
    with loaded(engine, dataset, cut_rows(dataset.points.rows, nblocks), **processes) as data:
        yield data.site


@contextmanager
def staged_on_dask(
    client: Client, dataset: Dataset, nblocks: int, **processes: Any
) -> Iterator[Site[DaskEngine]]:
    """Load a data set at Dask workers."""
    with staged(DaskEngine(client), dataset, nblocks, **processes) as site:
        yield site


def answer(app: App[Any], table: Ways, way: str, site: Site[Any], problem: Any) -> Any:
    """Run a way, on the cluster or off it, and return its answer."""
    if way not in OFF_CLUSTER:
        return table.run[way](site, problem).value
    here = app.in_processes(way, site, problem)
    here.prepare()
    try:
        return here.run().value
    finally:
        here.release()


def phases(table: Ways, way: str, site: Site[Any], problem: Any) -> Mapping[str, float]:
    """Run a way on the cluster and return the parts of it that it tells apart."""
    found: Mapping[str, float] = table.run[way](site, problem).phases
    return found


def tasks_of(table: Ways, way: str, site: Site[Any], problem: Any) -> int:
    """Run a way on the cluster and return how many tasks it took."""
    with site.engine.meter() as meter:
        before = meter.reading()
        table.run[way](site, problem)
        tasks: int = meter.reading().since(before).tasks
        return tasks
