"""k-means on a Dask cluster of real worker processes, points shuffled over the workers."""

from __future__ import annotations

import gc
import pickle
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client, futures_of, wait

from spliter import InvalidArgumentError, split
from spliter_apps.kmeans import KMeans
from tests.dask_backend.conftest import start as start_cluster
from tests.dask_backend.placing import ShuffledCollections
from tests.dask_backend.programs import kill
from tests.engine_cases import KMEANS, one_case_of
from tests.kmeans_data import dataset, heights
from tests.kmeans_suite import KMeansTests

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


@pytest.mark.thorough
@one_case_of(*KMEANS)
class TestDask(ShuffledCollections, KMeansTests):
    """Arrays, each chunk of which is at a worker drawn at random."""


def test_unknown_chunk_sizes() -> None:
    points = dataset("blobs")
    x = da.from_array(points, chunks=(100, 5))
    x = x[x[:, 0] > 0].persist()
    assert np.isnan(x.chunks[0]).all()
    mine = points[points[:, 0] > 0]
    found = KMeans(4, init="k-means||", random_state=0).fit(x)
    expected = KMeans(4, init="k-means||", random_state=0).fit(mine)
    np.testing.assert_array_equal(found.labels_.compute(), expected.labels_)
    np.testing.assert_array_equal(found.predict(x).compute(), expected.labels_)


def test_labels_and_distances_are_dask_arrays() -> None:
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
        return client.run_on_scheduler(tasks_known) <= before

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
