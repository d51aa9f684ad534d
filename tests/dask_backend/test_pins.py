"""Tasks run elsewhere when their worker is gone or stays paused, and users' own pins are kept."""

from __future__ import annotations

import logging
import operator
import socket
import threading
from collections.abc import Callable
from typing import Any

import dask
import pytest
from distributed import Client, Event, get_worker, wait
from distributed.comm import get_address_host_port
from distributed.core import Status

from spliter import BlockTimeoutError, Partition, gather, reduce, split
from spliter_backends.dask.scheduler import pins as dask_pins
from tests.dask_backend import programs
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import expected, kill, spread, total
from tests.dask_workers import workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]


@pytest.fixture
def start_three(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> StartCluster:
    """Start three workers that stay paused once they are, and are given up at once.

    The scheduler is in this process. Workers with a memory limit resume by themselves.
    """
    monkeypatch.setattr(dask_pins, "PAUSE_TOLERANCE", 0.0)
    return lambda: start_cluster(n_workers=3, memory_limit=0)


def set_status(client: Client, address: str, status: Status) -> None:
    """Pause a worker, or let it run again; wait until the scheduler knows."""

    def change(dask_worker: Any) -> None:
        dask_worker.status = status

    def is_known(dask_scheduler: Any) -> bool:
        return bool(dask_scheduler.workers[address].status == status)

    client.run(change, workers=[address])
    wait_until(lambda: client.run_on_scheduler(is_known))


def sent_by(client: Client, address: str) -> int:
    """Count the transfers that a worker has been asked for."""
    return programs.received(client)[address][1]


def others_results(partition: Partition, *results: Any) -> tuple[Any, ...]:
    """Return what other tasks have returned."""
    return results


def own_address() -> str:
    return str(get_worker().address)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_users_pins_are_kept(start_three: StartCluster, add_worker: Callable[..., None]) -> None:
    """A task of ours waits for tasks pinned to a paused worker and to one that is yet to come."""
    client = start_three()
    paused, other, _ = workers_of(client)
    split_once = split(spread(client, 6), partitions_per_location=1)
    parts = {str(part.location): part for part in split_once}
    set_status(client, paused, Status.paused)
    port = free_port()
    later = f"tcp://127.0.0.1:{port}"
    users = [client.submit(own_address, workers=[at], pure=False) for at in (paused, later)]
    waiting = parts[other].submit(others_results, *users)
    # The control: a pin of ours to the same worker is removed, so pins have been looked at.
    assert programs.where(parts[paused]).result(timeout=30)[1] != paused

    def check(dask_scheduler: Any) -> list[set[str]]:
        dask_scheduler.plugins[dask_pins.NAME].check()
        return [set(dask_scheduler.tasks[one.key].worker_restrictions or ()) for one in users]

    assert client.run_on_scheduler(check) == [{paused}, {later}]
    add_worker(client, port)
    set_status(client, paused, Status.running)
    assert waiting.result(timeout=30) == (paused, later)


def test_worker_that_comes_back_at_its_old_address(
    start_cluster: StartCluster, add_worker: Callable[..., None]
) -> None:
    client = start_cluster(n_workers=2, restarts=False)
    first, second = workers_of(client)
    with split(spread(client, 8)) as parts:
        kill(client, first)
        wait_until(lambda: workers_of(client) == [second])
        for _ in range(2):  # partitions of the first plan, whose tasks are pinned to it
            assert sum(client.gather([total(part) for part in parts[:]])) == expected(8)
    add_worker(client, get_address_host_port(first)[1])
    wait_until(lambda: workers_of(client) == [first, second])
    # Blocks that go together are at different workers: copies are pinned to the one that is back.
    ours = spread(client, 8, tag="ours")
    theirs = [
        client.submit(programs.make, i, 10, workers=[[second, first][i % 2]], pure=False)
        for i in range(8)
    ]
    with split(ours, theirs) as pairs:
        assert pairs.moved.aligned_blocks == 8
        for _ in range(2):
            client.gather([programs.products(pair) for pair in pairs])
        assert pairs.moved.fetched_blocks == 0
        assert set(pairs.locations) == {first, second}


def test_worker_that_stays_paused_costs_one_pass(start_three: StartCluster) -> None:
    client = start_three()
    futures = spread(client, 30)
    parts = split(futures)
    from_before = parts[:]
    paused = workers_of(client)[0]
    set_status(client, paused, Status.paused)
    before = sent_by(client, paused)
    assert sum(client.gather(parts.map(total))) == expected(30)
    assert parts.moved.fetched_blocks == 10
    paid = sent_by(client, paused)
    assert paid > before
    for partitions in (parts, from_before, parts):
        assert sum(client.gather([total(part) for part in partitions])) == expected(30)
    assert paused not in parts.locations
    with split(futures) as again:  # finds what was copied for the first one
        assert paused not in again.locations
        assert sum(client.gather(again.map(total))) == expected(30)
        assert again.moved.blocks == 0
    assert parts.moved.fetched_blocks == 10
    assert sent_by(client, paused) == paid


def test_new_split_plans_around_a_paused_worker(start_three: StartCluster) -> None:
    client = start_three()
    futures = spread(client, 30)
    paused, other, _ = workers_of(client)
    at_paused = [future for number, future in enumerate(futures) if number % 3 == 0]
    wait(futures)
    client.replicate(at_paused[:6], workers=[paused, other], n=2)
    set_status(client, paused, Status.paused)
    with split(futures) as parts:
        assert paused not in parts.locations
        for _ in range(2):
            assert sum(client.gather(parts.map(total))) == expected(30)
            assert parts.moved.fetched_blocks == 4  # of 10, six were at the other one as well
    set_status(client, paused, Status.running)
    with split(spread(client, 6, tag="later")) as parts:
        assert paused in parts.locations


def wait_for_event(partition: Partition) -> str:
    """Occupy the worker's thread until the event is set."""
    Event("begun").set()
    Event("go").wait(timeout=60)
    return own_address()


@pytest.mark.feature("failures")
def test_tasks_fail_if_all_workers_stay_paused(start_three: StartCluster) -> None:
    client = start_three()
    futures = spread(client, 6)
    with dask.config.set({"spliter.block-timeout": "2s"}):
        parts = split(futures)
    workers = workers_of(client)
    running = parts[0].submit(wait_for_event)
    assert Event("begun").wait(timeout=30)
    waiting = total(parts[0])  # at the worker, behind the other one
    wait_until(lambda: waiting.key in sum(client.processing().values(), ()))
    for worker in workers:
        set_status(client, worker, Status.paused)
    pinned = parts.map(total)
    says = r"^all 3 workers have been paused for 2 s, .* spliter\.block-timeout$"
    for future in (waiting, *pinned, reduce(operator.add, pinned), client.submit(str, pinned[0])):
        with pytest.raises(BlockTimeoutError, match=says):
            future.result(timeout=30)
    with pytest.raises(BlockTimeoutError, match=says):
        gather(parts.map(total))
    Event("go").set()
    assert running.result(timeout=30) == parts.locations[0]  # it had begun
    for worker in workers:
        set_status(client, worker, Status.running)
    assert sum(gather(parts.map(total))) == expected(6)


def test_tasks_wait_for_the_first_worker(start_cluster: StartCluster) -> None:
    """Without any worker, as before a cluster is scaled up, no time is up."""
    client = start_cluster(n_workers=1, memory_limit=0)
    with dask.config.set({"spliter.block-timeout": "1s"}):
        parts = split(spread(client, 2))
    cluster: Any = client.cluster
    cluster.scale(0)
    wait_until(lambda: not workers_of(client))
    checks = threading.Semaphore(0)
    plugin = cluster.scheduler.plugins[dask_pins.NAME]
    give_up = plugin._give_up

    def counted() -> None:
        checks.release()
        give_up()

    plugin._give_up = counted
    futures = parts.map(total)
    for _ in range(4):
        assert checks.acquire(timeout=30)
    assert {future.status for future in futures} == {"pending"}
    cluster.scale(1)
    assert sum(gather(futures)) == expected(2)


def test_scheduler_logs_nothing_while_tasks_run(start_cluster: StartCluster) -> None:
    client = start_cluster()
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "out-of-band" in record.getMessage():
                lines.append(record.getMessage())

    logger = logging.getLogger("distributed.worker")  # of the function that the scheduler uses too
    level, listener = logger.level, Listener()
    parts = split(spread(client, 2))
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        tasks = [programs.slow_total(part, 2.5) for part in parts]
        assert sum(client.gather(tasks)) == expected(2)
        assert lines == []
        client.run_on_scheduler(programs.pid)
        assert len(lines) == 1, "the control: this is logged"
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
