"""Programs of Dask give Dask's own bits with one task per partition, on two workers."""

from __future__ import annotations

import functools
import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import List, Task, TaskRef
from dask.utils import get_scheduler_lock
from distributed import Client, Lock, SchedulerPlugin, wait
from packaging.version import Version

from spliter import partitioned
from tests.dask_backend import programs
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.placing import shuffled_array
from tests.dask_workers import workers_of
from tests.waiting import wait_until, wait_until_made

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(300)]

CHUNKS = 40


def array() -> Any:
    """Rows of random numbers, lazily, in small chunks."""
    return da.random.default_rng(5).random((CHUNKS * 20, 4), chunks=(20, 4))


def frame() -> pd.DataFrame:
    at = np.arange(CHUNKS * 5)
    return pd.DataFrame({"k": at % 50, "v": np.sin(at)})


def climatology(x: da.Array) -> Any:
    xr = pytest.importorskip("xarray")
    times = pd.date_range("2000-01-01", periods=len(x), freq="D")
    months = xr.DataArray(x, dims=("time", "place"), coords={"time": times}).groupby("time.month")
    return (months - months.mean("time")).std("time").data


def rolling(x: da.Array) -> Any:
    xr = pytest.importorskip("xarray")
    return xr.DataArray(x, dims=("time", "place")).rolling(time=3).mean().std("time").data


ARRAYS: dict[str, Callable[[da.Array], Any]] = {
    "sum": lambda x: x.sum(),
    "std": lambda x: x.std(axis=0),
    "histogram": lambda x: da.histogramdd(x[:, :2], bins=4, range=((0, 1), (0, 1)))[0],
    "normalise": lambda x: ((x - x.mean(axis=0)) ** 2).sum(axis=0),
    "stencil": lambda x: x[:, 0].map_overlap(np.cumsum, depth=1, boundary="reflect").sum(),
    "cumsum": lambda x: da.cumsum(x[:, 0])[-5:],
    "svd": lambda x: da.linalg.svd_compressed(x, 2, seed=3)[1],
    "gram": lambda x: x.T @ x,
    "argmax": lambda x: x.argmax(axis=0),
    "topk": lambda x: da.topk(x[:, 0], 5),
    "climatology": climatology,
    "rolling": rolling,
    "whole": lambda x: x + 1,
}

FRAMES: dict[str, Callable[[Any], Any]] = {
    "describe": lambda frame: frame.describe(),
    "std": lambda frame: frame.v.std(),
    "group": lambda frame: frame.groupby("k").v.agg(["mean", "sum"]),
    "counts": lambda frame: frame.k.value_counts(),
    "merge": lambda frame: frame.merge(
        pd.DataFrame({"k": np.arange(50), "w": np.arange(50.0)}), on="k"
    ).w.sum(),
}


def same(first: Any, second: Any) -> bool:
    """Return whether all bits are equal."""
    if isinstance(first, pd.DataFrame | pd.Series):
        return bool(first.equals(second))
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and first.tobytes() == second.tobytes())
    return bool(first == second and type(first) is type(second))


class CountTasks(SchedulerPlugin):
    """Counts the tasks that the scheduler is asked to run."""

    name = "count-tasks"

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def transition(self, key: Any, start: Any, finish: Any, *_: Any, **__: Any) -> None:
        if start == "released" and finish in ("waiting", "queued", "no-worker", "processing"):
            self.keys.append(key)


@contextmanager
def counted(client: Client) -> Iterator[list[Any]]:
    """Collect the keys of tasks that are sent."""

    def add(dask_scheduler: Any) -> None:
        dask_scheduler.add_plugin(CountTasks(), name="count-tasks")

    def take(dask_scheduler: Any) -> list[Any]:
        keys: list[Any] = dask_scheduler.plugins["count-tasks"].keys
        dask_scheduler.remove_plugin("count-tasks")
        return keys

    client.run_on_scheduler(add)
    found: list[Any] = []
    yield found
    found += client.run_on_scheduler(take)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(client: Client, name: str) -> None:
    lazy = ARRAYS[name](array())
    expected = lazy.compute()
    ours = partitioned(client)
    with counted(client) as sent:
        assert same(lazy.compute(scheduler=ours), expected)
    explained = ours.explain(lazy)
    assert explained.reason == ""
    assert len(sent) == explained.after <= 24
    assert explained.before >= 2 * CHUNKS


