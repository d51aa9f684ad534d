"""Real Dask clusters of worker processes, shared where a test leaves them as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask
from distributed import Client, LocalCluster

from tests.dask_backend.without import OFF

if OFF:  # in the processes that tests start, too
    dask.config.set({"distributed.worker.preload": ["tests.dask_backend.without"]})

StartCluster = Callable[..., Client]


def start(stack: ExitStack, *, restarts: bool = True, n_workers: int = 2, **options: Any) -> Client:
    """Start a cluster of worker processes and a client, both closed with the stack.

    With ``restarts=False`` nobody starts a worker again that has died.
    """
    settings = {"threads_per_worker": 1, "dashboard_address": ":0"} | options
    cluster = stack.enter_context(LocalCluster(n_workers=n_workers if restarts else 0, **settings))
    client: Client = stack.enter_context(Client(cluster))
    if not restarts:
        for _ in range(n_workers):
            stack.callback(stop, start_worker(client))
        client.wait_for_workers(n_workers, timeout=60)
    return client


def start_worker(client: Client, port: int = 0) -> subprocess.Popen[bytes]:
    """Start one more worker process, without a nanny; at a free port by default."""
    address = client.scheduler_info()["address"]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--worker-port", str(port)]
    preload = ["--preload", "tests.dask_backend.without"] if OFF else []
    return subprocess.Popen(
        [*command, *options, *preload],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a worker process, dead or alive."""
    process.kill()
    process.wait()


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    """Client of a cluster for tests that harm nothing; one for all files of this folder."""
    with ExitStack() as stack:
        yield start(stack)


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Start clusters that the test may break; blocks time out soon, so that tests do."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"spliter.block-timeout": "30s"}))
        yield lambda **options: start(stack, **options)


@pytest.fixture
def add_worker() -> Iterator[Callable[..., None]]:
    """Add worker processes to a cluster, ended with the test."""
    with ExitStack() as stack:

        def add(client: Client, port: int = 0) -> None:
            stack.callback(stop, start_worker(client, port))

        yield add
