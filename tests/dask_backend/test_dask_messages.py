"""Messages of a program to Dask's scheduler: how many, how large, and in which order."""

from __future__ import annotations

import asyncio
import functools
import gc
import operator
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import CancelledError, Client, get_worker, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import spliter
from spliter import TaskNotSerializableError, gather, reduce, split
from spliter_backends.dask.client import batch as dask_batch
from spliter_backends.dask.client import calls as dask_calls
from tests.dask_backend import programs
from tests.dask_backend.programs import expected, spread, total

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

PARTITIONS = 8


@pytest.fixture(scope="module")
def parts(client: Client) -> Iterator[spliter.Split]:
    """A Split of 16 blocks, four partitions at each of two workers."""
    with split(spread(client, 16, tag="messages"), partitions_per_location=4) as made:
        assert len(made) == PARTITIONS
        yield made


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a batch only when something else asks for it, however slow this machine is."""
    monkeypatch.setattr(dask_batch, "QUIET_SECONDS", 300.0)
    monkeypatch.setattr(dask_batch, "MAX_DELAY", 300.0)


class CountGraphs(SchedulerPlugin):
    name = "count-graphs"

    def __init__(self) -> None:
        self.graphs = 0

    def update_graph(self, scheduler: Any, **_: Any) -> None:
        self.graphs += 1


@pytest.fixture
def graphs(client: Client) -> Iterator[Callable[[], int]]:
    """Return how many graphs the scheduler has been sent since the test began."""
    client.register_plugin(CountGraphs())

    def count(dask_scheduler: Any) -> int:
        plugin: CountGraphs = dask_scheduler.plugins[CountGraphs.name]
        return plugin.graphs

    yield lambda: int(client.run_on_scheduler(count))
    client.unregister_scheduler_plugin(CountGraphs.name)


def known(client: Client, names: tuple[str, ...]) -> list[str]:
    """Return the keys of functions that the scheduler has, once there are none or 10 s are over."""

    def keys(dask_scheduler: Any) -> list[str]:
        return [str(key) for key in dask_scheduler.tasks if str(key).startswith(names)]

    end = time.monotonic() + 10
    while (found := client.run_on_scheduler(keys)) and time.monotonic() < end:
        time.sleep(0.02)
    return list(found)


# --- how many ----------------------------------------------------------------------------------


@pytest.mark.feature("batches")
@pytest.mark.usefixtures("unhurried")
def test_a_loop_is_one_message(parts: spliter.Split, graphs: Callable[[], int]) -> None:
    assert sum(gather([total(part) for part in parts])) == expected(16)
    assert graphs() == 1
    assert sum(gather(parts.map(total))) == expected(16)
    assert graphs() == 2
    totals = [total(part) for part in parts]
    doubled = [part.submit(programs.weighted, one) for part, one in zip(parts, totals, strict=True)]
    assert gather([reduce(operator.add, doubled)]) == [sum(one * one for one in gather(totals))]
    assert graphs() == 3


@pytest.mark.feature("batches")
@pytest.mark.usefixtures("unhurried")
def test_threads_share_a_message(parts: spliter.Split, graphs: Callable[[], int]) -> None:
    with ThreadPoolExecutor(4) as threads:
        futures = list(threads.map(total, parts))
    assert sum(gather(futures)) == expected(16)
    assert graphs() == 1


def test_control_of_one_message(
    client: Client, parts: spliter.Split, graphs: Callable[[], int]
) -> None:
    for part in parts:
        total(part).result(timeout=20)
    assert graphs() == PARTITIONS


@pytest.mark.feature("pushes")
def test_a_message_leaves_by_itself(start_cluster: Any) -> None:
    client = start_cluster()
    parts = split(spread(client, 8), partitions_per_location=2)
    client.scheduler_comm.interval = 600  # seconds, instead of 10 ms
    for _ in range(2):
        futures = [total(part) for part in parts]
        assert sum(future.result(timeout=20) for future in futures) == expected(8)


@pytest.mark.feature("batches")
@pytest.mark.usefixtures("unhurried")
def test_a_message_leaves_when_it_is_large(
    monkeypatch: pytest.MonkeyPatch, parts: spliter.Split, graphs: Callable[[], int]
) -> None:
    monkeypatch.setattr(dask_batch, "MAX_BATCH_NBYTES", 100_000)
    different = [
        part.submit(programs.options, given=b"%d" % at * 60_000) for at, part in enumerate(parts)
    ]
    assert len(gather(different)) == PARTITIONS
    assert graphs() == PARTITIONS / 2
    same = [part.submit(programs.options, given=b"0" * 60_000) for part in parts]  # sent once
    assert len(gather(same)) == PARTITIONS
    assert graphs() == PARTITIONS / 2 + 1


# --- in which order ----------------------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    "use",
    [
        lambda client, future: client.submit(operator.neg, future, pure=False).result(timeout=20),
        lambda client, future: client.map(operator.neg, [future], pure=False)[0].result(20),
        lambda client, future: client.compute(dask.delayed(operator.neg)(future)).result(20),
    ],
    ids=["submit", "map", "delayed"],
)
def test_what_is_submitted_next_finds_the_results(
    client: Client, parts: spliter.Split, use: Callable[[Client, Any], int]
) -> None:
    totals = gather([total(parts[0]), total(parts[1])])
    first = total(parts[0])
    second = client.submit(operator.add, first, 1, pure=False)
    third = parts[1].submit(programs.weighted, second)
    assert use(client, third) == -(totals[0] + 1) * totals[1]


@pytest.mark.usefixtures("unhurried")
def test_tasks_keep_what_they_need_until_they_are_sent(
    client: Client, parts: spliter.Split
) -> None:
    factor = client.submit(operator.add, 1, 1, pure=False)
    factor.result(timeout=20)
    future = parts[0].submit(programs.weighted, factor)
    del factor
    gc.collect()
    assert client.sync(asyncio.sleep, 0) is None  # what is released has been sent
    assert gather([future]) == [2 * gather([total(parts[0])])[0]]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("drop", ["release", "cancel", "forget"])
def test_results_that_nobody_wants_any_more_are_freed(
    client: Client, parts: spliter.Split, drop: str
) -> None:
    future = parts[0].submit(programs.where)
    if drop != "forget":
        getattr(future, drop)()
    if drop == "cancel":
        with pytest.raises(CancelledError):
            future.result(timeout=20)
    del future
    gc.collect()
    gather([total(parts[0])])
    assert known(client, ("where", "total")) == []


@pytest.mark.usefixtures("unhurried")
def test_a_client_that_closes_cancels_what_it_has_not_sent(start_cluster: Any) -> None:
    client = start_cluster(n_workers=1)
    future = total(split(spread(client, 2))[0])
    client.close()
    assert future.status == "cancelled"


def started(partition: Any) -> float:
    """Return when the task started."""
    return time.monotonic()


@pytest.mark.usefixtures("unhurried")
def test_tasks_of_a_message_start_in_the_order_of_submission(parts: spliter.Split) -> None:
    at: dict[str, list[float]] = {}
    for part, seconds in zip(parts, gather(parts.map(started)), strict=True):
        at.setdefault(part.location, []).append(seconds)
    assert [len(times) for times in at.values()] == [4, 4]
    assert all(times == sorted(times) for times in at.values())


def annotated(partition: Any) -> dict[str, Any]:
    task = get_worker().state.tasks[get_worker().get_current_task()]
    return dict(task.annotations or {})


@pytest.mark.usefixtures("unhurried")
def test_each_task_of_a_message_has_its_own_annotations(parts: spliter.Split) -> None:
    with dask.annotate(priority=7, note=lambda key: key[:4]):
        first = parts[0].submit(annotated)
    second = parts[1].submit(annotated)
    with dask.annotate(retries=2):
        third = parts[2].submit(annotated)
        found = gather([first, second, third])
    assert [(one.get("priority"), one.get("retries"), one.get("note")) for one in found] == [
        (7, None, "anno"),
        (None, None, None),
        (None, 2, None),
    ]


# --- functions and arguments ----------------------------------------------------------------------


def test_a_function_is_pickled_once(monkeypatch: pytest.MonkeyPatch, parts: spliter.Split) -> None:
    pickled: list[Any] = []
    dumps = dask_calls._dumps

    def counted(fn: Any) -> bytes:
        pickled.append(fn)
        return dumps(fn)

    monkeypatch.setattr(dask_calls, "_dumps", counted)
    factor, bins = 2, np.arange(3)

    @spliter.task
    def scaled(partition: Any) -> float:
        return factor * float(sum(block.sum() for block in partition)) + float(bins.sum())

    assert sum(gather([scaled(part) for part in parts])) == 2 * expected(16) + 3 * PARTITIONS
    assert sum(gather(parts.map(scaled))) == 2 * expected(16) + 3 * PARTITIONS
    assert len(pickled) == 1


def test_changes_of_what_a_function_captures_reach_later_tasks_only(parts: spliter.Split) -> None:
    number, bins, handle = 0, np.zeros(1), {"call": functools.partial(int, 0)}

    def captured(partition: Any) -> tuple[int, float, int]:
        return number, float(bins[0]), handle["call"]()

    futures = []
    for number, part in enumerate(parts):
        bins[0] = number
        handle["call"] = functools.partial(int, number)
        futures.append(part.submit(captured))
    assert gather(futures) == [(at, at, at) for at in range(PARTITIONS)]


@pytest.mark.usefixtures("unhurried")
def test_changes_of_an_argument_reach_later_tasks_only(parts: spliter.Split) -> None:
    given, futures = np.zeros(1), []
    for number, part in enumerate(parts):
        given[0] = number
        futures.append(part.submit(programs.options, given=given))
    assert [float(one["given"][0]) for one in gather(futures)] == list(range(PARTITIONS))


@pytest.mark.parametrize("where", ["argument", "list with a future", "function"])
def test_what_cannot_be_pickled_is_refused_where_it_is_submitted(
    client: Client, parts: spliter.Split, where: str
) -> None:
    lock = threading.Lock()
    future = client.submit(int, pure=False)

    def submit() -> None:
        if where == "function":
            parts[0].submit(lambda part: lock)
        else:
            parts[0].submit(programs.options, given=lock if where == "argument" else [future, lock])

    with pytest.raises(TaskNotSerializableError, match="cannot be sent to a worker"):
        submit()
    assert sum(gather(parts.map(total))) == expected(16)


@pytest.mark.feature("batches")
def test_a_message_that_cannot_be_sent_ends_its_futures(
    monkeypatch: pytest.MonkeyPatch, client: Client, parts: spliter.Split
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("no message")

    with monkeypatch.context() as patched:
        patched.setattr(client, "_graph_to_futures", fail)
        futures = parts.map(total)
        for future in futures:
            with pytest.raises(ZeroDivisionError, match="no message"):
                future.result(timeout=20)
    assert sum(gather(parts.map(total))) == expected(16)


# --- lists of blocks ----------------------------------------------------------------------------


def test_a_long_block_list_is_sent_once(client: Client) -> None:
    """Later tasks name it: their graphs do not grow with the blocks."""
    sizes: dict[int, list[int]] = {}
    for nblocks in (16, 600):
        parts = split(da.ones(nblocks, chunks=1).persist())
        for _ in range(3):
            sizes.setdefault(nblocks, []).append(bytes_sent(client, parts))
    assert sizes[600][0] > 5 * sizes[16][0]  # the list itself, once
    assert sizes[600][2] < 1.1 * sizes[16][2]


def test_a_short_block_list_takes_no_task_of_its_own(client: Client) -> None:
    short, long = (split(da.ones(nblocks, chunks=1).persist()) for nblocks in (16, 600))
    named = [
        [lists_named(client, parts.map(programs.nothing)) for _ in range(2)]
        for parts in (short, long)
    ]
    assert named == [[0, 0], [2, 2]]


def lists_named(client: Client, futures: list[Any]) -> int:
    def count(dask_scheduler: Any) -> int:
        named = (one for key in keys for one in dask_scheduler.tasks[key].dependencies)
        return sum(str(one.key).startswith("spliter-partition") for one in named)

    keys = [future.key for future in futures]
    wait(futures)
    found: int = client.run_on_scheduler(count)
    return found


def bytes_sent(client: Client, parts: spliter.Split) -> int:
    """Bytes of the graphs that one pass sends to the scheduler."""
    sent = 0
    send: Any = client._send_to_scheduler

    def count(message: dict[str, Any]) -> None:
        nonlocal sent
        if message["op"] == "update-graph":
            sent += sum(len(frame) for frame in message["expr_ser"].frames)
        send(message)

    client._send_to_scheduler = count  # type: ignore[method-assign]
    try:
        client.gather(parts.map(programs.nothing))
    finally:
        client._send_to_scheduler = send  # type: ignore[method-assign]
    return sent
