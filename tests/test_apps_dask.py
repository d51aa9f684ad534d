"""The histogram, the Cascade SVM and k-means on a Dask cluster of real worker processes."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from distributed import Client, futures_of, wait
from sklearn.svm import SVC

from spliter import InvalidArgumentError, LazyCollectionError, split
from spliter_apps import histogramdd
from spliter_apps.kmeans import KMeans
from tests.csvm_suite import CascadeSVMTests, cascading
from tests.csvm_suite import dataset as svm_dataset
from tests.dask_backend.conftest import start as start_cluster
from tests.dask_backend.placing import ShuffledCollections, same, shuffled
from tests.dask_backend.programs import kill
from tests.dask_workers import workers_of
from tests.engine_cases import CASCADE_SVM, HISTOGRAM, KMEANS, LINEAR, one_case_of
from tests.engine_collections import cut
from tests.histogram_suite import HistogramTests, assert_same, points
from tests.kmeans_data import dataset, heights
from tests.kmeans_suite import KMeansTests
from tests.linear_suite import LinearTests
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


@one_case_of(*HISTOGRAM)
class TestHistogram(ShuffledCollections, HistogramTests):
    """Also DataFrames of Dask."""

    def frames(self, frame: Any, rows: Sequence[int]) -> Any:
        return dd.from_map(same, cut(frame, rows)).persist()


def test_histogram_of_unknown_chunk_sizes() -> None:
    sample, weights = points(), np.arange(90.0)
    x = da.from_array(sample, chunks=(20, 3))
    w = da.from_array(weights, chunks=20)
    chosen = x[:, 0] > 3
    x, w = dask.persist(x[chosen], w[chosen])
    assert np.isnan(x.chunks[0]).all()
    mine = sample[:, 0] > 3
    assert_same(
        histogramdd(x, 3, weights=w), np.histogramdd(sample[mine], 3, weights=weights[mine])
    )
    unlike = da.from_array(weights, chunks=20).persist()
    with pytest.raises(ValueError, match="rows"):
        histogramdd(x, 3, weights=unlike)


def test_what_columns_of_a_histogram_have_moved_is_told(client: Client) -> None:
    sample = points()
    here, there = workers_of(client)
    x = da.from_array(sample[:, :1], chunks=(30, 1)).persist(workers=[here])
    y = da.from_array(sample[:, 1:], chunks=(30, 2)).persist(workers=[there])
    both = da.concatenate([x, y], axis=1)
    assert both.numblocks == (3, 2)
    with split(both.blocks[:, 0], both.blocks[:, 1]) as parts:
        assert_same(histogramdd(parts, 3), np.histogramdd(sample, 3))
        assert (parts.moved.blocks, parts.moved.nbytes) == (3, sample[:, 1:].nbytes)


def test_histogram_of_a_lazy_sample() -> None:
    x = da.from_array(points(), chunks=(30, 3))
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x, 3)
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x.rechunk((30, 1)), 3)
    with pytest.raises(LazyCollectionError, match="persist"):
        histogramdd(x.persist() + 1, 3)


@one_case_of(*CASCADE_SVM)
class TestCascadeSVM(ShuffledCollections, CascadeSVMTests):
    """Arrays, each chunk of which is at a worker drawn at random."""


def test_cascade_of_futures() -> None:
    X, X_test, y, y_test = svm_dataset("digits")
    rows = heights(len(X), 200)
    # Labels are at other workers than their points, and brought to them.
    points, labels = shuffled(cut(X, rows)), shuffled(cut(y, rows)[::-1])[::-1]
    with split(points, labels) as parts:
        ours = cascading().fit(parts)
        assert parts.moved.aligned_blocks > 0
        assert parts.moved.fetched_blocks == 0
    assert abs(ours.score(X_test, y_test) - SVC().fit(X, y).score(X_test, y_test)) <= 0.005


def test_cascade_of_unknown_chunk_sizes() -> None:
    X, _, y, _ = svm_dataset("breast cancer")
    x, labels = da.from_array(X, chunks=(40, -1)), da.from_array(y, chunks=40)
    kept = da.from_array(X[:, 0], chunks=40) < 1
    x, labels = x[kept].persist(), labels[kept].persist()
    assert np.isnan(x.chunks[0]).all()
    ours = cascading().fit(x, labels)
    mine = X[X[:, 0] < 1]
    np.testing.assert_array_equal(ours.support_vectors_, mine[ours.support_])


@pytest.mark.thorough
@one_case_of(*LINEAR)
class TestLinear(ShuffledCollections, LinearTests):
    """Blocks at workers drawn at random."""


@one_case_of(*KMEANS)
class TestKMeans(ShuffledCollections, KMeansTests):
    """Arrays, each chunk of which is at a worker drawn at random."""


def test_k_means_of_unknown_chunk_sizes() -> None:
    points = dataset("blobs")
    x = da.from_array(points, chunks=(100, 5))
    x = x[x[:, 0] > 0].persist()
    assert np.isnan(x.chunks[0]).all()
    mine = points[points[:, 0] > 0]
    found = KMeans(4, init="k-means||", random_state=0).fit(x)
    expected = KMeans(4, init="k-means||", random_state=0).fit(mine)
    np.testing.assert_array_equal(found.labels_.compute(), expected.labels_)
    np.testing.assert_array_equal(found.predict(x).compute(), expected.labels_)


def test_labels_and_distances_of_k_means_are_dask_arrays() -> None:
    points = dataset("digits")
    x = da.from_array(points, chunks=(tuple(heights(1797, 20)), 64)).persist()
    kmeans = KMeans(10, random_state=0).fit(x)
    for made in (kmeans.labels_, kmeans.predict(x)):
        assert isinstance(made, da.Array)
        assert (made.chunks, made.dtype) == (x.chunks[:1], np.dtype(np.int32))
        assert (made.compute() == kmeans.predict(points)).all()
    distances = kmeans.transform(x)
    assert distances.chunks == (x.chunks[0], (10,))
    np.testing.assert_allclose(distances.compute(), kmeans.transform(points))


def blocks_fetched(dask_worker: Any, name: str) -> int:
    """Blocks of an array that a worker has got from another one."""
    transfers = dask_worker.transfer_incoming_log
    return sum(name in str(key) for transfer in transfers for key in transfer["keys"])


def test_no_block_moves(client: Client) -> None:
    points = dataset("digits")
    x = da.from_array(points, chunks=(20, 64)).persist()

    def fetched() -> int:
        return sum(client.run(blocks_fetched, name=x.name).values())

    with split(x) as parts:
        here, there = parts.locations
        KMeans(10, random_state=0).fit(parts)
        KMeans(10, init="k-means||", random_state=0).fit(parts)
        # Sums and centres go from worker to worker, points do not.
        assert fetched() == 0
        assert (parts.moved.aligned_nbytes, parts.moved.fetched_nbytes) == (0, 0)
        # The positive control.
        block = futures_of(x)[0]
        elsewhere = there if here in client.who_has([block])[block.key] else here
        client.submit(np.shape, block, workers=[elsewhere]).result(timeout=60)
        assert fetched() == 1


@pytest.mark.thorough
def test_workers_that_die_under_way_and_afterwards_change_nothing() -> None:
    points = np.random.default_rng(0).normal(size=(120_000, 8))
    settings: dict[str, Any] = {"init": points[:8], "n_init": 1, "max_iter": 25, "tol": 0}
    expected = KMeans(8, **settings).fit(points)
    with ExitStack() as stack:
        client = start_cluster(stack, n_workers=3, restarts=False)
        x = da.from_array(points, chunks=(2_000, 8)).persist()
        first, second = split(x).locations[:2]
        dying = threading.Timer(0.3, kill, (client, first))
        dying.start()
        kmeans = KMeans(8, **settings).fit(x)
        dying.join(60)
        np.testing.assert_allclose(kmeans.cluster_centers_, expected.cluster_centers_)
        # What was found out on the way is made again for labels that are lost.
        kill(client, second)
        np.testing.assert_array_equal(kmeans.labels_.compute(), expected.labels_)


def tasks_known(dask_scheduler: Any) -> set[Any]:
    return set(dask_scheduler.tasks)


@pytest.mark.parametrize("bad", ["value", "count"])
def test_a_fit_that_is_refused_leaves_nothing_behind(client: Client, bad: str) -> None:
    points = dataset("iris").copy()
    if bad == "value":
        points[130, 2] = np.nan
    x = da.from_array(points, chunks=(40, 4)).persist()
    wait(x)
    n_clusters = 3 if bad == "value" else 151
    before = client.run_on_scheduler(tasks_known)
    with pytest.raises(InvalidArgumentError, match=r"NaN|n_samples=150"):
        KMeans(n_clusters, init=np.ones((n_clusters, 4)), tol=0, max_iter=8).fit(x)

    # What earlier programs let go of may still be going away: only what is new counts.
    def nothing_new() -> bool:
        gc.collect()  # the error is in cycles with frames that hold futures
        return not client.run_on_scheduler(tasks_known) - before

    wait_until(nothing_new)


def test_a_pickled_estimator_predicts_without_the_cluster() -> None:
    points = dataset("iris")
    kmeans = KMeans(3, random_state=0).fit(da.from_array(points, chunks=(40, 4)).persist())
    again = pickle.loads(pickle.dumps(kmeans))
    assert not hasattr(again, "labels_")
    np.testing.assert_array_equal(again.predict(points), kmeans.labels_.compute())


def test_other_columns_are_told_before_anything_runs() -> None:
    points = dataset("iris")
    kmeans = KMeans(3, random_state=0).fit(points)
    narrow = da.from_array(points[:, :3], chunks=(40, 3)).persist()
    with pytest.raises(InvalidArgumentError, match="3 features"):
        kmeans.predict(narrow)
