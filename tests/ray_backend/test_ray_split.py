"""What can be split in Ray, what a task is given, and that nothing moves, by Ray's own counters."""

from __future__ import annotations

import asyncio
import operator
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("ray")

import ray
from ray import ObjectRef
from ray._private import internal_api
from ray.experimental import get_object_locations

from spliter import (
    BlockTimeoutError,
    InvalidArgumentError,
    LazyCollectionError,
    Partition,
    TaskFailedError,
    TaskNotSerializableError,
    UnsupportedCollectionError,
    as_completed,
    split,
)
from spliter_backends.ray import RayArray
from spliter_backends.ray import cluster as ray_cluster
from spliter_backends.ray import executor as ray_executor
from spliter_backends.ray.future import RayFuture
from spliter_backends.ray.worker import RUN
from tests.ray_backend import programs
from tests.ray_backend.cluster import STORE_BYTES, RayNodes, suppress_output
from tests.ray_backend.placing import at, put_at

pytestmark = [pytest.mark.backend("ray"), pytest.mark.timeout(120)]

WAIT = 60


def large(nodes: RayNodes, n: int) -> list[ObjectRef]:
    """Make blocks of 400 kB, by tasks on the nodes in turn."""
    return [
        programs.fill_placeholders.options(
            scheduling_strategy=at(nodes.ids[i % len(nodes.ids)])
        ).remote(50_000, i)
        for i in range(n)
    ]


def created() -> int:
    """Return the bytes that have come into the object stores so far, made there or copied."""
    return sum(
        internal_api.node_stats(
            node["NodeManagerAddress"], node["NodeManagerPort"]
        ).store_stats.cumulative_created_bytes
        for node in ray.nodes()
        if node["Alive"]
    )


# --- where blocks are -------------------------------------------------------------------------


def test_small_results_are_nowhere_and_are_shared_out(nodes: RayNodes) -> None:
    blocks = [programs.fill_placeholders.remote(10, i) for i in range(12)]
    parts = split(blocks)
    # Up to 100 kB Ray keeps results in the memory of the program that asked for them.
    assert parts.locations == tuple(nodes.ids)
    assert [len(part) for part in parts] == [4, 4, 4]
    assert parts.nbytes == 12 * 10 * 8
    futures = parts.map(programs.here)
    assert [future.result(WAIT) for future in futures] == [part.location for part in parts]
    assert sum(f.result(WAIT) for f in parts.map(programs.total)) == sum(range(12)) * 10
    assert parts.moved.blocks == 0


@pytest.mark.thorough
def test_blocks_on_a_node_that_runs_nothing_are_read_elsewhere(nodes: RayNodes) -> None:
    handle, name = nodes.add(num_cpus=0)
    try:
        putting = programs.put_all.options(num_cpus=0, scheduling_strategy=at(name))
        stranded = ray.get(putting.remote([np.full(20_000, i) for i in range(3)]), timeout=WAIT)
        parts = split([*stranded, *put_at(nodes.ids, [np.arange(3)], [0])])
        assert name not in parts.locations
        assert sum(f.result(WAIT) for f in parts.map(programs.total)) == 3 * 20_000 + 3
        assert parts.moved.fetched_blocks == 3
        assert parts.moved.fetched_nbytes >= 3 * 160_000
    finally:
        nodes.kill(handle)


def test_a_partition_larger_than_the_object_store(nodes: RayNodes) -> None:
    there = programs.fill_placeholders.options(scheduling_strategy=at(nodes.ids[1]))
    rows, n = 3_000_000, 8
    blocks = [there.remote(rows, number) for number in range(n)]
    (partition,) = parts = split(blocks)
    assert partition.nbytes > STORE_BYTES
    assert partition.submit(programs.total).result(WAIT) == sum(range(n)) * rows
    assert parts.moved.blocks == 0


def test_dataset_of_ray_data(nodes: RayNodes) -> None:
    with suppress_output():  # it warns of settings that are its own defaults
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        lazy = ray.data.range(1000, override_num_blocks=6)
        dataset = lazy.materialize()
    with pytest.raises(LazyCollectionError, match="materialize"):
        split(lazy)
    with suppress_output():
        computed = split(lazy, persist=True)
    assert computed.grid.extent == (1000,)
    parts = split(dataset)
    assert (parts.nblocks, parts.grid.extent) == (dataset.num_blocks(), (1000,))
    found = [f.result(WAIT) for f in parts.map(ids_of)]
    for partition, ids in zip(parts, found, strict=True):
        assert ids == partition.get_item_indexes().tolist()
    assert sorted(number for ids in found for number in ids) == list(range(1000))
    assert parts.take([999, 0]).column("id").to_pylist() == [999, 0]
    with split(dataset, materialize=True, partitions_per_location=1) as joined:
        tables = [f.result(WAIT) for f in joined.map(Partition.materialize)]
    assert sum(len(table) for table in tables) == 1000


