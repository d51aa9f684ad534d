"""Small results that tasks of one message need at other workers are handed on to these."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client, Future, WorkerPlugin

from spliter import Partition, Split, split, task
from spliter_backends._dask_handed import MOST_NBYTES, hand_on
from spliter_backends._dask_handed import take as take_at
from spliter_backends._dask_post import Post, received_nbytes
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import kill, spread

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(60)]

PASSES = 5


@task
def exchange(partition: Partition, number: int, size: int, *found: bytes) -> bytes:
    """Return so many bytes that tell what all have found before, at one location a while later."""
    time.sleep(0.15 * number)
    return (sum(len(one) + one[0] for one in found) % 251).to_bytes(1, "big") * size


def passes(
    parts: Split,
    size: int,
    n_passes: int = PASSES,
    before: Sequence[list[Future[bytes]]] = ([],),
) -> list[list[Future[bytes]]]:
    """Send some passes, the tasks of which need what all have found in the one before."""
    made = list(before)
    with parts.together():
        for _ in range(n_passes):
            made.append(
                [
                    exchange(partition, number, size, *made[-1])
                    for number, partition in enumerate(parts)
                ]
            )
    return made[1:]


def expected_of(size: int) -> bytes:
    last = [bytes(size)] * 2
    for _ in range(PASSES - 1):
        last = [(sum(len(one) + one[0] for one in last) % 251).to_bytes(1, "big") * size] * 2
    return last[0]


class CountFetched(WorkerPlugin):
    """Counts the results that a worker has fetched from others."""

    name = "count-fetched"

    def __init__(self) -> None:
        self.keys: list[str] = []

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Count one that has arrived."""
        if (start, finish) == ("flight", "memory"):
            self.keys.append(str(key))


@contextmanager
def counting(client: Client) -> Iterator[Callable[[], tuple[list[int], list[int]]]]:
    """Count at each worker, in the order of addresses, results fetched and bytes handed to it."""

    def look(dask_worker: Any) -> tuple[int, int]:
        plugin: CountFetched = dask_worker.plugins[CountFetched.name]
        return len(plugin.keys), received_nbytes(dask_worker)

    client.register_plugin(CountFetched())
    before = client.run(look)

    def counted() -> tuple[list[int], list[int]]:
        after = client.run(look)
        pairs = [
            (after[at][0] - before[at][0], after[at][1] - before[at][1]) for at in sorted(after)
        ]
        return [fetched for fetched, _ in pairs], [nbytes for _, nbytes in pairs]

    try:
        yield counted
    finally:
        client.unregister_worker_plugin(CountFetched.name)


def holders(client: Client, keys: list[str], held: bool) -> dict[str, tuple[str, ...]]:
    """Return the workers with some data, once all of it is held, or none: by 20 s at the latest."""
    end = time.monotonic() + 20
    while True:
        here = client.run(lambda dask_worker: [key for key in keys if key in dask_worker.data])
        found = {key: tuple(at for at in sorted(here) if key in here[at]) for key in keys}
        if all(bool(places) == held for places in found.values()) or time.monotonic() > end:
            return found
        time.sleep(0.05)


@pytest.mark.parametrize("at_once", [PASSES, PASSES - 1])
def test_small_results_are_there_before_they_are_asked_for(client: Client, at_once: int) -> None:
    with split(spread(client, 8)) as parts, counting(client) as counted:
        early, late = (str(part.location) for part in parts)
        first = passes(parts, size=1_000, n_passes=PASSES - at_once)
        made = passes(parts, size=1_000, n_passes=at_once, before=[[], *first])
        assert client.gather(made[-1]) == [expected_of(1_000)] * 2
        fetched, handed = counted()
        # What is wanted by tasks that were not known yet is fetched. Of the others, what comes
        # first has long been handed on when it is wanted; the rest comes in either way.
        at = sorted([early, late]).index(late)
        assert fetched[at] == PASSES - at_once
        assert handed[at] == (at_once - 1) * sizeof(bytes(1_000))
        assert fetched[1 - at] + handed[1 - at] // sizeof(bytes(1_000)) == PASSES - 1


def test_workers_that_have_never_handed_on_anything(start_cluster: StartCluster) -> None:
    client = start_cluster()
    with split(spread(client, 8)) as parts, counting(client) as counted:
        client.gather(passes(parts, size=1_000, n_passes=2)[-1])
        fetched, handed = counted()
        early, late = (str(part.location) for part in parts)
    at = sorted([early, late]).index(late)
    assert (fetched[at], handed[at]) == (0, sizeof(bytes(1_000)))


def test_larger_ones_stay_until_they_are_asked_for(client: Client) -> None:
    with split(spread(client, 8)) as parts, counting(client) as counted:
        made = passes(parts, size=MOST_NBYTES + 1)
        assert client.gather(made[-1]) == [expected_of(MOST_NBYTES + 1)] * 2
        assert counted() == ([PASSES - 1] * 2, [0, 0])


