"""Rows put together for boosting: the same parts as XGBoost's and LightGBM's modules for Dask."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask.array as da
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Event, get_worker, wait

from spliter import AlignmentError, InvalidArgumentError, gather
from spliter_apps.boosting import LocalRows, colocate
from tests.dask_backend.conftest import start
from tests.dask_workers import workers_of

pytestmark = pytest.mark.backend("dask")

Array = npt.NDArray[Any]
HEIGHTS = (50, 0, 30, 70, 20, 40)
AT = (0, 1, 1, 0, 1, 0)
"""At which of three workers each block is: the third has none."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ExitStack() as stack:
        yield start(stack, n_workers=3)


@pytest.fixture(scope="module")
def workers(client: Client) -> list[str]:
    return workers_of(client)


def same(block: Any) -> Any:
    return block


def placed(client: Client, array: Array, workers: Sequence[str], at: Sequence[int] = AT) -> Any:
    """Return a Dask array of blocks that are at given workers."""
    name = f"placed-{uuid.uuid4().hex}"
    further = (0,) * (array.ndim - 1)
    graph: dict[Any, Any] = {}
    for number, (block, where) in enumerate(
        zip(np.split(array, np.cumsum(HEIGHTS)[:-1]), at, strict=True)
    ):
        key = (name, number, *further)
        graph[key] = client.submit(same, block, workers=[workers[where]], key=key)
    wait(list(graph.values()))
    layers = HighLevelGraph.from_collections(name, graph, dependencies=())
    chunks = (HEIGHTS, *((size,) for size in array.shape[1:]))
    return da.Array(layers, name, chunks=chunks, dtype=array.dtype)


@pytest.fixture(scope="module")
def columns() -> dict[str, Array]:
    """Return what boosting libraries take, each value telling its row."""
    rows = np.arange(sum(HEIGHTS))
    return {
        "data": np.column_stack([rows, -rows]).astype(np.float32),
        "label": (rows % 2).astype(np.float32),
        "weight": rows / 10,
        "base_margin": rows * 100.0,
        # Queries of 10 rows, whole in each block.
        "qid": rows // 10,
    }


@pytest.fixture(scope="module")
def collections(client: Client, workers: list[str], columns: dict[str, Array]) -> dict[str, Any]:
    return {name: placed(client, column, workers) for name, column in columns.items()}


def here(rows: LocalRows) -> LocalRows:
    return rows


def test_parts_are_blocks_in_order_where_they_are(
    client: Client, workers: list[str], columns: dict[str, Array], collections: dict[str, Any]
) -> None:
    data, *_ = collections.values()
    others = {name: value for name, value in collections.items() if name != "data"}
    with colocate(data, locations=workers, **others) as rows:
        assert rows.names == ("data", "label", "weight", "base_margin", "qid")
        assert rows.blocks_at == {workers[0]: (0, 3, 5), workers[1]: (1, 2, 4)}
        assert rows.empty == (workers[2],)
        assert rows.moved.blocks == 0
        found = gather(rows.map(here))
        ran = gather(rows.map(lambda rows: (rows.number, rows.locations, rows.threads)))
    assert ran == [(0, 2, 1), (1, 2, 1)]
    cuts = np.cumsum(HEIGHTS)[:-1]
    for local, positions in zip(found, [(0, 3, 5), (1, 2, 4)], strict=True):
        assert local.positions == positions
        assert list(local.parts) == list(columns)
        for name, column in columns.items():
            whole = np.split(column, cuts)
            for block, position in zip(local.parts[name], positions, strict=True):
                np.testing.assert_array_equal(block, whole[position])


def meet(rows: LocalRows, names: Sequence[str]) -> tuple[str, float]:
    """Wait until the task of each other location runs; return where this one does."""
    Event(names[rows.number]).set()
    for name in names:
        assert Event(name).wait(timeout=30)
    return get_worker().address, float(sum(block.sum() for block in rows.parts["data"]))


def drop_copies(client: Client, futures: Sequence[Any], address: str) -> None:
    """Remove what a worker holds of blocks that others hold, too, as Dask's memory manager does."""

    def drop(dask_scheduler: Any) -> None:
        keys = [future.key for future in futures]
        dask_scheduler.request_remove_replicas(address, keys, stimulus_id="test")

    client.run_on_scheduler(drop)
    wait_until(lambda: all(address not in held for held in client.who_has(futures).values()))


def test_tasks_that_wait_for_each_other_stay_where_their_blocks_were(
    client: Client, workers: list[str]
) -> None:
    client.amm.stop()  # it would drop the replicas when it likes to
    blocks = [client.submit(np.full, (4, 1), n, workers=workers[:1]) for n in range(4)]
    wait(blocks)
    client.replicate(blocks, workers=workers[:2])
    with colocate(blocks) as rows:
        planned = list(rows.blocks_at)
        assert set(planned) == set(workers[:2])
        drop_copies(client, blocks, workers[1])
        names = [uuid.uuid4().hex for _ in range(2)]
        found = gather(rows.map(meet, names))
        assert [address for address, _ in found] == planned
        assert sum(total for _, total in found) == 4 * (0 + 1 + 2 + 3)
        assert rows.moved.fetched_blocks == 2
    client.amm.start()


def test_columns_elsewhere_are_brought_and_counted(
    client: Client, workers: list[str], columns: dict[str, Array], collections: dict[str, Any]
) -> None:
    away = placed(client, columns["label"], workers, at=[2] * len(AT))
    with colocate(collections["data"], label=away, weight=None) as rows:
        assert rows.names == ("data", "label")
        assert rows.moved.aligned_blocks == len(AT)
        for local in gather(rows.map(here)):
            whole = local.concatenated()
            np.testing.assert_array_equal(whole["label"], whole["data"][:, 0] % 2)