def test_frames_that_tasks_make(nodes: RayNodes) -> None:
    frames = [pd.DataFrame({"a": [n, n + 1]}) for n in range(4)]
    parts = split([ray.put(frame) for frame in frames])
    with pytest.raises(InvalidArgumentError, match="cannot infer what the function returns"):
        parts.map_blocks(pd.DataFrame.copy)
    made = parts.map_blocks(lambda frame: frame * 2, meta=frames[0])
    assert made.dtype is None
    pd.testing.assert_frame_equal(made.compute(), pd.concat(frames) * 2)


def test_frames_with_columns_in_another_order(nodes: RayNodes) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0, 12)})
    blocks = [ray.put(block) for block in (frame[:3], frame[3:][["b", "a"]])]
    parts = split(blocks, partitions_per_location=2)
    assert len(parts) == 2
    made = parts.map_blocks(pd.DataFrame.to_numpy, dtype=float, trailing_shape=(2,))
    with pytest.raises(InvalidArgumentError, match=r"\['a', 'b'\] and \['b', 'a'\]"):
        made.compute()


def ids_of(partition: Partition) -> list[int]:
    return [number for table in partition for number in table.column("id").to_pylist()]


def test_blocks_are_waited_for_and_their_own_error_is_raised(nodes: RayNodes) -> None:
    blocks = [programs.fill_placeholders.remote(10, 1), programs.failing.remote("no block")]
    with pytest.raises(ArithmeticError, match="no block") as raised:
        split(blocks)
    assert type(raised.value) is ArithmeticError