def test_copies_are_known_and_go_with_the_result(client: Client) -> None:
    with ExitStack() as stack:
        client.amm.stop()  # which has workers drop copies that no task waits for
        stack.callback(client.amm.start)
        parts = stack.enter_context(split(spread(client, 8)))
        made = passes(parts, size=1_000)
        client.gather(made[-1])
        exchanged = [future for one in made[:-1] for future in one]
        keys = [str(future.key) for future in exchanged]
        end = time.monotonic() + 20
        while set(copies := known_copies(client, exchanged)) != {2} and time.monotonic() < end:
            time.sleep(0.05)
        assert copies == [2] * len(keys)
        del made, exchanged
        gc.collect()
        assert not any(holders(client, keys, held=False).values())


def known_copies(client: Client, futures: list[Future[bytes]]) -> list[int]:
    """Return at how many workers the scheduler knows each result to be."""
    return [len(places) for places in client.who_has(futures).values()]


def take(client: Client, key: str, value: Any, at: str) -> None:
    """Hand something to a worker, as another one does."""
    pickled = pickle.dumps(value)

    def handed(dask_worker: Any) -> None:
        take_at(dask_worker, key, pickled)

    client.run(handed, workers=[at])


def test_what_nobody_knows_of_is_dropped(client: Client) -> None:
    """It was released while it was on its way."""
    here, _ = client.scheduler_info()["workers"]
    take(client, "released-long-ago", 1, here)
    assert holders(client, ["released-long-ago"], held=True) == {"released-long-ago": (here,)}
    assert holders(client, ["released-long-ago"], held=False) == {"released-long-ago": ()}


def test_what_a_worker_has_already_stays_as_it_is(client: Client) -> None:
    here, _ = client.scheduler_info()["workers"]
    future = client.submit(int, 7, workers=[here], key="had-already", pure=False)
    assert future.result() == 7
    take(client, "had-already", 8, here)
    assert client.submit(abs, future, workers=[here], pure=False).result() == 7


def test_a_worker_that_is_paused_takes_nothing(start_cluster: StartCluster) -> None:
    client = start_cluster()
    here, _ = client.scheduler_info()["workers"]

    def pause(dask_worker: Any) -> None:
        dask_worker.periodic_callbacks["memory_monitor"].stop()
        dask_worker.status = type(dask_worker.status).paused

    client.run(pause, workers=[here])
    take(client, "not-taken", 1, here)
    assert holders(client, ["not-taken"], held=False) == {"not-taken": ()}


def test_a_result_outlives_the_worker_that_handed_it_on_before_anyone_heard(
    client: Client,
) -> None:
    here, _ = client.scheduler_info()["workers"]
    take(client, "handed-on", np.arange(3), here)
    again = client.submit(np.zeros, 3, workers=[here], key="handed-on", pure=False)
    assert again.result(timeout=20).tolist() == [0, 1, 2]


def test_a_worker_that_is_gone_does_no_harm(client: Client) -> None:
    here, _ = client.scheduler_info()["workers"]

    async def send(dask_worker: Any) -> str:
        with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
            await Post.of(dask_worker)._send("tcp://127.0.0.1:9", b"")
        return "went on"

    assert client.run(send, workers=[here]) == {here: "went on"}


def test_a_worker_that_stands_still_holds_no_message_for_long(client: Client) -> None:
    here, there = client.scheduler_info()["workers"]
    pid = client.run(os.getpid, workers=[there])[there]

    async def send(dask_worker: Any) -> str:
        post = Post.of(dask_worker)
        post._reached.discard(there)  # it has to be asked whether it receives messages
        with patch("spliter_backends._dask_post.GIVE_UP_AFTER", 0.2):
            await asyncio.wait_for(post._send(there, b""), 10)
        return "gave up" if there not in post._reached else "reached"

    os.kill(pid, signal.SIGSTOP)
    try:
        assert client.run(send, workers=[here]) == {here: "gave up"}
    finally:
        os.kill(pid, signal.SIGCONT)
    made = client.submit(operator.neg, 1, workers=[there], pure=False)
    assert client.submit(abs, made, workers=[here], pure=False).result(timeout=20) == 1


class Unpicklable:
    """A small result that stays where it was made."""

    def __reduce__(self) -> Any:
        raise ValueError("not to be pickled")


def test_what_cannot_be_pickled_stays(client: Client) -> None:
    """Its task has ended well: what is wrong with it shows when it is fetched."""
    here, there = client.scheduler_info()["workers"]
    made = client.submit(hand_on, (there,), Unpicklable, workers=[here], pure=False)
    assert client.submit(isinstance, made, Unpicklable, workers=[here]).result(timeout=20)
    assert holders(client, [str(made.key)], held=True) == {made.key: (here,)}


def test_a_worker_that_dies_among_passes_changes_nothing(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2)
    x = spread(client, 8)
    with split(x) as parts:
        made = passes(parts, size=1_000)
        made[1][0].result(timeout=30)
        kill(client, str(parts[0].location))
        assert client.gather(made[-1]) == [expected_of(1_000)] * 2
