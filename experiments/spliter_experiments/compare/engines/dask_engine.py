"""Dask engine of the comparisons."""

from __future__ import annotations

import asyncio
import json
import platform
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy.typing as npt
from dask.core import flatten
from distributed import (
    Client,
    Future,
    LocalCluster,
    Security,
    Worker,
    WorkerPlugin,
    futures_of,
    wait,
)
from distributed.comm import connect as connect_comm
from distributed.gc import disable_gc_diagnosis

from spliter_backends.dask.client.environment import query_versions, wrong_versions
from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines.dask_meter import ClusterMeter, DaskIdle
from spliter_experiments.compare.engines.engine import (
    WAIT_SECONDS,
    ClusterChoice,
    Engine,
    EngineKind,
    Pairing,
    Placement,
    chunks_of,
    seats,
)
from spliter_experiments.harness.errors import ClusterError, InputError

CONNECT_SECONDS = 10
WORKERS_SECONDS = 30


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[Client]:
    """Connect to a cluster with at least one worker, started and stopped here if embedded."""
    with ExitStack() as stack:
        if choice.address is None:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=choice.workers,
                    threads_per_worker=choice.threads,
                    processes=True,
                    # Any free port, as the default may be taken; this host only, as Dask serves the
                    # dashboard on every interface by default.
                    dashboard_address="127.0.0.1:0",
                )
            )
            client = stack.enter_context(Client(cluster))
            client.register_plugin(Uninterrupted())
            # Dask's garbage collection callback swallows the KeyboardInterrupt of a Ctrl-C that
            # arrives while it runs, and a comparison triggers many collections.
            disable_gc_diagnosis(force=True)
            yield client
            return
        client = stack.enter_context(_client_of(choice.address))
        try:
            client.wait_for_workers(1, timeout=WORKERS_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler at {choice.address} has no worker after {WORKERS_SECONDS} s"
            ) from error
        yield client


def _client_of(scheduler: str) -> Client:
    address = _address_of(scheduler)
    try:
        # Dask waits forever for the handshake of a server that accepts connections but is silent.
        asyncio.run(asyncio.wait_for(_greet(address), CONNECT_SECONDS))
        return Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or f"no answer in {CONNECT_SECONDS} s"
        raise ClusterError(f"no scheduler answers at {address}: {reason}") from error
    except (TypeError, RuntimeError) as error:
        # Dask raises these if certificates are missing or the server requires encryption.
        raise ClusterError(
            f"cannot speak to the scheduler at {address}: {error}; certificates are taken from "
            "Dask's configuration (distributed.comm.tls: ca-file, client.cert, client.key)"
        ) from error


async def _greet(address: str) -> None:
    security = Security().get_connection_args("client")
    comm = await connect_comm(address, timeout=CONNECT_SECONDS, **security)
    comm.abort()


def _address_of(scheduler: str) -> str:
    """Return the address in a scheduler file; Dask would wait forever for a missing file."""
    path = Path(scheduler)
    if not path.is_file():
        if ":" in scheduler:
            return scheduler
        raise ClusterError(
            f"{scheduler} is neither an address (tcp://HOST:PORT) nor a scheduler file"
        )
    try:
        address = json.loads(path.read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterError(
            f"{scheduler} is not a scheduler file (dask scheduler --scheduler-file FILE)"
        ) from error
    return str(address)


def is_on_this_machine(client: Client) -> bool:
    """Return whether all workers run on this host, so that local processes are comparable."""
    return set(client.run(platform.node).values()) == {platform.node()}


def process_versions(client: Client) -> dict[str, str | None]:
    found: dict[str, str | None] = client.sync(query_versions, client, asynchronous=False)
    return found


class Uninterrupted(WorkerPlugin):
    """Makes workers ignore Ctrl-C, which reaches them too: the command stops them itself.

    If the command is killed, workers end by themselves, because Dask has them watch their parent.
    """

    def setup(self, worker: Worker) -> None:
        """Ignore SIGINT; runs in the main thread of the worker process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_versions(versions: Mapping[str, str | None]) -> None:
    if wrong := wrong_versions(versions):
        raise ClusterError(wrong)


LOAD_SECONDS = 1800


@dataclass(frozen=True)
class WorkerOfBlock:
    """Maps the keys of an array's blocks to workers, for ``dask.annotate``."""

    workers: tuple[str, ...]

    def __call__(self, key: tuple[Any, ...]) -> str:
        return self.workers[int(key[1])]


def _pins(client: Client, nblocks: int, placement: Placement) -> AbstractContextManager[Any]:
    if placement is Placement.DASK:
        return nullcontext()
    threads = dict(sorted(client.nthreads().items()))
    worker_of_block = WorkerOfBlock(tuple(seats(nblocks, threads, placement)))
    pinned: AbstractContextManager[Any] = dask.annotate(workers=worker_of_block)
    return pinned


def persist(
    client: Client,
    source: Rows,
    row_chunks: Sequence[int],
    like: npt.NDArray[Any],
    placement: Placement = Placement.EVEN,
) -> da.Array:
    """Load rows into the workers' memory, as an array chunked in rows only.

    Blocks of the same number are at the same worker, except with :attr:`Placement.DASK`.
    """
    lazy = lazy_rows(source, row_chunks, like)
    with _pins(client, len(row_chunks), placement):
        # Not optimized, because the placement refers to the block keys.
        array: da.Array = lazy.persist(optimize_graph=False)
    wait_for_blocks(array)
    for block in blocks_of(array):
        if block.status == "error":
            raise InputError(
                f"the workers cannot read {source.origin}: {block.exception()}; a file has to be "
                "at the same path on every worker"
            )
    return array


def lazy_rows(source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any]) -> da.Array:
    """Return rows as a lazy array, chunked in rows only; each block has the axes of `like`."""
    array: da.Array = da.map_blocks(
        load_rows,
        source=source,
        width=like.shape[1:],
        chunks=chunks_of(row_chunks, like),
        dtype=like.dtype,
        meta=like,
    )
    return array


