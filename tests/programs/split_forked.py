"""Use a Split, its partitions and its futures in a forked process, which writes what it gets."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from spliter import gather, split, task

BLOCKS = [np.full(3, value) for value in range(4)]


@task
def total(partition: Any) -> int:
    return sum(int(block.sum()) for block in partition)


@contextmanager
def local() -> Iterator[Any]:
    yield BLOCKS


@contextmanager
def dask() -> Iterator[Any]:
    from distributed import Client

    with Client(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as client:
        yield client.scatter(BLOCKS, hash=False)


@contextmanager
def ray() -> Iterator[Any]:
    import ray

    with ray.init(num_cpus=2, include_dashboard=False):
        yield [ray.put(block) for block in BLOCKS]


@contextmanager
def dataclay() -> Iterator[Any]:
    from spliter_backends.dataclay import from_array
    from spliter_backends.dataclay.cluster import EmbeddedDataClay

    with EmbeddedDataClay(n_backends=2) as cluster:
        cluster.client()
        yield from_array(np.repeat(range(4), 3), chunks=3)


def run(collection: Any) -> None:
    parts = split(collection)
    futures = parts.map(total)
    gather(futures)
    uses: list[Callable[[], Any]] = [
        lambda: len(parts),
        lambda: sum(gather([total(part) for part in parts])),
        lambda: total(parts[0]).result(),
        parts.refresh,
        lambda: sum(gather(futures)),
        lambda: len(split(collection)),
    ]
    for use in uses:
        if os.fork() == 0:
            signal.alarm(30)
            try:
                written = repr(use())
            except Exception as error:  # noqa: BLE001
                written = type(error).__name__
            os.write(sys.stdout.fileno(), f"{written}\n".encode())
            os._exit(0)
        os.wait()
    os.write(sys.stdout.fileno(), f"{sum(gather(parts.map(total)))}\n".encode())


if __name__ == "__main__":
    with globals()[sys.argv[1]]() as collection:
        run(collection)
