"""The apps at an engine that calls functions on blocks, posed small: what its ways are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.engine import Engine, EngineKind
from spliter_experiments.compare.ways import OFF_CLUSTER
from spliter_experiments.compare.workloads.app import App, ways_of, ways_on
from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.knn import Neighbors
from spliter_experiments.compare.workloads.site import Site
from spliter_experiments.compare.workloads.sums import Sum
from tests.experiments.staging import IRIS, answer, iris_file, staged, tasks_of

NBLOCKS = 20
PAIRS = NBLOCKS + 7 * (NBLOCKS + 1)
"""Tasks that ask the trees of all blocks 7 blocks of queries: trees, pairs and merges."""

APPS: dict[str, tuple[App[Any], InputChoice]] = {
    "sum": (Sum(passes=2), InputChoice(None, None, rows=2003, dims=3, seed=8)),
    "histogram": (Histogram(4), InputChoice(None, None, rows=2003, dims=3, seed=8)),
    "kmeans": (
        KMeans(clusters=3, iterations=4, seed=1),
        InputChoice(None, None, rows=2003, dims=4, seed=8),
    ),
    "csvm": (
        CascadeSvm(label=None, iterations=5, tol=0.0),
        InputChoice(None, None, rows=600, dims=3, seed=4),
    ),
    "knn": (
        Neighbors(neighbors=3, queries=50),
        # Repeated, so that there are points at one distance.
        InputChoice(iris_file(400), IRIS, rows=0, dims=0, seed=0),
    ),
    "knn-blocks": (
        Neighbors(neighbors=3, queries=50, query_blocks=7),
        InputChoice(iris_file(400), IRIS, rows=0, dims=0, seed=0),
    ),
}

ON_DASK_ALONE = {
    *("rechunk-p2p", "rechunk-tasks", "by-hand", "dask", "dask-partitioned", "dask-ml"),
    "per-block-paper",
}


def all_ways(kind: EngineKind) -> list[tuple[str, str]]:
    """Return the ways of all apps on an engine, with the app's name."""
    return [(name, way) for name, (app, _) in APPS.items() for way in ways_on(kind, app)]


def few_ways(kind: EngineKind) -> list[tuple[str, str]]:
    """Return SplIter's way of all apps and all ways of one: the others share its calls."""
    return [(name, way) for name, way in all_ways(kind) if way == "spliter" or name == "sum"]


def check_ways(kind: EngineKind) -> None:
    """Make sure that nothing is missing but what Dask alone has."""
    for app, _ in APPS.values():
        ways = ways_on(kind, app)
        assert set(app.ways) - set(ways) <= ON_DASK_ALONE
        assert set(app.ways) & set(OFF_CLUSTER) <= set(ways)
        assert not ON_DASK_ALONE & set(ways)


@dataclass(frozen=True)
class Posed:
    """An app with its problem, at a site."""

    kind: EngineKind
    app: App[Any]
    site: Site[Any]
    problem: Any

    def answer(self, way: str) -> Any:
        return answer(self.app, ways_of(self.kind, type(self.app)), way, self.site, self.problem)

    def tasks(self, way: str) -> int:
        return tasks_of(ways_of(self.kind, type(self.app)), way, self.site, self.problem)


@contextmanager
def pose(
    kind: EngineKind, name: str, engine: Engine, processes: dict[str, Baseline]
) -> Iterator[Posed]:
    """Load the data of an app and pose its problem."""
    app, choice = APPS[name]
    with staged(engine, app.open(choice), NBLOCKS, **processes) as site:
        yield Posed(kind, app, site, app.pose(site))