@pytest.mark.parametrize("name", FRAMES)
def test_frames(client: Client, name: str) -> None:
    for lazy in (
        dd.from_pandas(frame(), npartitions=CHUNKS),
        dd.from_pandas(frame(), npartitions=CHUNKS).persist(),
    ):
        result = FRAMES[name](lazy)
        assert same(result.compute(scheduler=partitioned(client)), result.compute())


def test_bags_and_delayed(client: Client) -> None:
    bag = db.range(400, npartitions=CHUNKS).foldby(lambda n: n % 3, operator.add, 0)
    load = dask.delayed(abs)
    delayed = dask.delayed(sum)([load(-n) for n in range(CHUNKS)])
    expected = dask.compute(bag, {"total": delayed, "plain": 5})
    with counted(client) as sent, partitioned(client):
        assert dask.compute(bag, {"total": delayed, "plain": 5}) == expected
    assert len(sent) <= 12


class Sampler:
    """Draws other numbers each time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def draw(self, block: Any) -> Any:
        return programs.add_noise(block, self.rng)


def test_tasks_do_not_share_what_they_change(client: Client) -> None:
    rng, options, sampler, x = np.random.default_rng(0), {"add": 1}, Sampler(), array()
    for lazy in (
        x.map_blocks(programs.add_noise, rng, dtype=float),
        x.map_blocks(sampler.draw, dtype=float),
        x.map_blocks(lambda block: programs.add_noise(block, rng), dtype=float),
        dask.delayed([dask.delayed(rng.normal)(n) for n in range(CHUNKS)]),
        dask.delayed([dask.delayed(programs.take_option)(n, options) for n in range(CHUNKS)]),
    ):
        assert partitioned(client).explain(lazy).reason == ""
        assert same(lazy.compute(scheduler=partitioned(client)), lazy.compute(scheduler=client))


class OneAtATime:
    """Raises if two processes write at the same time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __setitem__(self, region: Any, block: Any) -> None:
        self.file.touch(exist_ok=False)
        time.sleep(0.05)
        self.file.unlink()


def test_what_is_written_is_locked_in_all_processes(client: Client, tmp_path: Path) -> None:
    with partitioned(client):
        assert isinstance(get_scheduler_lock(), Lock)
        target: Any = OneAtATime(tmp_path / "open")
        da.store(array()[:200], target, lock=True)
        locks = pytest.importorskip("xarray.backends.locks")
        assert locks.get_dask_scheduler() == "distributed"


def test_xarray_writes_zarr_with_a_task_per_partition(client: Client, tmp_path: Path) -> None:
    """It passes an option that Dask ignores."""
    xr, _ = pytest.importorskip("xarray"), pytest.importorskip("zarr")
    x = xr.DataArray(array(), dims=("time", "place"), name="x").to_dataset()
    with counted(client) as sent, partitioned(client):
        x.to_zarr(tmp_path / "x.zarr", zarr_format=2)
    assert len(sent) <= 6
    with xr.open_zarr(tmp_path / "x.zarr") as lazy:
        assert same(lazy.x.values, x.x.data.compute(scheduler=client))


def test_tasks_that_have_another_key_than_in_the_graph(client: Client) -> None:
    """As clones of `dask.graph_manipulation` do: the key of the original."""
    graph: dict[str, Any] = {f"clone{n}": Task(f"part{n}", abs, -n) for n in range(CHUNKS)}
    graph["sum"] = Task("total", sum, List(*map(TaskRef, graph)))
    with counted(client) as sent:
        assert partitioned(client)(graph, ["sum", "clone3"]) == [sum(range(CHUNKS)), 3]
    assert len(sent) < 10


def test_a_rechunk_from_worker_to_worker(client: Client) -> None:
    x = da.random.default_rng(0).random((CHUNKS * 10, 200), chunks=(10, 200))
    with dask.config.set({"array.rechunk.method": "p2p"}):
        lazy = x.rechunk((CHUNKS * 10, 10)).sum(axis=0)
        explained = partitioned(client).explain(lazy)
        assert explained.alone > CHUNKS // 2
        assert same(lazy.compute(scheduler=partitioned(client)), lazy.compute(scheduler=client))


