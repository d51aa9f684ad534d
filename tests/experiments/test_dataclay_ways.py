"""Every way on a real dataClay gives the answer of plain processes, with the calls promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("spliter_backends.dataclay_backend", exc_type=ImportError)

from spliter_experiments._comparison import OFF_CLUSTER, App, Site, ways_on
from spliter_experiments._csvm import CascadeSvm
from spliter_experiments._dataclay_engine import DataClayEngine
from spliter_experiments._datasets import InputChoice
from spliter_experiments._engine import ClusterChoice
from spliter_experiments._floor import Floor, start_floor
from spliter_experiments._histogram import Histogram
from spliter_experiments._kmeans import KMeans
from spliter_experiments._knn import Neighbors
from spliter_experiments._on_dataclay import ENGINE
from spliter_experiments._sum import Sum
from tests.experiments.staging import answer, staged, tasks_of

pytestmark = pytest.mark.backend("dataclay")

NBLOCKS = 20

APPS: dict[str, tuple[App[Any], InputChoice]] = {
    "sum": (Sum(passes=2), InputChoice(None, None, None, rows=2003, dims=3, seed=8)),
    "histogram": (Histogram(4), InputChoice(None, None, None, rows=2003, dims=3, seed=8)),
    "kmeans": (
        KMeans(clusters=3, iterations=4, seed=1),
        InputChoice(None, None, None, rows=2003, dims=4, seed=8),
    ),
    "csvm": (
        CascadeSvm(label=None, iterations=5, tol=0.0),
        InputChoice(None, None, None, rows=600, dims=3, seed=4),
    ),
    "knn": (
        Neighbors(neighbors=3, queries=50),
        # Tiled, so that there are points at one distance.
        InputChoice("sklearn:iris", None, 400, rows=0, dims=0, seed=0),
    ),
}

WAYS = [(name, way) for name, (app, _) in APPS.items() for way in ways_on(ENGINE, app)]


@dataclass(frozen=True)
class Posed:
    """An app with its problem, at a site."""

    app: App[Any]
    site: Site[Any]
    problem: Any

    def answer(self, way: str) -> Any:
        return answer(self.app, ENGINE.ways[self.app.name], way, self.site, self.problem)

    def tasks(self, way: str) -> int:
        return tasks_of(ENGINE.ways[self.app.name], way, self.site, self.problem)


@pytest.fixture(scope="module")
def engine() -> Iterator[DataClayEngine]:
    with ENGINE.connect(ClusterChoice(None, workers=2, threads=1)) as connected:
        assert isinstance(connected, DataClayEngine)
        yield connected


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Floor]]:
    with start_floor(2) as floor, start_floor(1, threads=2) as machine:
        yield {"floor": floor, "machine": machine}


@pytest.fixture(scope="module")
def posed(engine: DataClayEngine, processes: dict[str, Floor]) -> Iterator[dict[str, Posed]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(pose(name, engine, processes)) for name in APPS}


@contextmanager
def pose(name: str, engine: DataClayEngine, processes: dict[str, Floor]) -> Iterator[Posed]:
    app, choice = APPS[name]
    with app.open(choice) as dataset, staged(engine, dataset, NBLOCKS, **processes) as site:
        yield Posed(app, site, app.pose(site))


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_answers_are_those_of_plain_processes(name: str, way: str, posed: dict[str, Posed]) -> None:
    rest = posed[name].site.engine.rest([posed[name].site.array])
    found, wanted = posed[name].answer(way), posed[name].answer("floor")
    assert posed[name].app.same(found, wanted)
    del found
    rest.wait()


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("sum", 2),  # passes
        ("histogram", 1),
        # One in each iteration, and one for the labels.
        ("kmeans", 4 + 1),
        ("knn", 1),
    ],
)
def test_a_call_for_every_block(name: str, calls: int, posed: dict[str, Posed]) -> None:
    assert posed[name].tasks("per-block") == calls * NBLOCKS


def test_a_cascade_calls_every_block_in_every_iteration(posed: dict[str, Posed]) -> None:
    tasks = posed["csvm"].tasks("per-block")
    assert tasks % NBLOCKS == 0
    assert 1 < tasks / NBLOCKS <= 5


@pytest.mark.parametrize(("name", "passes"), [("sum", 2), ("histogram", 1)])
def test_a_call_for_every_partition_and_one_for_the_sum(
    name: str, passes: int, posed: dict[str, Posed]
) -> None:
    assert posed[name].tasks("spliter") == passes * (2 + 1)


@pytest.mark.parametrize("name", ["kmeans", "csvm", "knn"])
def test_fewer_calls_than_one_for_every_block(name: str, posed: dict[str, Posed]) -> None:
    assert posed[name].tasks("spliter") < posed[name].tasks("per-block")


def test_ways_there_are() -> None:
    on_dask_alone = {"rechunk-p2p", "rechunk-tasks", "dask", "dask-ml", "per-block-paper"}
    for app, _ in APPS.values():
        ways = ways_on(ENGINE, app)
        assert set(app.ways) - set(ways) <= on_dask_alone
        assert set(app.ways) & set(OFF_CLUSTER) <= set(ways)
        assert not on_dask_alone & set(ways)