def test_columns_in_memory_are_sent_to_their_rows(
    columns: dict[str, Array], collections: dict[str, Any]
) -> None:
    label, weight = columns["label"].tolist(), columns["weight"]
    with colocate(collections["data"], label=label, weight=weight) as rows:
        assert rows.moved.aligned_blocks == 0
        for local in gather(rows.map(here)):
            whole = local.concatenated()
            np.testing.assert_array_equal(whole["label"], whole["data"][:, 0] % 2)
            np.testing.assert_allclose(whole["weight"], whole["data"][:, 0] / 10)
    with pytest.raises(InvalidArgumentError, match="label has 3 entries and the points have 210"):
        colocate(collections["data"], label=[0, 1, 1])


def test_a_large_column_in_memory_is_sent_in_several_messages(client: Client) -> None:
    # Dask warns of a message of more than 10 MB, and warnings are errors here.
    label = np.arange(4_000_000.0)
    data = client.submit(np.zeros, (len(label), 1), dtype=np.uint8)
    with colocate([data], label=label) as rows:
        (found,) = gather(rows.map(lambda rows: rows.concatenated()["label"].sum()))
    assert found == label.sum()


def test_same_as_lightgbm_puts_together(
    client: Client, workers: list[str], columns: dict[str, Array], collections: dict[str, Any]
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    from lightgbm.dask import _concat, _split_to_parts

    sizes = [len(group) for group in np.split(columns["qid"], np.cumsum(HEIGHTS)[:-1])]
    groups = [np.full(size // 10, 10) for size in sizes]
    delayed = {
        name: _split_to_parts(data=collections[theirs], is_matrix=name == "data")
        for name, theirs in [("data", "data"), ("label", "label"), ("init_score", "base_margin")]
    }
    parts = {name: client.gather(client.compute(list(column))) for name, column in delayed.items()}
    others = {"label": collections["label"], "init_score": collections["base_margin"]}
    with colocate(collections["data"], qid=collections["qid"], **others) as rows:
        for positions, local in zip(rows.blocks_at.values(), gather(rows.map(here)), strict=True):
            whole = local.concatenated()
            for name, blocks in parts.items():
                expected = _concat([blocks[at] for at in positions])
                np.testing.assert_array_equal(whole[name], expected)
            np.testing.assert_array_equal(
                local.group_sizes(), _concat([groups[at] for at in positions])
            )
    assert lightgbm.__version__


def block_thread(over: str) -> None:
    """Hold a worker's thread until the event is set."""
    assert Event(over).wait(timeout=60)


def started(rows: LocalRows) -> int:
    return time.monotonic_ns()


def test_earlier_calls_go_first_at_every_worker(
    client: Client, workers: list[str], collections: dict[str, Any]
) -> None:
    over = Event(f"over-{uuid.uuid4().hex}")
    with colocate(collections["data"], label=collections["label"]) as rows:
        blockers = [
            client.submit(block_thread, over.name, workers=[worker], pure=False)
            for worker in workers
        ]
        try:
            futures = [rows.map(started) for _ in range(8)]
            over.set()
            times = np.array([gather(call) for call in futures])
        finally:
            over.set()
    client.gather(blockers)
    assert (np.diff(times, axis=0) > 0).all()


def test_queries_at_several_locations_are_refused(
    client: Client, workers: list[str], collections: dict[str, Any]
) -> None:
    torn = placed(client, np.arange(sum(HEIGHTS)) // 60, workers)
    with colocate(collections["data"], qid=collections["qid"]) as rows:
        rows.check_whole_queries()
    with (
        colocate(collections["data"], qid=torn) as rows,
        pytest.raises(AlignmentError, match=r"queries \(0, 1, "),
    ):
        rows.check_whole_queries()


def test_rows_are_sorted_by_query_where_they_are_not() -> None:
    x = [np.arange(6).reshape(3, 2), np.arange(6, 10).reshape(2, 2)]
    sorted_already = [np.array([0, 0, 1]), np.array([1, 2])]
    with colocate(x, qid=sorted_already) as rows:
        (local,) = gather(rows.map(here))
    assert local.sorted_by_query() is local
    np.testing.assert_array_equal(local.group_sizes(), [2, 2, 1])
    with colocate(x, qid=[np.array([2, 0, 2]), np.array([1, 0])]) as rows:
        (local,) = gather(rows.map(here))
    with pytest.raises(InvalidArgumentError, match="sorted_by_query"):
        local.group_sizes()
    ordered = local.sorted_by_query()
    np.testing.assert_array_equal(ordered.parts["qid"][0], [0, 0, 1, 2, 2])
    np.testing.assert_array_equal(ordered.parts["data"][0][:, 0], [2, 8, 6, 0, 4])
    np.testing.assert_array_equal(ordered.group_sizes(), [2, 1, 2])


def test_wrong_arguments_are_refused() -> None:
    x, y = [np.zeros((2, 2)), np.zeros((1, 2))], [np.zeros(2), np.zeros(1)]
    with pytest.raises(InvalidArgumentError, match="'data'"):
        colocate(x, data=y)
    with pytest.raises(AlignmentError):
        colocate(x, label=[np.zeros(3)])
    with pytest.raises(InvalidArgumentError, match="one block along axis 1"):
        colocate(da.zeros((4, 4), chunks=2).persist(scheduler="threads"), backend="local")
    with colocate(x, label=y) as rows:
        (local,) = gather(rows.map(here))
    with pytest.raises(InvalidArgumentError, match="'qid' is missing"):
        local.group_sizes()
