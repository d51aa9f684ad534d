"""Worker processes that start fast and may be killed: with nannies, or without and behind links.

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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import dask
from distributed import LocalCluster, Nanny, Worker
from distributed.utils import get_mp_context

from spliter_experiments.chaos.links import HOST, Link

MEMORY: Final = 2**30
"""Bytes that each worker may use: more than any case needs, and a limit, so that it can spill."""

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0

METHOD: Final = "distributed.worker.multiprocessing-method"
PRELOADED: Final = (
    "distributed",
    "dask.array",
    "spliter_apps.svm",
    "spliter_apps.kmeans",
    "spliter_apps.neighbors",
    "spliter_backends.dask_backend",
)


@dataclass(eq=False)
class Member:
    """One worker and what belongs to it.

    Parameters
    ----------
    nanny : distributed.Nanny or None
        Starts it again when it dies.
    process : multiprocessing.Process or None
        Its process, if it has no nanny.
    link : Link or None
        Before it, if it has no nanny.
    """

    nanny: Nanny | None = None
    process: Any = None
    link: Link | None = None

    @property
    def address(self) -> str | None:
        """As the scheduler knows it; ``None`` while there is none."""
        if self.nanny is not None:
            address: str | None = self.nanny.worker_address
            return address
        return f"tcp://{HOST}:{self.link.port}" if self.link else None

    @property
    def pid(self) -> int | None:
        """Of its process; ``None`` if it is gone."""
        process = self.process if self.nanny is None else self.nanny.process
        return process.pid if process is not None and process.is_alive() else None

    @property
    def is_there(self) -> bool:
        """Whether it runs, or a nanny is about to start it."""
        if self.nanny is not None:
            return self.nanny.status.name in {"running", "starting", "init"}
        return self.pid is not None

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to its process.

        Parameters
        ----------
        number : Signals
            Which.

        Returns
        -------
        int
            The process.

        Raises
        ------
        ProcessLookupError
            If it is gone.
        """
        pid = self.pid
        if pid is None:
            raise ProcessLookupError("the worker is gone")
        os.kill(pid, number)
        return pid


def prepare() -> None:
    """Have everything imported in the process that workers are forked from."""
    with dask.config.set({METHOD: "forkserver"}):
        context: Any = get_mp_context()
    # The module that this process was started with is imported by every child.
    main = [name for name in ("pytest", "spliter_experiments.cli") if name in sys.modules]
    context.set_forkserver_preload([*PRELOADED, __name__, *main])
    # It has to have one thread only, and sees no more of this process than its environment.
    added = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    added["DASK_LOGGING__DISTRIBUTED"] = "critical"
    added["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        from multiprocessing.forkserver import ensure_running

        ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def start_with_nanny(cluster: LocalCluster, folder: Path) -> Member:
    """Start a worker that is started again when it dies.

    Parameters
    ----------
    cluster : LocalCluster
        Whose scheduler it goes to.
    folder : Path
        For what it spills.

    Returns
    -------
    Member
        Running.
    """
    with dask.config.set({METHOD: "forkserver"}):
        nanny = await Nanny(
            cluster.scheduler_address,
            nthreads=1,
            host=HOST,
            memory_limit=MEMORY,
            local_directory=str(folder),
            preload=[__name__],
            silence_logs=logging.CRITICAL,
            dashboard=False,
        )
    return Member(nanny=nanny)


async def start_alone(cluster: LocalCluster, folder: Path) -> Member:
    """Start a worker without a nanny, behind a link.

    Parameters
    ----------
    cluster : LocalCluster
        Whose scheduler it goes to.
    folder : Path
        For what it spills.

    Returns
    -------
    Member
        Running.
    """
    link = Link()
    port = await link.open()
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    arguments = (cluster.scheduler_address, port, str(folder), dask.config.config, there)
    process = context.Process(target=serve_worker, args=arguments, daemon=True)
    await asyncio.to_thread(process.start)
    there.close()
    with here:
        try:
            if not await asyncio.to_thread(here.poll, START_SECONDS):
                raise TimeoutError(f"a worker did not start within {START_SECONDS:.0f} s")
            link.lead_to(here.recv())
        except BaseException:
            process.kill()
            await link.close()
            raise
    return Member(process=process, link=link)


def serve_worker(
    scheduler: str, contact_port: int, folder: str, config: dict[str, Any], told: Connection
) -> None:
    """Run in a process of its own: be a worker until it is closed, or its scheduler is gone.

    Parameters
    ----------
    scheduler : str
        Address.
    contact_port : int
        Where others reach it.
    folder : str
        For what it spills.
    config : dict
        Dask's settings.
    told : Connection
        Is sent the port where it listens.
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
            told.send(int(listener.listen_address.rpartition(":")[2]))
            told.close()
            await worker.finished()

    asyncio.run(serve())


def dask_setup(worker: Worker) -> None:
    """Run at a worker that a nanny starts: do not tell the terminal of each fault.

    Parameters
    ----------
    worker : distributed.Worker
        Given by Dask.
    """
    logging.disable(logging.CRITICAL)


async def stop(member: Member) -> None:
    """End a worker, in whatever state it is.

    Parameters
    ----------
    member : Member
        Nanny and link included.
    """
    with contextlib.suppress(ProcessLookupError):
        member.signal(signal.SIGCONT)
    if member.nanny is not None:
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            await asyncio.wait_for(member.nanny.close(timeout=STOP_SECONDS), 3 * STOP_SECONDS)
    if member.process is not None:
        member.process.kill()
        await asyncio.to_thread(member.process.join, STOP_SECONDS)
        member.process.close()
    if member.link is not None:
        await member.link.close()
