"""Real Dask clusters of worker processes, shared where a test leaves them as they were."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

pytest.importorskip("distributed")

import dask
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

from tests.dask_backend.without import OFF

if OFF:  # in the processes that tests start, too
    dask.config.set({"distributed.worker.preload": ["tests.dask_backend.without"]})

StartCluster = Callable[..., Client]

FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}
"""Setting by which workers are forked from a process that has imported `IMPORTED`."""

IMPORTED = [
    "distributed",
    "dask.array",
    "dask.dataframe",
    "scipy.sparse",
    "sklearn.cluster",
    "spliter_apps",
    "spliter_backends.dask",
    "pytest",  # and hypothesis: a task's function is found by importing its file
    "hypothesis",
]


@functools.cache
def forked_context() -> ForkServerContext:
    """Return the context of processes that are forked; the first call decides what is imported."""
    with dask.config.set(FORKED):
        context: ForkServerContext = get_mp_context()
    context.set_forkserver_preload(IMPORTED)
    return context


def start_processes(n_workers: int = 2, **options: Any) -> LocalCluster:
    """Start a cluster of worker processes, by default of one thread each."""
    settings = {"threads_per_worker": 1, "dashboard_address": ":0"} | options
    forked_context()
    # Memory shared with the process they start from would count as the workers' own.
    with dask.config.set({} if options.get("memory_limit") else FORKED):
        return LocalCluster(n_workers=n_workers, **settings)


def start(stack: ExitStack, *, restarts: bool = True, n_workers: int = 2, **options: Any) -> Client:
    """Start a cluster of worker processes and a client, both closed with the stack.

    With ``restarts=False`` nobody starts a worker again that has died.
    """
    cluster = stack.enter_context(start_processes(n_workers if restarts else 0, **options))
    client: Client = stack.enter_context(Client(cluster))
    if not restarts:
        for _ in range(n_workers):
            stack.callback(stop, start_worker(client))
        client.wait_for_workers(n_workers, timeout=60)
    return client


def start_worker(client: Client, port: int = 0) -> BaseProcess:
    """Start one more worker process, without a nanny; at a free port by default."""
    address = client.scheduler_info()["address"]
    process: BaseProcess = forked_context().Process(target=run_worker, args=(address, port))
    process.start()
    return process


def run_worker(address: str, port: int) -> None:
    """Body of such a process."""
    from distributed.cli.dask_worker import main

    silent = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(silent, output)
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--worker-port", str(port)]
    preload = ["--preload", "tests.dask_backend.without"] if OFF else []
    main([address, *options, *preload])


def stop(process: BaseProcess) -> None:
    """End a worker process, dead or alive."""
    process.kill()
    process.join()


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
