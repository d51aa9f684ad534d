"""Tasks and bytes are counted exactly, and blocks go back to where they were."""

from __future__ import annotations

import gc
import operator
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from distributed import Client, Future, wait

from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.sources import (
    Floats,
    GeneratedPoints,
    Points,
    cut_rows,
    no_points,
)
from spliter_experiments.compare.engines.dask_engine import DaskEngine, blocks_of, persist
from spliter_experiments.compare.engines.dask_meter import (
    ClusterMeter,
    DaskIdle,
    Load,
    current_load,
)
from spliter_experiments.compare.engines.engine import Placement
from spliter_experiments.compare.workloads.site import bounds_of, check_finite
from spliter_experiments.harness.errors import ClusterError, InputError
from spliter_experiments.harness.runner import Reading

pytestmark = pytest.mark.backend("dask")

POINTS = GeneratedPoints(rows=800, dims=2, seed=5)


@pytest.fixture(autouse=True)
def nothing_left_by_the_test_before(client: Client) -> None:
    """Wait until its results are gone: dropping a future tells the scheduler later.

    Workers collect garbage, too: after a task has failed, its traceback keeps the futures that it
    has used in a cycle, and an idle worker might not look for cycles for minutes.
    """
    gc.collect()
    deadline = time.monotonic() + 30
    while (load := current_load(client)) != Load(unfinished=0, tasks=0, copies=0):
        assert time.monotonic() < deadline, f"{load}: {client.run_on_scheduler(tasks_known)}"
        client.run(gc.collect)
        time.sleep(0.02)


def tasks_known(dask_scheduler: Any) -> dict[Any, str]:
    return {key: task.state for key, task in dask_scheduler.tasks.items()}


def holders(client: Client, futures: Sequence[Future[Any]]) -> list[set[str]]:
    held = client.who_has(list(futures))
    return [set(held[future.key]) for future in futures]


def place(client: Client, count: int, size: int) -> tuple[list[Future[Any]], list[str]]:
    """Put `count` arrays of `size` float64 on the first worker; return them and all workers."""
    workers = sorted(client.nthreads())
    futures = [client.submit(np.ones, size, workers=workers[:1], pure=False) for _ in range(count)]
    wait(futures, timeout=30)
    return futures, workers


def persist_points(client: Client, points: Points, *how: Any) -> Any:
    return persist(client, points, how[0], no_points(points), *how[1:])


def spent(client: Client, meter: ClusterMeter, work: Any) -> Reading:
    before = meter.reading()
    wait(work(), timeout=30)
    return meter.reading().since(before)


def test_tasks_are_counted_and_local_ones_move_nothing(client: Client) -> None:
    futures, workers = place(client, 3, 1000)
    with ClusterMeter(client) as meter:
        local = spent(
            client, meter, lambda: client.map(np.sum, futures, workers=workers[:1], pure=False)
        )
        assert local == Reading(tasks=3, nbytes=0)


def test_bytes_between_workers_are_counted(client: Client) -> None:
    futures, workers = place(client, 3, 1000)
    with ClusterMeter(client) as meter:
        remote = spent(
            client, meter, lambda: client.map(np.sum, futures, workers=workers[1:], pure=False)
        )
        assert remote == Reading(tasks=3, nbytes=3 * 8000)


def test_bytes_to_the_client_are_not_counted(client: Client) -> None:
    futures, _ = place(client, 2, 1000)
    with ClusterMeter(client) as meter:
        before = meter.reading()
        client.gather(futures)
        assert meter.reading().since(before) == Reading(0, 0)


def test_meter_leaves_no_plugin_behind(client: Client) -> None:
    def plugins(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler.plugins if name.startswith("spliter-meter")]

    with ClusterMeter(client):
        assert len(client.run_on_scheduler(plugins)) == 1
    assert client.run_on_scheduler(plugins) == []


def test_blocks_are_where_the_rows_are_and_in_order(client: Client) -> None:
    array = persist_points(client, POINTS, cut_rows(800, 7))
    assert array.chunks == ((115, 115, 114, 114, 114, 114, 114), (2,))
    blocks = client.gather(blocks_of(array))
    assert all(type(block) is np.ndarray for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), POINTS.read(0, 800))
    assert len(set().union(*holders(client, blocks_of(array)))) == 2


def test_fewer_rows_than_blocks() -> None:
    with pytest.raises(InputError, match="3 rows cannot be cut into 4 blocks"):
        cut_rows(3, 4)