def test_a_shuffle_of_the_same_name_afterwards_leaves_nothing(client: Client) -> None:
    """Its tasks have the keys of the one before, and other dependencies."""
    for seed in range(8):
        x = da.random.default_rng(seed).random((CHUNKS * 10, 200), chunks=(10, 200))
        with dask.config.set({"array.rechunk.method": "p2p"}):
            lazy = x.rechunk((CHUNKS * 10, 10)).sum(axis=0)
            lazy.compute(scheduler=partitioned(client))
            lazy.compute(scheduler=client)
        wait_until(functools.partial(is_forgotten, client, x.name), 30)


def is_forgotten(client: Client, name: str) -> bool:
    return not client.run_on_scheduler(known, name=name)


def known(dask_scheduler: Any, name: str) -> int:
    return sum(name in str(key) for key in dask_scheduler.tasks)


def test_dask_ml(client: Client) -> None:
    preprocessing = pytest.importorskip("dask_ml.preprocessing")
    x = array()
    plain = preprocessing.StandardScaler().fit(x)
    with partitioned(client):
        ours = preprocessing.StandardScaler().fit(x)
    for name in ("mean_", "var_", "scale_"):
        assert same(getattr(ours, name), getattr(plain, name))


def crossed(client: Client, keys: set[Any]) -> int:
    """Return how often some of `keys` have gone from worker to worker so far."""

    def sent(dask_worker: Any) -> list[Any]:
        return [key for entry in dask_worker.transfer_outgoing_log for key in entry["keys"]]

    return sum(key in keys for found in client.run(sent).values() for key in found)


@pytest.mark.parametrize("name", sorted({*ARRAYS} - {"whole"}))
def test_persisted_blocks_do_not_cross(client: Client, name: str) -> None:
    x = shuffled_array(np.random.default_rng(1).random((CHUNKS * 20, 4)), [20] * CHUNKS)
    wait(x)
    keys = {future.key for future in client.futures_of(x)}
    lazy = ARRAYS[name](x)
    ours = lazy.compute(scheduler=partitioned(client))
    assert partitioned(client).explain(lazy).existing == 0
    assert crossed(client, keys) == 0
    assert same(ours, lazy.compute(scheduler=client))


def test_blocks_that_cross_are_counted(client: Client) -> None:
    """Also the control of the test above: these have to cross."""
    x = shuffled_array(np.random.default_rng(1).random((CHUNKS * 20, 4)), [20] * CHUNKS)
    wait(x)
    keys = {future.key for future in client.futures_of(x)}
    lazy = dask.delayed([dask.delayed(np.add)(a, b).sum() for a, b in zip(*halves(x), strict=True)])
    explained = partitioned(client).explain(lazy)
    assert explained.existing > 0
    assert explained.existing_nbytes == explained.existing * 20 * 4 * 8
    ours = lazy.compute(scheduler=partitioned(client))
    assert crossed(client, keys) == explained.existing
    assert same(ours, lazy.compute(scheduler=client))


