"""A Dask cluster for chaos runs: places data on it, and repairs it after each run."""

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
from typing import Any, Final

import dask
import dask.array as da
import distributed
from dask._task_spec import Task
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster, wait

from tests.chaos import dask_workers
from tests.chaos.cases import WORKERS, Case, Fault
from tests.chaos.dask_faults import DaskFaults
from tests.chaos.dask_workers import WorkerHandle
from tests.chaos.programs import Array, Collections
from tests.chaos.runner import cut

SETTINGS: Final = {
    # Blocks without progress end these runs in an error before they count as a hang.
    "spliter.block-timeout": "20s",
    # As often as possible, like all other faults.
    "distributed.scheduler.active-memory-manager.interval": "200ms",
    "distributed.worker.profile.enabled": False,
}

REPAIR_SECONDS: Final = 90.0

EMPTY_SECONDS: Final = 20.0
"""For the scheduler to forget everything after the client has closed."""


class DaskCluster:
    """Workers in processes of this machine, a scheduler in this process.

    With `nannies` Dask starts workers that die again.
    """

    engine_errors = (
        distributed.KilledWorker,
        # `Future.result` and `Client.gather` raise these for futures that were cancelled, by the
        # program or because the connection to the scheduler broke.
        distributed.client.FutureCancelledError,
        distributed.client.FuturesCancelledError,
    )

    def __init__(self, nannies: bool) -> None:
        self.nannies = nannies
        self.workers: list[WorkerHandle] = []
        self.client: Any = None
        self.keys: list[Any] = []
        self._stack = ExitStack()
        self._stack.enter_context(dask.config.set(SETTINGS))
        self._stack.enter_context(_silence())
        folder = tempfile.TemporaryDirectory(prefix="spliter-chaos-", ignore_cleanup_errors=True)
        self._folder = self._stack.enter_context(folder)
        dask_workers.prepare()
        self.cluster: Any = LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        )
        self._faults = DaskFaults(self)

    # --- a run ---

    def place(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        """Repair the cluster, connect, place the blocks; wait until they are there."""
        self.cluster.sync(self._repair)
        self.client = Client(self.cluster.scheduler_address, timeout=30)
        self.client.wait_for_workers(WORKERS, timeout=REPAIR_SECONDS)
        addresses = sorted(self.scheduler.workers)
        collections = tuple(
            self._collection(case, array, [addresses[at] for at in places])
            for array, places in zip(arrays, (case.places, case.further_places), strict=False)
        )
        wait(list(collections), timeout=REPAIR_SECONDS)
        self.keys = [future.key for one in collections for future in distributed.futures_of(one)]
        return collections

    def _collection(self, case: Case, array: Array, workers: Sequence[str]) -> Any:
        place = self._scatter if case.scattered else self._submit
        futures = [place(*it) for it in zip(cut(array, case), workers, strict=True)]
        return futures if case.as_list else self._as_array(futures, case.rows, array)

    def _scatter(self, block: Array, worker: str) -> Any:
        return self.client.scatter(block, workers=[worker], hash=False)

    def _submit(self, block: Array, worker: str) -> Any:
        return self.client.submit(
            same, block, workers=[worker], allow_other_workers=True, pure=False
        )

    def _as_array(self, futures: Sequence[Any], rows: Sequence[int], like: Array) -> Any:
        name = f"chaos-{uuid.uuid4().hex}"
        further = (0,) * (like.ndim - 1)
        graph: dict[Any, Any] = {
            (name, at, *further): Task((name, at, *further), same, future)
            for at, future in enumerate(futures)
        }
        layers = HighLevelGraph.from_collections(name, graph, dependencies=())
        chunks = (tuple(rows), *((size,) for size in like.shape[1:]))
        return self.client.persist(da.Array(layers, name, chunks=chunks, dtype=like.dtype))

    def inject(self, fault: Fault) -> str:
        return self._faults.inject(fault)

    def recover(self, fault: Fault) -> None:
        self._faults.recover(fault)

    def clean_up(self) -> str:
        """Close the client; return what the scheduler has not forgotten then."""
        client, self.client = self.client, None
        _disconnect(client)
        self.cluster.sync(self._forget, client.id)
        deadline = time.monotonic() + EMPTY_SECONDS
        while left := [f"{it.key} {it.state}" for it in list(self.scheduler.tasks.values())]:
            if time.monotonic() > deadline:
                return f"{len(left)} tasks at the scheduler ({left[0]}, ...)"
            time.sleep(0.02)
        return ""

    async def _forget(self, client: str) -> None:
        """Have the scheduler forget a client, also where Dask would not do it.

        A client whose connection broke may fail to connect again; and if a graph of its came in
        meanwhile, the scheduler keeps its tasks for ever for a record of the client that has been
        replaced (distributed 2026.8). That is no fault of SplIter.
        """
        scheduler = self.scheduler
        if client in scheduler.clients:
            scheduler.remove_client(client, stimulus_id="chaos-forget")
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

    async def start_worker(self) -> WorkerHandle:
        """Start one more worker, with a nanny or without like the others."""
        start = dask_workers.start_with_nanny if self.nannies else dask_workers.start_alone
        worker = await start(self.cluster.scheduler_address, self._folder)
        self.workers.append(worker)
        return worker

    async def _repair(self) -> None:
        """Have as many workers as a run begins with, all of them running."""
        there = [worker for worker in self.workers if worker.is_there][:WORKERS]
        surplus = [worker for worker in self.workers if worker not in there]
        self.workers = there
        await asyncio.gather(*map(dask_workers.stop, surplus))
        missing = WORKERS - len(there)
        await asyncio.gather(*(self.start_worker() for _ in range(missing)))
        deadline = time.monotonic() + REPAIR_SECONDS
        while not self._is_whole():
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster's workers have not all come back")
            await asyncio.sleep(0.02)

    def _is_whole(self) -> bool:
        known = set(self.scheduler.workers)
        running = {worker.address for worker in self.scheduler.running}
        return known == running == {worker.address for worker in self.workers}

    def state(self) -> str:
        tasks = [
            f"{it.key}: {it.state}, pins {it.worker_restrictions}, at {it.processing_on}, "
            f"waits for {[str(other.key) for other in it.waiting_on or ()][:3]}"
            for it in list(self.scheduler.tasks.values())
            if it.state not in {"memory", "released", "forgotten"}
        ]
        return "\n".join([*tasks, self._faults.at_workers()])

    def close(self, *, abandoned: bool = False) -> None:
        if abandoned:
            for worker in self.workers:
                with contextlib.suppress(ProcessLookupError):
                    worker.signal(signal.SIGKILL)
        with self._stack:
            try:
                if self.client is not None:
                    _disconnect(self.client)
                self._faults.close()
                self.cluster.sync(self._stop_all)
            finally:
                self.cluster.close(timeout=20)

    async def _stop_all(self) -> None:
        await asyncio.gather(*map(dask_workers.stop, self.workers))


def same(block: Any) -> Any:
    """Return the block: as the result of a task, Dask can make it again."""
    return block


def _disconnect(client: Any) -> None:
    """Close a client, in whatever state its connection is."""
    # A client that is closed while it connects again stays known to the scheduler.
    deadline = time.monotonic() + EMPTY_SECONDS
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        client.close(timeout=10)
    except Exception:  # noqa: BLE001 -- raises what went wrong when it connected again
        client.status = "closed"  # it would try once more when it is collected


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask from logging each fault."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