def test_a_place_that_the_owner_hears_of_late(
    nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block is not taken for one that is in no store, and had from there."""
    blocks = large(nodes, 6)
    ray.wait(blocks, num_returns=6, timeout=WAIT, fetch_local=False)
    asked = 0

    def late(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        answers = get_object_locations(*args, **kwargs)
        nowhere: dict[str, Any] = {} if asked > 3 else {"node_ids": []}
        return {reference: {**answer, **nowhere} for reference, answer in answers.items()}

    monkeypatch.setattr(ray_cluster, "get_object_locations", late)
    before = created()
    parts = split(blocks)
    assert {part.location: len(part) for part in parts} == dict.fromkeys(nodes.ids, 2)
    assert created() == before


def test_blocks_that_nobody_makes(nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_cluster.TIMEOUT_VARIABLE, "0.5")
    waiting = programs.fill_placeholders.options(resources={"nowhere": 1}).remote(1, 1)
    with pytest.raises(BlockTimeoutError, match=r"none became ready in 0\.5 s"):
        split([waiting])
    ray.cancel(waiting)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf"])
def test_timeouts_that_are_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_cluster.TIMEOUT_VARIABLE, value)
    with pytest.raises(InvalidArgumentError, match=ray_cluster.TIMEOUT_VARIABLE):
        ray_cluster.block_timeout()


def test_what_is_no_collection(nodes: RayNodes) -> None:
    one = ray.put(np.arange(3))
    for stray in (3, None, np.arange(3)):
        name = type(stray).__name__
        with pytest.raises(UnsupportedCollectionError, match=f"element 1 of the list is a {name}"):
            split([one, stray])
    with pytest.raises(UnsupportedCollectionError, match="empty list"):
        split([], backend="ray")
    with pytest.raises(UnsupportedCollectionError, match="ndarray is not a collection in Ray"):
        split([one], np.arange(3))
    with pytest.raises(InvalidArgumentError, match="do not fill"):
        RayArray((one,), ((2, 1),))


def test_the_same_block_twice(nodes: RayNodes) -> None:
    one = ray.put(np.arange(4))
    assert sum(f.result(WAIT) for f in split([one, one]).map(programs.total)) == 12


def test_sizes_of_an_array(nodes: RayNodes) -> None:
    array = RayArray((ray.put(np.zeros((2, 3))), ray.put(np.ones((1, 3)))), ((2, 1), (3,)))
    assert (array.shape, array.nblocks) == ((3, 3), 2)
    np.testing.assert_array_equal(array.compute(), [[0] * 3, [0] * 3, [1] * 3])


# --- futures and arguments --------------------------------------------------------------------


def test_a_team_reserves_a_cpu_for_each_thread(
    nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = []

    def options(**given: Any) -> Any:
        reserved.append(given.get("num_cpus"))
        return RUN.options(**{**given, "num_cpus": 1})

    def run_with(*cpus: int) -> list[int | None]:
        found = dict(zip(nodes.ids, cpus, strict=False))
        monkeypatch.setattr(ray_executor, "usable_nodes", lambda: found)
        parts = split(large(nodes, 6), schedule="SS")
        reserved.clear()
        assert parts.map_reduce(len, operator.add).result(timeout=WAIT) == 6
        return reserved[: len(parts.locations)]

    monkeypatch.setattr(ray_executor, "RUN", SimpleNamespace(options=options))
    assert set(run_with(2, 2, 2)) == {2}
    # If the larger one is lost, the other one must be able to run its task.
    assert set(run_with(4, 2, 2)) == {2}


def test_futures_can_be_asked(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    future = partition.submit(programs.total)
    assert isinstance(future, RayFuture)
    assert (future.result(WAIT), future.done(), future.exception(WAIT)) == (6, True, None)
    assert ray.get(future) == 6
    assert asyncio.run(awaited(future)) == 6
    plain = ObjectRef(future.binary(), future.owner_address())
    assert future == plain and plain == future and hash(future) == hash(plain)
    failed = partition.submit(operator.truediv, 0)
    assert isinstance(failed.exception(WAIT), TypeError)


async def awaited(future: RayFuture) -> Any:
    return await future


def test_waiting_has_a_limit(nodes: RayNodes, tmp_path: Any) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    go = tmp_path / "go"
    future = partition.submit(programs.slow_total, str(tmp_path / "started"), str(go))
    with pytest.raises(TimeoutError):
        future.result(0.1)
    with pytest.raises(TimeoutError):
        future.exception(0.1)
    assert not future.done()
    go.touch()
    assert future.result(WAIT) == 6


def test_futures_as_they_finish(nodes: RayNodes) -> None:
    futures = split(put_at(nodes.ids, [np.arange(3)] * 3, [0, 1, 2])).map(programs.total)
    assert sorted(f.result() for f in as_completed(futures, timeout=WAIT)) == [3, 3, 3]


def test_which_references_arrive_as_values(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    own, other = partition.submit(programs.total), ray.put("text")
    arrived = partition.submit(kinds, own, other, [own, {"a": (own,)}, other])
    # As an argument any reference does, as for a remote function; within others those of tasks.
    assert arrived.result(WAIT) == ["int", "str", "int", "int", "ObjectRef"]


def kinds(_: Partition, own: Any, other: Any, nested: Any) -> list[str]:
    first, named, second = nested
    return [type(value).__name__ for value in (own, other, first, named["a"][0], second)]


def test_a_future_in_what_crosses_is_a_reference(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    future = partition.submit(programs.total)
    held = ray.put(Holding(future))
    value = ray.get(held, timeout=WAIT).future
    assert type(value) is ObjectRef
    assert ray.get(value, timeout=WAIT) == 6


class Holding:
    def __init__(self, future: RayFuture) -> None:
        self.future = future


def test_partition_of_another_location_is_a_reference(nodes: RayNodes) -> None:
    first, second = split(put_at(nodes.ids, [np.arange(3)] * 2, [0, 1]))
    assert first.submit(indexes, second).result(WAIT) == [[(0,)], [(1,)]]


def indexes(*partitions: Partition) -> list[Any]:
    return [partition.get_indexes() for partition in partitions]


class OddError(Exception):
    """Cannot be unpickled: it wants two arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raise_odd(_: Partition) -> None:
    raise OddError(1, 2)


def test_errors_that_cannot_travel(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    with pytest.raises(TaskFailedError, match=r"(?s)OddError.*raise_odd"):
        partition.submit(raise_odd).result(WAIT)
    with pytest.raises(TaskFailedError, match=r"sys.exit\(3\)"):
        partition.submit(programs.leave).result(WAIT)


def test_process_lives_on_after_a_task_that_ends_badly(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    process = partition.submit(programs.process).result(WAIT)
    with pytest.raises(TaskFailedError, match=r"sys.exit\(3\)"):
        partition.submit(programs.leave).result(WAIT)
    with pytest.raises(TaskNotSerializableError, match=r"returned a tuple.*lock"):
        partition.submit(programs.array_and_lock).result(WAIT)
    os.kill(process, 0)  # is there
    assert partition.submit(programs.total).result(WAIT) == 6


def test_result_that_cannot_be_pickled(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    assert partition.executor is not None
    for future in (
        partition.submit(programs.array_and_lock),
        partition.executor.submit(programs.array_and_lock, (None,), {}),
        # An argument of another task.
        partition.submit(lambda _, value: value, partition.submit(programs.array_and_lock)),
    ):
        with pytest.raises(TaskNotSerializableError, match=r"returned a tuple.*lock"):
            future.result(WAIT)


def test_errors_as_ray_shows_them(nodes: RayNodes) -> None:
    (partition,) = split([ray.put(np.arange(4))])
    future = partition.submit(operator.getitem, 0)
    with pytest.raises(TypeError, match="not subscriptable") as raised:
        ray.get(future, timeout=WAIT)
    assert isinstance(raised.value, ray.exceptions.RayTaskError)


def test_errors_of_classes_that_only_the_program_has(nodes: RayNodes) -> None:
    local = type("LocalError", (Exception,), {"__module__": "__main__"})

    def fail(_: Partition) -> None:
        raise local("mine")

    (partition,) = split([ray.put(np.arange(4))])
    error = partition.submit(fail).exception(WAIT)
    assert type(error).__name__ == "LocalError"
    assert str(error) == "mine"