def halves(x: da.Array) -> tuple[list[Any], list[Any]]:
    blocks = x.to_delayed().ravel().tolist()
    return blocks[: CHUNKS // 2], blocks[CHUNKS // 2 :]


def test_blocks_that_are_being_made_are_waited_for(client: Client) -> None:
    x = array().map_blocks(programs.slowly).persist()
    explained = partitioned(client).explain(x.sum())
    assert explained.existing == 0
    assert explained.reason == ""
    assert same(x.sum().compute(scheduler=partitioned(client)), x.sum().compute())


@pytest.mark.skipif(
    Version(dask.__version__) < Version("2026.1"), reason="a scheduler cannot provide persist"
)
def test_persist_is_the_clients(client: Client) -> None:
    with partitioned(client):
        x = array().persist()
        assert isinstance(x, da.Array)
        assert len(client.futures_of(x)) == CHUNKS
    assert same(x.compute(), array().compute())


def test_contexts_may_be_nested_and_used_again(client: Client) -> None:
    before = dask.config.get("scheduler", None)
    ours = partitioned(client)
    x = array()
    for _ in range(2):
        with ours:
            with ours, partitioned(client, partitions_per_location=2) as inner:
                assert dask.config.get("scheduler") is inner
            assert dask.config.get("scheduler") is ours
            with pytest.raises(ZeroDivisionError), ours:
                raise ZeroDivisionError
            assert dask.config.get("scheduler") is ours
            assert same(x.sum().compute(), x.sum().compute(scheduler=client))
        assert dask.config.get("scheduler", None) == before


def test_more_partitions(client: Client) -> None:
    explained = partitioned(client, partitions_per_location=3).explain(array().sum())
    assert explained.levels[0][0] == 6


def test_explain(client: Client) -> None:
    explained = partitioned().explain(array().sum())
    assert str(explained).startswith(f"{explained.before} tasks, run as {explained.after}\n")
    assert "level 0: 2 clusters of" in repr(explained)
    assert "between workers: " in explained._repr_html_()
    forwarded = partitioned().explain(dask.delayed(abs)(3))
    assert "forwarded to Dask as they are: clusters would still be" in str(forwarded)


def test_annotated_tasks_stay_single_tasks(client: Client) -> None:
    worker = workers_of(client)[1]
    with dask.annotate(workers=[worker], priority=3, retries=2):
        x = array()
    lazy = (x + 1).sum()
    with dask.config.set({"optimization.fuse.active": False}):
        expected = lazy.compute(optimize_graph=False)
        with counted(client) as sent:
            assert same(lazy.compute(scheduler=partitioned(client), optimize_graph=False), expected)
    assert sum("random" in str(key) for key in sent) == CHUNKS
    assert len(sent) < 2 * CHUNKS


def test_annotations_of_all_tasks_forward_the_graph(client: Client) -> None:
    with dask.annotate(retries=1):
        explained = partitioned(client).explain(array().sum())
        assert explained.reason == "options or annotations hold for all tasks"
        assert same(array().sum().compute(scheduler=partitioned(client)), array().sum().compute())


def sleep_until_gone(block: Any, go: str) -> Any:
    wait_until_made(Path(go))
    return block


def die_once(block: Any, file: str) -> Any:
    if block[0, 0] > 0 and not Path(file).exists():
        Path(file).touch()
        programs.die()
    return block


def test_a_worker_that_dies_is_survived(start_cluster: StartCluster, tmp_path: Path) -> None:
    client = start_cluster()
    file = tmp_path / "died"
    x = array()
    lazy = x.map_blocks(die_once, str(file), dtype=float).std(axis=0)
    result = lazy.compute(scheduler=partitioned(client))
    wait_until_made(file)
    assert same(result, x.std(axis=0).compute(scheduler="sync"))


def test_workers_may_start_within_the_context(start_cluster: StartCluster) -> None:
    """A local cluster sends them the configuration, in which the scheduler is."""
    client = start_cluster(n_workers=1)
    cluster: Any = client.cluster
    with partitioned(client):
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)


def test_persisted_blocks_of_a_dead_worker_are_made_again(start_cluster: StartCluster) -> None:
    client = start_cluster()
    x = array().persist()
    wait(x)
    programs.kill(client, workers_of(client)[0])
    result = (x - x.mean(axis=0)).sum(axis=0).compute(scheduler=partitioned(client))
    y = array()
    assert same(result, (y - y.mean(axis=0)).sum(axis=0).compute(scheduler="sync"))


def test_blocks_are_made_again_if_all_workers_are_replaced(
    start_cluster: StartCluster, add_worker: Callable[..., None], tmp_path: Path
) -> None:
    client = start_cluster(restarts=False)
    with dask.annotate(workers=workers_of(client), allow_other_workers=True):
        x = array().persist()
    wait(x)
    sleeping = x.map_blocks(sleep_until_gone, str(tmp_path / "go"), dtype=float).sum(axis=0)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(sleeping.compute, scheduler=partitioned(client))
        try:
            wait_until(lambda: any(client.processing().values()))
            for pid in programs.pids(client).values():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not workers_of(client))
        finally:
            (tmp_path / "go").touch()
        add_worker(client)
        assert same(result.result(timeout=60), array().sum(axis=0).compute(scheduler="sync"))
