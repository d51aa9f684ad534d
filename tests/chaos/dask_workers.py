"""Worker processes that start fast and may be killed: with nannies, or without and behind proxies.

All are forked from one process that has imported everything (``forkserver``), so that another
worker takes a tenth of a second instead of two.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any, Final

import dask
import pytest
from distributed import Nanny, Worker
from distributed.utils import get_mp_context

from tests.chaos.proxy import HOST, Proxy

MEMORY: Final = 2**30
"""Bytes that each worker may use: more than any case needs, and a limit, so that it can spill."""

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0

FORKSERVER: Final = {"distributed.worker.multiprocessing-method": "forkserver"}


@dataclass(eq=False)
class WorkerHandle:
    """One worker: with a nanny, or its process and the proxy in front of it."""

    nanny: Nanny | None = None
    process: Any = None
    proxy: Proxy | None = None

    @property
    def address(self) -> str | None:
        """As the scheduler knows it; ``None`` while the nanny starts another."""
        if self.nanny is not None:
            address: str | None = self.nanny.worker_address
            return address
        return f"tcp://{HOST}:{self.proxy.port}" if self.proxy else None

    @property
    def pid(self) -> int | None:
        process = self.process if self.nanny is None else self.nanny.process
        return process.pid if process is not None and process.is_alive() else None

    @property
    def is_there(self) -> bool:
        """Whether it runs, or a nanny is about to start it."""
        if self.nanny is not None:
            return self.nanny.status.name in {"running", "starting", "init"}
        return self.pid is not None

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            raise ProcessLookupError("the worker is gone")
        os.kill(pid, number)


def prepare() -> None:
    """Import everything in the process that workers are forked from."""
    with dask.config.set(FORKSERVER):
        context: Any = get_mp_context()
    context.set_forkserver_preload(
        ["dask.array", "spliter_backends.dask", "tests.chaos.programs", __name__]
    )
    # It must have one thread only, and gets nothing of this process but its environment.
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, "1")
        patch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()


async def start_with_nanny(scheduler: str, folder: str) -> WorkerHandle:
    """Start a worker that its nanny starts again when it dies; it spills to the folder."""
    with dask.config.set(FORKSERVER):
        nanny = await Nanny(
            scheduler,
            nthreads=1,
            host=HOST,
            memory_limit=MEMORY,
            local_directory=folder,
            preload=[__name__],
            silence_logs=logging.CRITICAL,
            dashboard=False,
        )
    return WorkerHandle(nanny=nanny)


async def start_alone(scheduler: str, folder: str) -> WorkerHandle:
    """Start a worker without a nanny, behind a proxy."""
    proxy = Proxy()
    port = await proxy.open()
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    arguments = (scheduler, port, folder, dask.config.config, there)
    process = context.Process(target=serve_worker, args=arguments, daemon=True)
    await asyncio.to_thread(process.start)
    there.close()
    with here:
        try:
            if not await asyncio.to_thread(here.poll, START_SECONDS):
                raise TimeoutError(f"a worker did not start within {START_SECONDS:.0f} s")
            proxy.forward_to(here.recv())
        except BaseException:
            process.kill()
            await proxy.close()
            raise
    return WorkerHandle(process=process, proxy=proxy)


def serve_worker(
    scheduler: str, contact_port: int, folder: str, config: dict[str, Any], port: Connection
) -> None:
    """Run a worker in this process until it closes, or its scheduler is gone.

    Other processes reach it at `contact_port`; sends the port where it listens.
    """
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dask.config.update(dask.config.config, config)

    async def serve() -> None:
        worker = Worker(
            scheduler,
            nthreads=1,
            host=HOST,
            contact_address=f"tcp://{HOST}:{contact_port}",
            memory_limit=MEMORY,
            local_directory=folder,
            dashboard=False,
        )
        async with worker:
            listener: Any = worker.listener
            port.send(int(listener.listen_address.rpartition(":")[2]))
            port.close()
            await worker.finished()

    asyncio.run(serve())


def dask_setup(worker: Worker) -> None:
    """Silence a worker that a nanny starts: Dask would log each fault."""
    logging.disable(logging.CRITICAL)


async def stop(worker: WorkerHandle) -> None:
    """End a worker, in whatever state it is."""
    with contextlib.suppress(ProcessLookupError):
        worker.signal(signal.SIGCONT)
    if worker.nanny is not None:
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            await asyncio.wait_for(worker.nanny.close(timeout=STOP_SECONDS), 3 * STOP_SECONDS)
    if worker.process is not None:
        worker.process.kill()
        await asyncio.to_thread(worker.process.join, STOP_SECONDS)
        worker.process.close()
    if worker.proxy is not None:
        await worker.proxy.close()
