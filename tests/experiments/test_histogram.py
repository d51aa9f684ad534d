"""Every way counts exactly as NumPy does, with the tasks that its description promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from distributed import Client

from spliter_experiments._blocks import cut_rows, finite_bounds, persist_points
from spliter_experiments._comparison import Site
from spliter_experiments._floor import Floor, start_floor
from spliter_experiments._histogram import ON_CLUSTER, WAYS, Histogram
from spliter_experiments._histogram_kernels import Edges, add_counts, equal_bins
from spliter_experiments._inputs import Dataset, GeneratedPoints
from spliter_experiments._meter import ClusterMeter
from spliter_experiments._rest import Rest

pytestmark = pytest.mark.backend("dask")

POINTS = GeneratedPoints(rows=1001, dims=3, seed=8)
BINS = 4
NBLOCKS = 40


# Narrower than the data, so that some points are in no bin.
EDGES: Edges = equal_bins(np.array([[0.1, 0.0, 0.0], [0.9, 1.0, 0.5]]), BINS)


@pytest.fixture(scope="module")
def floor() -> Iterator[Floor]:
    with start_floor(2) as started:
        yield started


@pytest.fixture(scope="module")
def site(client: Client, floor: Floor) -> Site:
    array = persist_points(client, POINTS, cut_rows(POINTS.rows, NBLOCKS))
    return Site(client, 2, Dataset(POINTS), array, floor=floor)


@pytest.fixture(scope="module")
def rest(site: Site) -> Rest:
    return Rest.now(site.client, site.blocks)


@pytest.fixture(autouse=True)
def put_back(rest: Rest) -> Iterator[None]:
    """Start every test with the blocks where Dask put them."""
    rest.wait()
    yield
    rest.wait()


def expected() -> object:
    counts, _ = np.histogramdd(POINTS.read(0, POINTS.rows), bins=list(EDGES))
    assert 0 < counts.sum() < POINTS.rows
    return counts


@pytest.mark.parametrize("way", ON_CLUSTER)
def test_counts_are_those_of_numpy(way: str, site: Site) -> None:
    np.testing.assert_array_equal(ON_CLUSTER[way](site, EDGES).value, expected())


def test_floor_counts_as_numpy_and_holds_blocks_only_meanwhile(site: Site) -> None:
    contender = Histogram(BINS).contender("floor", site, EDGES)
    contender.prepare()
    np.testing.assert_array_equal(contender.run().value, expected())
    contender.release()
    assert not contender.on_cluster
    assert contender.run().value.sum() == 0


@pytest.mark.parametrize(
    ("way", "tasks"),
    [
        # 40 blocks, then sums of 16: 3, then 1.
        ("per-block", 40 + 3 + 1),
        # Two partitions and their sum; the block lists are sent there once, by a task each.
        ("spliter", 2 + 2 + 1),
    ],
)
def test_number_of_tasks(way: str, tasks: int, site: Site) -> None:
    with ClusterMeter(site.client) as meter:
        before = meter.reading()
        ON_CLUSTER[way](site, EDGES)
        assert meter.reading().since(before).tasks == tasks


def moved_by(way: str, site: Site) -> int:
    with ClusterMeter(site.client) as meter:
        before = meter.reading()
        ON_CLUSTER[way](site, EDGES)
        return meter.reading().since(before).nbytes


def test_spliter_moves_one_partial_result(site: Site) -> None:
    assert moved_by("spliter", site) == BINS**3 * 8


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_moves_rows_as_well_and_does_so_each_time(way: str, site: Site, rest: Rest) -> None:
    # However blocks are spread, some have to go to the other worker: no half of the rows is on
    # one worker already.
    for _ in range(2):
        assert moved_by(way, site) > BINS**3 * 8
        rest.wait()


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_time_is_reported_apart(way: str, site: Site) -> None:
    assert list(ON_CLUSTER[way](site, EDGES).phases) == ["rechunk"]


def test_rechunk_by_p2p_does_not_shuffle(site: Site) -> None:
    # Else its bytes would go past the counters of the workers.
    sizes = cut_rows(POINTS.rows, 2)
    rechunked = site.array.rechunk((sizes, (3,)), method="p2p")
    assert not [key for key in rechunked.__dask_graph__() if "barrier" in str(key)]


def test_names_of_ways_are_complete() -> None:
    assert set(WAYS) == {"spliter", "per-block", "rechunk-p2p", "rechunk-tasks", "dask", "floor"}


def test_edges_are_those_of_numpy() -> None:
    points = POINTS.read(0, 100)
    points[:, 1] = 3.0  # one value only: a range of width 1 around it
    edges = equal_bins(finite_bounds(points), BINS)
    _, theirs = np.histogramdd(points, bins=BINS)
    for ours, numpys in zip(edges, theirs, strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_sums_do_not_change_their_parts() -> None:
    parts = [np.ones(2), np.ones(2)]
    np.testing.assert_array_equal(add_counts(parts), [2, 2])
    np.testing.assert_array_equal(parts, np.ones((2, 2)))
