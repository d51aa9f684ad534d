"""Every way comes to the centres of scikit-learn, with the tasks that its description promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.cluster import KMeans as SingleKMeans

from spliter_apps.kmeans.kernel import PartialSums
from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.columns import Wanted
from spliter_experiments.compare.data.readers import ArrayFilePoints
from spliter_experiments.compare.data.sources import Dataset, Floats, GeneratedPoints
from spliter_experiments.compare.engines.dask_engine import ENGINE, DaskEngine
from spliter_experiments.compare.engines.dask_meter import DaskIdle
from spliter_experiments.compare.workloads import dask as kmeans_dask
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.dask import DASK_ML, DaskSite, why_no_dask_ml
from spliter_experiments.compare.workloads.kmeans import (
    Clustering,
    KMeans,
    Start,
    initial_centers,
    iterate,
    sum_blocks,
)
from spliter_experiments.harness.errors import InputError
from tests.experiments import staging
from tests.experiments.staging import phases, staged_on_dask

WAYS = ways_of(ENGINE, KMeans)

pytestmark = pytest.mark.backend("dask")

POINTS = GeneratedPoints(rows=2003, dims=4, seed=8)
NBLOCKS = 20
APP = KMeans(clusters=3, iterations=4, seed=1)


@pytest.fixture(scope="module")
def site(client: Client, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    with staged_on_dask(client, Dataset(POINTS), NBLOCKS, **processes) as staged:
        yield staged


@pytest.fixture(scope="module")
def start(site: DaskSite) -> Start:
    return APP.pose(site)


@pytest.fixture(scope="module")
def rest(site: DaskSite) -> DaskIdle:
    return site.engine.idle_state([site.array])


@pytest.fixture(autouse=True)
def put_back(rest: DaskIdle) -> Iterator[None]:
    """Start every test with the blocks where Dask put them, and nothing left of the others."""
    rest.wait()
    yield
    rest.wait()


def expected(start: Start) -> Clustering:
    model = SingleKMeans(
        len(start.centers), init=start.centers, n_init=1, max_iter=start.iterations, tol=0
    ).fit(POINTS.read(0, POINTS.rows))
    assert model.n_iter_ == start.iterations
    return Clustering(model.cluster_centers_, float(model.inertia_))


def answer(way: str, site: DaskSite, start: Start) -> Clustering:
    found = staging.answer(APP, WAYS, way, site, start)
    assert isinstance(found, Clustering)
    return found


@pytest.mark.parametrize("way", [way for way in KMeans.ways if way != DASK_ML])
def test_centres_and_inertia_are_those_of_scikit_learn(
    way: str, site: DaskSite, start: Start
) -> None:
    found, wanted = answer(way, site, start), expected(start)
    np.testing.assert_allclose(found.centers, wanted.centers, rtol=1e-9)
    assert found.inertia == pytest.approx(wanted.inertia, rel=1e-9)
    assert APP.same(found, wanted)


def test_centres_of_dask_ml(site: DaskSite, start: Start) -> None:
    pytest.importorskip("dask_ml")
    found = answer(DASK_ML, site, start)
    np.testing.assert_allclose(found.centers, expected(start).centers, rtol=1e-9)
    assert found.inertia is None


def test_plain_processes_forget_the_points(site: DaskSite, start: Start) -> None:
    for way in KMeans.off_cluster:
        answer(way, site, start)
        floor = site.floor if way == "floor" else site.machine
        assert floor is not None
        assert set(floor.call(len)) == {0}


def tasks_of(way: str, site: DaskSite, start: Start) -> int:
    return staging.tasks_of(WAYS, way, site, start)


def test_number_of_tasks_per_block(site: DaskSite, start: Start) -> None:
    # 20 blocks, then sums of 16: 2, then 1; labels and their inertia likewise.
    per_pass = NBLOCKS + 2 + 1
    assert tasks_of("per-block", site, start) == (start.iterations + 1) * per_pass


def test_number_of_tasks_by_hand(site: DaskSite, start: Start) -> None:
    # At each of two workers: one per iteration, one for the labels, one for what comes of them.
    assert tasks_of("by-hand", site, start) == 2 * (start.iterations + 2)


def test_spliter_has_as_many_tasks_however_many_blocks(site: DaskSite, start: Start) -> None:
    # At each of two workers: the inspection of the blocks, one task per iteration, the labels, and
    # their summary.
    assert tasks_of("spliter", site, start) == 2 * (3 + start.iterations)
    longer = replace(start, iterations=start.iterations + 1)
    assert tasks_of("spliter", site, longer) == 2 * (3 + longer.iterations)


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_time_is_reported_apart(way: str, site: DaskSite, start: Start) -> None:
    assert list(phases(WAYS, way, site, start)) == ["rechunk"]


def test_names_of_ways_are_complete() -> None:
    assert KMeans.ways == (*WAYS.run, *KMeans.off_cluster)


def test_iteration_ends_when_centres_stay(site: DaskSite, start: Start) -> None:
    patient = replace(start, iterations=10_000)
    model = SingleKMeans(
        len(start.centers), init=start.centers, n_init=1, max_iter=patient.iterations, tol=0
    ).fit(POINTS.read(0, POINTS.rows))
    assert start.iterations < model.n_iter_ < patient.iterations
    found = answer("floor", site, patient)
    assert APP.same(found, Clustering(model.cluster_centers_, float(model.inertia_)))
    assert not APP.same(found, replace(expected(start), inertia=None))


@pytest.mark.parametrize("way", ["per-block", "rechunk-tasks", "floor"])
def test_cluster_that_loses_its_points(way: str, site: DaskSite, start: Start) -> None:
    far = start.centers.copy()
    far[1] = 1e6
    with pytest.raises(InputError, match="lost all its points"):
        answer(way, site, replace(start, centers=far))


def test_iteration_stops_at_once_with_right_centres() -> None:
    points = np.array([[0.0], [2.0], [10.0], [12.0]])
    passes: list[Any] = []

    def add_up(centers: Floats) -> PartialSums:
        passes.append(centers)
        return sum_blocks([points], centers)

    start = Start(np.array([[1.0], [11.0]]), iterations=9)
    found = iterate(start, add_up, lambda centers: 4.0)
    assert len(passes) == 1
    np.testing.assert_array_equal(found.centers, start.centers)
    assert found.inertia == 4.0


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Clustering(np.array([[1.0], [100.0]]), None), True),
        (Clustering(np.array([[1.0 + 1e-7], [100.0]]), 5.0 + 1e-7), True),
        (Clustering(np.array([[1.0], [100.001]]), 5.0), False),
        (Clustering(np.array([[1.0], [100.0]]), 5.001), False),
    ],
)
def test_what_counts_as_the_same(other: Clustering, same: bool) -> None:
    assert APP.same(Clustering(np.array([[1.0], [100.0]]), 5.0), other) is same


def test_initial_centres_are_different_points(tmp_path: Path) -> None:
    five = GeneratedPoints(rows=5, dims=2, seed=0).read(0, 5)
    np.save(tmp_path / "repeated.npy", np.tile(five, (200, 1)))
    points = ArrayFilePoints.open(tmp_path / "repeated.npy", Wanted())
    centers = initial_centers(points, 5, seed=3)
    np.testing.assert_array_equal(np.unique(centers, axis=0), np.unique(five, axis=0))
    np.testing.assert_array_equal(initial_centers(points, 5, seed=3), centers)
    with pytest.raises(InputError, match="only 5 different points"):
        initial_centers(points, 6, seed=3)


def test_dask_ml_that_is_not_there(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_ml", None)
    monkeypatch.setitem(sys.modules, "dask_ml.cluster", None)
    assert 'pip install "pyspliter[dask-ml]"' in why_no_dask_ml(client)
    assert list(WAYS.absent(DaskEngine(client))) == [DASK_ML]


def test_dask_ml_that_is_here_and_not_at_a_worker(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dask_ml", "dask_ml.cluster"):
        monkeypatch.setitem(sys.modules, name, sys)
    monkeypatch.setattr(kmeans_dask, "DASK_ML", "no-such-distribution")
    reason = why_no_dask_ml(client)
    assert all(worker in reason for worker in client.nthreads())
    monkeypatch.setattr(kmeans_dask, "DASK_ML", "numpy")
    assert why_no_dask_ml(client) == ""
