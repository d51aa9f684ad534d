"""Every way finds the neighbours that scikit-learn finds, with the tasks that are promised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from distributed import Client
from sklearn.neighbors import NearestNeighbors as SingleSearch

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset, Floats
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.engines.dask_meter import DaskIdle
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.dask import DaskSite
from spliter_experiments.compare.workloads.knn import Neighbors, Query
from spliter_experiments.harness.errors import InputError
from tests.experiments.call_ways import PAIRS
from tests.experiments.staging import IRIS, answer, iris_file, phases, staged_on_dask, tasks_of

WAYS = ways_of(ENGINE, Neighbors)

pytestmark = pytest.mark.backend("dask")

NBLOCKS = 20
APP = Neighbors(neighbors=3, queries=50)
IN_BLOCKS = Neighbors(neighbors=3, queries=50, query_blocks=7)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    # Repeated, so that there are points at one distance.
    return APP.open(InputChoice(iris_file(400), IRIS, rows=0, dims=0, seed=0))


@pytest.fixture(scope="module")
def site(client: Client, dataset: Dataset, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    with staged_on_dask(client, dataset, NBLOCKS, **processes) as staged:
        yield staged


@pytest.fixture(scope="module")
def site_of_blocks(client: Client, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    opened = IN_BLOCKS.open(InputChoice(iris_file(400), IRIS, rows=0, dims=0, seed=0))
    with staged_on_dask(client, opened, NBLOCKS, **processes) as staged:
        yield staged


@pytest.fixture(scope="module")
def query(site: DaskSite) -> Query:
    return APP.pose(site)


@pytest.fixture(scope="module")
def rest(site: DaskSite, site_of_blocks: DaskSite) -> DaskIdle:
    return site.engine.idle_state([site.array, site_of_blocks.array, site_of_blocks.queries])


@pytest.fixture(autouse=True)
def put_back(rest: DaskIdle) -> Iterator[None]:
    """Start every test with the blocks where Dask put them, and nothing left of the others."""
    rest.wait()
    yield
    rest.wait()


def expected(query: Query, dataset: Dataset) -> Floats:
    search = SingleSearch(n_neighbors=query.neighbors, algorithm="ball_tree")
    distances: Floats
    distances, _ = search.fit(dataset.points.read(0, 350)).kneighbors(query.points)
    return distances


def test_queries_are_held_out(site: DaskSite, query: Query, dataset: Dataset) -> None:
    assert site.array.shape == (350, 4)
    assert query.points is not None
    assert query.points.shape == (50, 4)


@pytest.mark.parametrize("way", Neighbors.ways)
def test_distances_are_those_of_scikit_learn(
    way: str, site: DaskSite, query: Query, dataset: Dataset
) -> None:
    found = answer(APP, WAYS, way, site, query)
    wanted = expected(query, dataset)
    assert wanted.max() > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert APP.same(found, wanted)


@pytest.mark.parametrize("way", Neighbors.ways)
def test_queries_in_blocks(
    way: str, site_of_blocks: DaskSite, query: Query, dataset: Dataset
) -> None:
    assert site_of_blocks.queries.chunks == ((8, 7, 7, 7, 7, 7, 7), (4,))
    posed = IN_BLOCKS.pose(site_of_blocks)
    assert posed.points is None
    found = answer(IN_BLOCKS, WAYS, way, site_of_blocks, posed)
    starts = [0, 8, 15, 22, 29, 36, 43]
    wanted = np.add.reduceat(expected(query, dataset), starts)
    assert wanted.shape == (7, 3)
    assert IN_BLOCKS.same(found, wanted)


def test_tasks_of_queries_in_blocks(site_of_blocks: DaskSite) -> None:
    posed = IN_BLOCKS.pose(site_of_blocks)
    assert tasks_of(WAYS, "per-block", site_of_blocks, posed) == PAIRS
    # Eight for each of two workers, the blocks of the distances, and the names of their columns.
    assert tasks_of(WAYS, "spliter", site_of_blocks, posed) == 2 * 8 + 7 + 1


def test_number_of_tasks_per_block(site: DaskSite, query: Query) -> None:
    # The answers of each of 20 blocks, merged 16 at a time to 2, and to 1.
    assert tasks_of(WAYS, "per-block", site, query) == NBLOCKS + 2 + 1


def test_spliter_has_fewer_tasks_than_blocks(site: DaskSite, query: Query) -> None:
    assert tasks_of(WAYS, "spliter", site, query) < NBLOCKS


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_time_is_reported_apart(way: str, site: DaskSite, query: Query) -> None:
    assert list(phases(WAYS, way, site, query)) == ["rechunk"]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ([[1.0, 2.0 + 1e-12]], True),
        ([[1.0, 2.001]], False),
        ([[1.0, 2.0], [1.0, 2.0]], False),
        ([[1.0]], False),
    ],
)
def test_what_counts_as_the_same(other: list[list[float]], same: bool) -> None:
    assert APP.same(np.array([[1.0, 2.0]]), np.array(other)) is same


def test_more_neighbours_than_points(dataset: Dataset) -> None:
    with pytest.raises(InputError, match="350 points to look among, fewer than --neighbors 351"):
        Neighbors(351, 50).check(dataset)
    Neighbors(350, 50).check(dataset)


def test_more_blocks_than_queries() -> None:
    with pytest.raises(InputError, match="50 rows cannot be cut into 51 blocks"):
        Neighbors(3, 50, query_blocks=51).open(InputChoice(None, None, 100, 2, 0))
