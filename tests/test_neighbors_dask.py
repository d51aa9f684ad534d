"""The neighbours estimators on a Dask cluster of real processes, points shuffled over workers."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client

from spliter import InvalidArgumentError, split
from spliter_apps.neighbors import KNeighborsClassifier, NearestNeighbors, forest
from tests.counting import settle
from tests.dask_backend.conftest import start
from tests.dask_backend.placing import ShuffledCollections
from tests.dask_backend.programs import kill
from tests.engine_cases import NEIGHBORS, one_case_of
from tests.engine_collections import cut
from tests.neighbors_data import by_distance_and_number, dataset, lattice
from tests.neighbors_suite import NeighborsTests

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


@pytest.mark.thorough
@one_case_of(*NEIGHBORS)
class TestDask(ShuffledCollections, NeighborsTests):
    """Arrays, each chunk of which is at a worker drawn at random."""


def test_unknown_chunk_sizes() -> None:
    points = lattice()
    x = da.from_array(points, chunks=(50, 2))
    chosen = x[x[:, 0] > 2].persist()
    assert np.isnan(chosen.chunks[0]).all()
    search = NearestNeighbors(algorithm="kd_tree").fit(chosen)
    mine = points[points[:, 0] > 2]
    found = search.kneighbors(chosen)
    distances, items = by_distance_and_number(mine, mine, 5)
    np.testing.assert_array_equal(found[0].compute(), distances)
    np.testing.assert_array_equal(found[1].compute(), items)
    assert search.kneighbors()[1].chunks[0] == tuple(
        int((part[:, 0] > 2).sum()) for part in cut(points, [50] * 6)
    )


def test_results_are_dask_arrays() -> None:
    points, labels = dataset("iris")
    x = da.from_array(points, chunks=((100, 50), 4)).persist()
    t = da.from_array(labels, chunks=((100, 50),)).persist()
    model = KNeighborsClassifier(3).fit(x, t)
    distances, items = model.kneighbors(x)
    for made, dtype in ((distances, np.float64), (items, np.int64)):
        assert isinstance(made, da.Array)
        assert (made.chunks, made.dtype) == (((100, 50), (3,)), np.dtype(dtype))
    assert model.predict(x).chunks == ((100, 50),)
    assert model.predict_proba(x).chunks == ((100, 50), (3,))
    assert model.kneighbors_graph(x).chunks == ((100, 50), (150,))
    within = NearestNeighbors().fit(x).radius_neighbors(x, return_distance=False)
    assert (within.chunks, within.dtype) == (((100, 50),), np.dtype(object))


def incoming(dask_worker: Any) -> int:
    """Bytes that a worker has got from other workers."""
    return int(sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log))


def test_trees_stay_and_queries_travel(client: Client) -> None:
    points, queries = lattice(20_000, 8), lattice(100, 8, seed=1)
    x = da.from_array(points, chunks=(500, 8)).persist()
    with split(x) as parts:
        assert len(parts.locations) == 2
        before = sum(client.run(incoming).values())
        search = NearestNeighbors().fit(parts)
        search.kneighbors(queries[:1])
        assert parts.moved.nbytes == 0
        small = sum(client.run(incoming).values()) - before
        search.kneighbors(queries)
        large = sum(client.run(incoming).values()) - before - small
    # One query, and later a hundred with their candidates; never a part of the 1.3 MB of points.
    assert small < 10_000
    assert 100 * 8 * 8 < large < 100_000


def test_a_query_takes_a_task_per_tree_and_batch(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = da.from_array(lattice(), chunks=(5, 2)).persist()
    search = NearestNeighbors().fit(x)
    submitted: list[str] = []
    executor = search._forest.partitions[0].executor
    assert executor is not None
    submit = type(executor).submit

    def counting(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        submitted.append(fn.__name__)
        return submit(self, fn, *args, **kwargs)

    monkeypatch.setattr(type(executor), "submit", counting)
    search.kneighbors(lattice(200))  # which go with the tasks
    assert sorted(submitted) == ["finish_batch", "query_tree", "query_tree"]
    submitted.clear()
    monkeypatch.setattr(forest, "MESSAGE_NBYTES", 2 * lattice(200).nbytes - 1)
    search.kneighbors(lattice(200))
    assert sorted(submitted) == ["finish_batch", "identity", "query_tree", "query_tree"]
    submitted.clear()
    search.kneighbors(x)
    per_place = ["query_tree", "query_tree", "finish_batch", "cut_results", "queries_of"]
    assert sorted(submitted) == sorted([*per_place * 2, "_like_first_block"])


def test_many_trees() -> None:
    points, queries = lattice(), lattice(20, seed=1)
    x = da.from_array(points, chunks=(20, 2)).persist()
    with split(x, partitions_per_location=6) as parts:
        search = NearestNeighbors(algorithm="kd_tree", radius=1.0).fit(parts)
        assert len(search._forest.trees) == len(parts) >= 6
        expected = by_distance_and_number(points, queries, 5)
        np.testing.assert_array_equal(search.kneighbors(queries)[1], expected[1])
        here = NearestNeighbors(radius=1.0).fit(points)
        np.testing.assert_array_equal(search.kneighbors()[1].compute(), here.kneighbors()[1])
        for mine, his in zip(
            search.radius_neighbors(queries)[1], here.radius_neighbors(queries)[1], strict=True
        ):
            np.testing.assert_array_equal(mine, his)


def test_engines_do_not_mix() -> None:
    search = NearestNeighbors().fit(da.from_array(lattice(), chunks=(100, 2)).persist())
    with pytest.raises(InvalidArgumentError, match="different engines"):
        search.kneighbors(cut(lattice(), [100, 200]))


def test_event_loops_are_not_blocked(client: Client) -> None:
    address = client.scheduler_info()["address"]

    async def program() -> Any:
        async with Client(address, asynchronous=True) as mine:
            x = await mine.persist(da.from_array(lattice(), chunks=(100, 2)))
            parts = await asyncio.to_thread(split, x)
            with pytest.raises(InvalidArgumentError, match="to_thread"):
                NearestNeighbors().fit(parts)
            search = await asyncio.to_thread(NearestNeighbors().fit, parts)
            with pytest.raises(InvalidArgumentError, match="to_thread"):
                search.kneighbors(lattice(3))
            return await asyncio.to_thread(search.kneighbors, lattice(3))

    found = asyncio.run(program())
    np.testing.assert_array_equal(found[1], by_distance_and_number(lattice(), lattice(3), 5)[1])


@pytest.mark.thorough
def test_trees_lost_with_their_worker_are_built_again() -> None:
    points, queries = lattice(), lattice(20, seed=1)
    expected = by_distance_and_number(points, queries, 5)
    with ExitStack() as stack:
        client = start(stack, n_workers=3, restarts=False)
        search = NearestNeighbors(algorithm="kd_tree")
        search.fit(da.from_array(points, chunks=(20, 2)).persist())
        for place in [each.location for each in search._forest.partitions[:2]]:
            np.testing.assert_array_equal(search.kneighbors(queries)[1], expected[1])
            settle(client)  # nothing of the fit is running any more
            kill(client, place)
            np.testing.assert_array_equal(search.kneighbors(queries)[1], expected[1])
        assert search.kneighbors()[1].compute().shape == (300, 5)
