"""Every way counts exactly as NumPy does, with the tasks that its description promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from distributed import Client

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.sources import Dataset, GeneratedPoints, cut_rows
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.engines.dask_meter import DaskIdle
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.dask import DaskSite
from spliter_experiments.compare.workloads.histogram import Edges, Histogram, add_counts, equal_bins
from tests.experiments.staging import phases, staged_on_dask, tasks_of

WAYS = ways_of(ENGINE, Histogram)

pytestmark = pytest.mark.backend("dask")

POINTS = GeneratedPoints(rows=1001, dims=3, seed=8)
BINS = 4
NBLOCKS = 40


# Narrower than the data, so that some points are in no bin.
EDGES: Edges = equal_bins(np.array([[0.1, 0.0, 0.0], [0.9, 1.0, 0.5]]), BINS)


@pytest.fixture(scope="module")
def site(client: Client, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    with staged_on_dask(client, Dataset(POINTS), NBLOCKS, **processes) as staged:
        yield staged


@pytest.fixture(scope="module")
def rest(site: DaskSite) -> DaskIdle:
    return site.engine.idle_state([site.array])


@pytest.fixture(autouse=True)
def put_back(rest: DaskIdle) -> Iterator[None]:
    """Start every test with the blocks where Dask put them."""
    rest.wait()
    yield
    rest.wait()


def expected() -> object:
    counts, _ = np.histogramdd(POINTS.read(0, POINTS.rows), bins=list(EDGES))
    assert 0 < counts.sum() < POINTS.rows
    return counts


@pytest.mark.parametrize("way", WAYS.run)
def test_counts_are_those_of_numpy(way: str, site: DaskSite) -> None:
    np.testing.assert_array_equal(WAYS.run[way](site, EDGES).value, expected())


def test_floor_counts_as_numpy_and_holds_blocks_only_meanwhile(site: DaskSite) -> None:
    way = Histogram(BINS).in_processes("floor", site, EDGES)
    way.prepare()
    np.testing.assert_array_equal(way.run().value, expected())
    way.release()
    assert not way.on_cluster
    assert way.run().value.sum() == 0


@pytest.mark.parametrize(
    ("way", "tasks"),
    [
        # 40 blocks, then sums of 16: 3, then 1.
        ("per-block", 40 + 3 + 1),
        # Two partitions and their sum.
        ("spliter", 2 + 1),
        # Two clusters of counts and sums, and the one that adds them up.
        ("dask-partitioned", 2 + 1),
    ],
)
def test_number_of_tasks(way: str, tasks: int, site: DaskSite) -> None:
    assert tasks_of(WAYS, way, site, EDGES) == tasks


def moved_by(way: str, site: DaskSite) -> int:
    with site.engine.meter() as meter:
        before = meter.reading()
        WAYS.run[way](site, EDGES)
        nbytes = meter.reading().since(before).nbytes
        assert nbytes is not None
        return nbytes


def test_spliter_moves_one_partial_result(site: DaskSite) -> None:
    assert moved_by("spliter", site) == BINS**3 * 8


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_moves_rows_as_well_and_does_so_each_time(
    way: str, site: DaskSite, rest: DaskIdle
) -> None:
    # However blocks are spread, some have to go to the other worker: no half of the rows is on
    # one worker already.
    for _ in range(2):
        assert moved_by(way, site) > BINS**3 * 8
        rest.wait()


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_time_is_reported_apart(way: str, site: DaskSite) -> None:
    assert list(phases(WAYS, way, site, EDGES)) == ["rechunk"]


def test_rechunk_by_p2p_does_not_shuffle(site: DaskSite) -> None:
    # Else its bytes would go past the counters of the workers.
    sizes = cut_rows(POINTS.rows, 2)
    rechunked = site.array.rechunk((sizes, (3,)), method="p2p")
    assert not [key for key in rechunked.__dask_graph__() if "barrier" in str(key)]


def test_names_of_ways_are_complete() -> None:
    assert Histogram.ways == (*WAYS.run, "floor")


def test_edges_are_those_of_numpy() -> None:
    points = POINTS.read(0, 100)
    points[:, 1] = 3.0  # one value only: a range of width 1 around it
    edges = equal_bins(np.array([points.min(axis=0), points.max(axis=0)]), BINS)
    _, theirs = np.histogramdd(points, bins=BINS)
    for ours, numpys in zip(edges, theirs, strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_sums_do_not_change_their_parts() -> None:
    parts = [np.ones(2), np.ones(2)]
    np.testing.assert_array_equal(add_counts(parts), [2, 2])
    np.testing.assert_array_equal(parts, np.ones((2, 2)))