def wait_for_blocks(persisted: Any) -> None:
    try:
        wait(futures_of(persisted), timeout=LOAD_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"the points are not loaded after {LOAD_SECONDS} s") from error


def load_rows(
    source: Rows, width: tuple[int, ...], block_info: Mapping[Any, Any] | None = None
) -> npt.NDArray[Any]:
    """Return the rows of one block, each of the shape `width`; runs on a worker."""
    assert block_info is not None
    start, stop = block_info[None]["array-location"][0]
    return source.read(start, stop).reshape(-1, *width)


def blocks_of(array: da.Array) -> list[Future[Any]]:
    """Return the futures of a persisted array's blocks, in row order."""
    futures = {future.key: future for future in futures_of(array)}
    return [futures[key] for key in flatten(array.__dask_keys__())]


def _futures(blocks: da.Array | list[Future[Any]]) -> list[Future[Any]]:
    return blocks if isinstance(blocks, list) else blocks_of(blocks)


def wait_for(futures: Sequence[Future[Any]]) -> None:
    try:
        wait(list(futures), timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error


@dataclass(frozen=True)
class DaskEngine(Engine):
    """A Dask cluster."""

    client: Client

    @property
    def cores(self) -> int:
        return sum(self.client.nthreads().values())

    @property
    def workers(self) -> int:
        return len(self.client.nthreads())

    def is_on_this_machine(self) -> bool:
        return is_on_this_machine(self.client)

    @contextmanager
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> Iterator[da.Array]:
        """Load rows at the workers; Dask frees them when the array is unreferenced."""
        yield persist(self.client, source, row_chunks, like, placement)

    def call_blocks(
        self,
        blocks: Any,
        kernel: Callable[..., Any],
        aligned: Any = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Future[Any]]:
        lists: list[Any] = [_futures(blocks)]
        lists += [] if aligned is None else [_futures(aligned)]
        lists += [] if starts is None else [list(starts)]
        return self.call_each(kernel, *lists, **shared)

    def call_pairs(
        self, blocks: Any, others: Any, pairing: Pairing, starts: Sequence[int], **shared: Any
    ) -> list[Future[Any]]:
        made = self.call_blocks(blocks, pairing.make, starts=starts)
        merged = []
        for other in _futures(others):
            # One after the other: earlier tasks go first, so that few pairs wait for their merge.
            found = self.call_each(pairing.ask, made, [other] * len(made), **shared)
            merged += self.call_each(pairing.merge, [found], **shared)
        return merged

    def call_each(
        self, function: Callable[..., Any], *lists: Any, **shared: Any
    ) -> list[Future[Any]]:
        mapped: list[Future[Any]] = self.client.map(function, *lists, pure=False, **shared)
        return mapped

    def results(self, pending: Sequence[Future[Any]]) -> list[Any]:
        wait_for(pending)
        found: list[Any] = self.client.gather(list(pending))
        return found

    def share(self, value: Any) -> Any:
        return self.client.scatter(value, broadcast=True, hash=False)

    def idle_state(self, collections: Sequence[da.Array] = ()) -> DaskIdle:
        return DaskIdle.now(
            self.client, [block for array in collections for block in blocks_of(array)]
        )

    def meter(self) -> ClusterMeter:
        return ClusterMeter(self.client)


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[DaskEngine]:
    with connected(choice) as client:
        check_versions(process_versions(client))
        yield DaskEngine(client)


ENGINE = EngineKind(
    name="dask",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS, Placement.DASK}),
    connect=connect,
    own_ways="spliter_experiments.compare.workloads.dask",
)
