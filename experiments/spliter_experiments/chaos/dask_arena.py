"""A Dask cluster that may be harmed: placing data on it, and making it whole again after a run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import dask
import dask.array as da
import distributed
import numpy as np
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future, LocalCluster, wait

from spliter_experiments.chaos import dask_workers
from spliter_experiments.chaos.arena import Arena
from spliter_experiments.chaos.cases import WORKERS, Case, Fault
from spliter_experiments.chaos.dask_faults import DaskFaults
from spliter_experiments.chaos.dask_workers import Member
from spliter_experiments.chaos.programs import Array, Collections

BLOCK_TIMEOUT: Final = "20s"
"""Blocks that make no progress so long are an error in these runs, and no hang."""

SETTINGS: Final = {
    "spliter.block-timeout": BLOCK_TIMEOUT,
    # As much of it as of everything else that may go wrong.
    "distributed.scheduler.active-memory-manager.interval": "200ms",
    "distributed.worker.profile.enabled": False,
}

WHOLE_SECONDS: Final = 90.0
"""For the cluster to be whole again."""

EMPTY_SECONDS: Final = 20.0
"""For the scheduler to forget everything after the client has closed."""


class DaskArena(Arena):
    """Workers in processes of this machine, a scheduler in this process.

    Parameters
    ----------
    nannies : bool
        Whether workers that die are started again by Dask.
    """

    engine_errors = (
        distributed.KilledWorker,
        # What `Future.result` and `Client.gather` raise for futures that were cancelled, by the
        # program or because the connection to the scheduler broke.
        distributed.client.FutureCancelledError,
        distributed.client.FuturesCancelledError,
    )

    def __init__(self, nannies: bool) -> None:
        self.nannies = nannies
        self.members: list[Member] = []
        self.client: Any = None
        self.keys: list[Any] = []
        self._stack = ExitStack()
        self._stack.enter_context(dask.config.set(SETTINGS))
        self._stack.enter_context(_silence())
        folder = tempfile.TemporaryDirectory(prefix="spliter-chaos-", ignore_cleanup_errors=True)
        self._folder = Path(self._stack.enter_context(folder))
        dask_workers.prepare()
        self.cluster: Any = LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        )
        self._faults = DaskFaults(self)

    # --- a run ---

    def begin(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        """Make the cluster whole, connect, place the blocks; wait until they are there."""
        self.cluster.sync(self._make_whole)
        self.client = Client(self.cluster.scheduler_address, timeout=30)
        self.client.wait_for_workers(WORKERS, timeout=WHOLE_SECONDS)
        addresses = sorted(self.scheduler.workers)
        collections = tuple(
            self._placed(case, array, [addresses[at] for at in places])
            for array, places in zip(arrays, (case.places, case.further_places), strict=False)
        )
        wait(list(collections), timeout=WHOLE_SECONDS)
        self.keys = [future.key for one in collections for future in distributed.futures_of(one)]
        return collections

    def _placed(self, case: Case, array: Array, workers: Sequence[str]) -> Any:
        """Return an array cut into blocks, each at a worker, if it can be at first."""
        starts = np.cumsum([0, *case.rows])[:-1].tolist()
        blocks = [
            array[start : start + rows].copy()
            for start, rows in zip(starts, case.rows, strict=True)
        ]
        client = self.client
        if case.scattered:
            futures = [
                client.scatter(block, workers=[worker], hash=False)
                for block, worker in zip(blocks, workers, strict=True)
            ]
        else:
            futures = [
                client.submit(same, block, workers=[worker], allow_other_workers=True, pure=False)
                for block, worker in zip(blocks, workers, strict=True)
            ]
        return futures if case.as_list else _as_array(client, futures, case.rows, array)

    def end(self) -> str:
        """Close the client; say what the scheduler has not forgotten then."""
        client, self.client = self.client, None
        self._disconnect(client)
        self.cluster.sync(self._forget, client.id)
        deadline = time.monotonic() + EMPTY_SECONDS
        while left := [f"{it.key} {it.state}" for it in list(self.scheduler.tasks.values())]:
            if time.monotonic() > deadline:
                return f"{len(left)} tasks at the scheduler ({left[0]}, ...)"
            time.sleep(0.02)
        return ""

    def _disconnect(self, client: Any) -> None:
        """Close a client, in whatever state its connection is."""
        # One that is closed while it connects again stays known to the scheduler.
        connected = time.monotonic() + EMPTY_SECONDS
        while client.status == "connecting" and time.monotonic() < connected:
            time.sleep(0.02)
        try:
            client.close(timeout=10)
        except Exception:  # noqa: BLE001 -- raises what went wrong when it connected again
            client.status = "closed"  # it would try once more when it is collected

    async def _forget(self, client: str) -> None:
        """Have the scheduler forget a client, also where Dask would not do it.

        A client whose connection broke may fail to connect again; and if a graph of its came in
        meanwhile, its tasks are wanted for ever by a record of it that has been replaced
        (distributed 2026.8). That is not what is looked for here.
        """
        if client in self.scheduler.clients:
            self.scheduler.remove_client(client, stimulus_id="chaos-forget")
        scheduler = self.scheduler
        for task in list(scheduler.tasks.values()):
            for wanting in list(task.who_wants or ()):
                if scheduler.clients.get(wanting.client_key) is not wanting:
                    released: dict[Any, Any] = {}
                    scheduler._client_releases_keys([task.key], wanting, released)
                    scheduler.transitions(released, stimulus_id="chaos-forget")

    # --- the cluster ---

    @property
    def scheduler(self) -> Any:
        """The scheduler itself; its event loop is the cluster's."""
        return self.cluster.scheduler

    async def start_worker(self) -> Member:
        """Start one more worker, of the cluster's kind."""
        start = dask_workers.start_with_nanny if self.nannies else dask_workers.start_alone
        member = await start(self.cluster, self._folder)
        self.members.append(member)
        return member

    async def _make_whole(self) -> None:
        """Have as many workers as a run begins with, all of them running."""
        gone = [member for member in self.members if not member.is_there]
        left = [member for member in self.members if member.is_there]
        surplus = left[WORKERS:]
        self.members = left[:WORKERS]
        await asyncio.gather(*map(dask_workers.stop, [*gone, *surplus]))
        missing = WORKERS - len(self.members)
        await asyncio.gather(*(self.start_worker() for _ in range(missing)))
        deadline = time.monotonic() + WHOLE_SECONDS
        while not self._is_whole():
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster has not become whole again")
            await asyncio.sleep(0.02)

    def _is_whole(self) -> bool:
        known = set(self.scheduler.workers)
        running = {worker.address for worker in self.scheduler.running}
        return known == running == {member.address for member in self.members}

    def strike(self, fault: Fault) -> str:
        """Do a fault."""
        return self._faults.strike(fault)

    def relent(self, fault: Fault) -> None:
        """End a fault that lasts."""
        self._faults.relent(fault)

    def state(self) -> str:
        """Return the tasks that are under way, at the scheduler and at the workers."""
        told = [
            f"{it.key}: {it.state}, pins {it.worker_restrictions}, at {it.processing_on}, "
            f"waits for {[str(other.key) for other in it.waiting_on or ()][:3]}"
            for it in list(self.scheduler.tasks.values())
            if it.state not in {"memory", "released", "forgotten"}
        ]
        return "\n".join([*told, self._faults.at_workers()])

    def close(self, *, abandoned: bool = False) -> None:
        """End all processes."""
        if abandoned:
            for member in self.members:
                with contextlib.suppress(ProcessLookupError):
                    member.signal(signal.SIGKILL)
        with self._stack:
            try:
                if self.client is not None:
                    self._disconnect(self.client)
                self._faults.close()
                self.cluster.sync(self._stop_all)
            finally:
                self.cluster.close(timeout=20)

    async def _stop_all(self) -> None:
        await asyncio.gather(*map(dask_workers.stop, self.members))


def same(block: Any) -> Any:
    """Return the block; what makes it a task's result, which Dask can make again."""
    return block


def _as_array(
    client: Client, futures: Sequence[Future[Any]], rows: Sequence[int], like: Array
) -> Any:
    name = f"chaos-{uuid.uuid4().hex}"
    further = (0,) * (like.ndim - 1)
    graph: dict[Any, Any] = {
        (name, at, *further): Task((name, at, *further), same, future)
        for at, future in enumerate(futures)
    }
    layers = HighLevelGraph.from_collections(name, graph, dependencies=())
    chunks = (tuple(rows), *((size,) for size in like.shape[1:]))
    return client.persist(da.Array(layers, name, chunks=chunks, dtype=like.dtype))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask from telling the terminal about each fault, which is what these runs are for."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
