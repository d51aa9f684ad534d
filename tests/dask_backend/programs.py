"""What the tests of the Dask backend run on workers, importable there by name."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client, get_worker

from spliter import Partition, task
from tests.dask_workers import workers_of


@task
def total(partition: Partition) -> int:
    """Sum of all items."""
    return sum(int(block.sum()) for block in partition)


@task
def slow_total(partition: Partition, seconds: float) -> int:
    """Sum of all items, resting before each block."""
    result = 0
    for block in partition:
        time.sleep(seconds)
        result += int(block.sum())
    return result


@task
def weighted(partition: Partition, factor: Any) -> Any:
    """Sum of all items times a factor."""
    return factor * sum(float(block.sum()) for block in partition)


@task
def where(partition: Partition) -> tuple[str, str]:
    """Where it was planned, and where it runs."""
    return str(partition.location), str(get_worker().address)


@task
def nothing(partition: Partition) -> None:
    """Touch no block."""


@task
def first_of_pairs(partition: Partition) -> list[Any]:
    """The first blocks of aligned pairs."""
    return [first for first, _ in partition]


@task
def products(partition: Partition) -> int:
    """Sum of products of aligned pairs."""
    return sum(int((first * second).sum()) for first, second in partition)


def chained(partition: Partition, earlier: Any) -> list[tuple[str, str]]:
    """Where an earlier task and this one were planned, and where they run."""
    return [earlier, (str(partition.location), str(get_worker().address))]


def options(partition: Partition, **given: Any) -> dict[str, Any]:
    """The keyword arguments."""
    return given


def slowly(block: Any) -> Any:
    """A block, after a while."""
    time.sleep(0.05)
    return block


def fail_on_fifty(block: Any) -> Any:
    """A block, unless it holds a fifty."""
    if (block == 50).any():
        raise ZeroDivisionError("fifty")
    return block


def die() -> None:
    """End the process it runs in without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def pid() -> int:
    """Return the process it runs in."""
    return os.getpid()


def pids(client: Client) -> dict[str, int]:
    """Return the process of each worker."""
    return dict(client.run(pid))


def kill(client: Client, address: str) -> None:
    """Kill one worker's process."""
    os.kill(pids(client)[address], signal.SIGKILL)


def make(block: int, length: int) -> npt.NDArray[np.int64]:
    """Make one block; its values are the numbers of its items."""
    return np.arange(block * length, (block + 1) * length)


def spread(client: Client, nblocks: int, length: int = 10, **options: Any) -> list[Any]:
    """Have every worker make its share of blocks, in turn; the futures can be made again."""
    workers = workers_of(client)
    return [
        client.submit(
            make,
            block,
            length,
            workers=[workers[block % len(workers)]],
            allow_other_workers=True,
            key=f"block-{options.get('tag', '')}-{block}",
        )
        for block in range(nblocks)
    ]


def expected(nblocks: int, length: int = 10) -> int:
    """Return the sum of all items of `spread` blocks."""
    return int(np.arange(nblocks * length).sum())


def received(client: Client) -> dict[str, tuple[int, int]]:
    """Return how many transfers each worker has received and has sent."""

    def count(dask_worker: Any) -> tuple[int, int]:
        return (
            dask_worker.state.transfer_incoming_count_total,
            dask_worker.transfer_outgoing_count_total,
        )

    return dict(client.run(count))


def add_noise(block: Any, rng: Any) -> Any:
    """Add random numbers, which changes the generator."""
    return block + rng.normal(size=block.shape)


def take_option(number: int, options: dict[str, int]) -> int:
    """Add an option, which is taken out of all."""
    return number + options.pop("add")