class TablePoints:
    """Points that are written down; the workers find this class by its module."""

    origin = "table"

    def __init__(self, values: Sequence[Sequence[float]]) -> None:
        self.values = np.array(values, dtype=np.float64)
        self.rows = len(values)
        self.columns = Columns.numbered(self.values.shape[1])

    def read(self, start: int, stop: int) -> Floats:
        return self.values[start:stop]


class UnreadablePoints(TablePoints):
    """Points that the client sees and the workers do not."""

    def read(self, start: int, stop: int) -> Floats:
        raise FileNotFoundError("no such file here")


def test_bounds(client: Client) -> None:
    points = TablePoints([[1, 0], [7, 5], [3, -4], [-2, 1]])
    array = persist_points(client, points, (1, 2, 1))
    np.testing.assert_array_equal(bounds_of(DaskEngine(client), array), [[-2, -4], [7, 5]])


def test_gaps_are_found_and_their_columns_named(client: Client) -> None:
    points = TablePoints([[1, 2, np.nan], [3, 4, 5], [np.inf, 7, 8]])
    array = persist_points(client, points, (1, 1, 1))
    with pytest.raises(InputError, match="missing or infinite values in 0, 2; choose"):
        check_finite(DaskEngine(client), points, array)
    whole = persist_points(client, POINTS, cut_rows(800, 3))
    check_finite(DaskEngine(client), POINTS, whole)


def test_workers_that_cannot_read_the_input(client: Client) -> None:
    with pytest.raises(InputError, match=r"cannot read table: no such file here.*same path"):
        persist_points(client, UnreadablePoints([[1.0], [2.0]]), (1, 1))


def test_copies_are_dropped_and_originals_stay(client: Client) -> None:
    futures, workers = place(client, 4, 100)
    rest = DaskIdle.now(client, futures)
    client.replicate(futures, n=2)
    assert holders(client, futures) == [set(workers)] * 4
    rest.wait()
    assert holders(client, futures) == [set(workers[:1])] * 4


def test_blocks_that_have_moved_are_brought_back(client: Client) -> None:
    futures, workers = place(client, 4, 100)
    rest = DaskIdle.now(client, futures)
    client.replicate(futures, n=2)

    async def drop_originals(dask_scheduler: Any) -> None:
        keys = [future.key for future in futures]
        dask_scheduler.request_remove_replicas(workers[0], keys, stimulus_id="test")

    client.run_on_scheduler(drop_originals)
    assert holders(client, futures) == [set(workers[1:])] * 4
    rest.wait()
    assert holders(client, futures) == [set(workers[:1])] * 4


def test_results_that_are_kept_are_waited_for_in_vain(client: Client) -> None:
    rest = DaskIdle.now(client)
    kept = client.map(operator.neg, range(3), pure=False)
    wait(kept, timeout=30)
    with pytest.raises(ClusterError, match=r"not at rest after 0\.3 s"):
        rest.wait(timeout=0.3)
    kept.clear()
    rest.wait()


def test_running_tasks_are_waited_for(client: Client) -> None:
    rest = DaskIdle.now(client)
    running = client.submit(time.sleep, 0.5, pure=False)
    deadline = time.monotonic() + 30
    while current_load(client).unfinished == 0:
        assert time.monotonic() < deadline
    del running  # a thread cannot be stopped: the worker goes on
    rest.wait()
    assert current_load(client) == rest.load


@pytest.mark.parametrize("nblocks", [7, 16])
def test_blocks_are_spread_in_turn(client: Client, nblocks: int) -> None:
    array = persist_points(client, POINTS, cut_rows(800, nblocks))
    held = client.has_what()
    blocks = {block.key for block in blocks_of(array)}
    counts = [len(blocks & set(keys)) for keys in held.values()]
    assert sum(counts) == nblocks
    assert max(counts) - min(counts) <= 1


def test_neighbours_are_together(client: Client) -> None:
    array = persist_points(client, POINTS, cut_rows(800, 7), Placement.CONTIGUOUS)
    holders = client.who_has(blocks_of(array))
    places = [holders[block.key][0] for block in blocks_of(array)]
    assert places == sorted(places)
    assert sorted(map(places.count, set(places))) == [3, 4]


def test_blocks_are_where_dask_puts_them(client: Client) -> None:
    array = persist_points(client, POINTS, cut_rows(800, 8), Placement.DASK)
    np.testing.assert_array_equal(array.compute(), POINTS.read(0, 800))
