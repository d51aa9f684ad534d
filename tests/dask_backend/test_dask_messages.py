"""What a program on Dask sends to the scheduler: how many messages, how large, and when."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.array as da
import pytest
from distributed import CancelledError, Client, wait
from distributed.diagnostics.plugin import SchedulerPlugin

import spliter
from spliter import TaskNotSerializableError, reduce, split
from tests.dask_backend import programs
from tests.dask_backend.programs import expected, spread, total

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(60)]


def test_a_pass_sends_the_block_list_once(client: Client) -> None:
    """Later tasks name it: their graphs do not grow with the blocks."""
    sizes: dict[int, list[int]] = {}
    for nblocks in (16, 2000):
        parts = split(da.ones(nblocks, chunks=1).persist())
        for _ in range(3):
            sizes.setdefault(nblocks, []).append(bytes_sent(client, parts))
    assert sizes[2000][0] > 10 * sizes[16][0]  # the list itself, once
    assert sizes[2000][2] < 1.1 * sizes[16][2]


def test_the_first_tasks_do_not_wait_for_a_short_block_list(client: Client) -> None:
    short, long = (split(da.ones(nblocks, chunks=1).persist()) for nblocks in (16, 2000))
    per_split = []
    for parts in (short, long):
        with parts.together():
            passes = [parts.map(programs.nothing) for _ in range(2)]
        passes.append(parts.map(programs.nothing))
        per_split.append([lists_named(client, futures) for futures in passes])
    assert per_split == [[0, 0, 2], [2, 2, 2]]


@pytest.mark.parametrize("nblocks", [16, 2000])
def test_a_thread_does_not_wait_for_what_another_one_has_not_sent(
    client: Client, nblocks: int
) -> None:
    parts = split(da.ones(nblocks, chunks=1).persist())
    written, submitted = threading.Event(), threading.Event()

    def write() -> list[Any]:
        with parts.together():
            futures = parts.map(programs.nothing)
            written.set()
            assert submitted.wait(30)
        return spliter.gather(futures)

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(write)
        assert written.wait(30)
        try:
            assert parts[0].submit(programs.nothing).result(timeout=20) is None
        finally:
            submitted.set()
        assert other.result(30) == [None] * len(parts)


def lists_named(client: Client, futures: list[Any]) -> int:
    """Count the lists of blocks that tasks depend on."""

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


def test_a_pass_does_not_wait_for_the_clients_next_batch(start_cluster: Any) -> None:
    client = start_cluster()
    parts = split(spread(client, 8), partitions_per_location=2)
    client.scheduler_comm.interval = 600  # seconds, instead of 10 ms
    for _ in range(2):
        futures = [total(part) for part in parts]
        assert sum(future.result(timeout=20) for future in futures) == expected(8)


class CountGraphs(SchedulerPlugin):
    """Counts the graphs that the scheduler is sent."""

    name = "count-graphs"

    def __init__(self) -> None:
        self.graphs = 0

    def update_graph(self, scheduler: Any, **_: Any) -> None:
        self.graphs += 1


def graphs(client: Client) -> int:
    """Return how many graphs the scheduler has been sent since it began to count."""

    def count(dask_scheduler: Any) -> int:
        plugin: CountGraphs = dask_scheduler.plugins[CountGraphs.name]
        return plugin.graphs

    found: int = client.run_on_scheduler(count)
    return found


def test_a_pass_is_one_message(client: Client) -> None:
    client.register_plugin(CountGraphs())
    try:
        with split(spread(client, 16, tag="one"), partitions_per_location=4) as parts:
            before = graphs(client)
            futures = parts.map(programs.total)
            client.gather(futures)
            assert graphs(client) == before + 1
            client.gather([part.submit(programs.total) for part in parts])
            assert graphs(client) == before + 1 + len(parts)
            with parts.together():
                totals = [part.submit(programs.total) for part in parts]
                doubled = [
                    part.submit(programs.weighted, total)
                    for part, total in zip(parts, totals, strict=True)
                ]
                grand = reduce(operator.add, doubled)
            assert grand.result() == sum(total * total for total in client.gather(totals))
            assert graphs(client) == before + 2 + len(parts)
    finally:
        client.unregister_scheduler_plugin(CountGraphs.name)


def test_tasks_sent_together_keep_their_places(client: Client) -> None:
    with split(spread(client, 16, tag="places"), partitions_per_location=4) as parts:
        with parts.together():
            first = [part.submit(programs.where) for part in parts]
            second = [
                part.submit(programs.chained, earlier)
                for part, earlier in zip(parts, first, strict=True)
            ]
        places = [(part.location, part.location) for part in parts]
        assert client.gather(first) == places
        assert client.gather(second) == [[place, place] for place in places]


def test_what_is_never_sent_is_cancelled(client: Client) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    handed_out: list[Any] = []

    def send(what_goes_wrong: Callable[[], Any]) -> None:
        with parts.together():
            handed_out.extend(parts.map(programs.total))
            what_goes_wrong()

    with pytest.raises(ZeroDivisionError):
        send(lambda: 1 / 0)
    lock = threading.Lock()
    with pytest.raises(TaskNotSerializableError):
        send(lambda: handed_out.append(parts[0].submit(programs.weighted, lock)))
    assert len(handed_out) == 2 * len(parts) + 1
    for future in handed_out:
        with pytest.raises(CancelledError):
            future.result(timeout=10)
    assert sum(client.gather(parts.map(programs.total))) == 4
