"""Ray engine of the comparisons."""

from __future__ import annotations

import functools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import psutil
import ray
from ray import ObjectRef, cloudpickle
from ray._private import internal_api

from spliter import Location
from spliter_backends.ray import RayArray
from spliter_backends.ray.blocks import affinity
from spliter_backends.ray.cluster import usable_nodes
from spliter_backends.ray.errors import translate_error
from spliter_experiments.compare.data.sources import Rows, row_starts
from spliter_experiments.compare.engines.engine import (
    WAIT_SECONDS,
    ClusterChoice,
    EngineKind,
    KeptResults,
    LocatedEngine,
    Pairing,
    Placement,
    check_versions,
    chunks_of,
    read_errors_named,
    seats,
)
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.runner import Reading

START_SECONDS = 60
CHECK_SECONDS = 120

STORES_SHARE = 0.3
"""Share of the free memory for all object stores of nodes started here."""

HOST = "127.0.0.2" if sys.platform == "linux" else None
"""Loopback address, because Ray has no authentication. Ray replaces 127.0.0.1 by the host's public
address; other loopback addresses exist on Linux only, elsewhere Ray uses its default."""


@contextmanager
def connected(choice: ClusterChoice) -> Iterator[None]:
    if ray.is_initialized():
        raise ClusterError("this process is connected to Ray already; call ray.shutdown() first")
    try:
        if choice.address is None:
            with _own_nodes(choice) as address:
                _connect(address, {"_node_ip_address": HOST} if HOST else {})
                yield
        else:
            _connect(choice.address, {})
            yield
    finally:
        ray.shutdown()


@contextmanager
def _own_nodes(choice: ClusterChoice) -> Iterator[str]:
    """Start a node per worker, with one CPU per thread."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    memory = int(STORES_SHARE * psutil.virtual_memory().available / choice.workers)
    node: dict[str, Any] = {"num_cpus": choice.threads, "object_store_memory": memory}
    if HOST:
        node["node_ip_address"] = HOST
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(choice.workers - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        ray.shutdown()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of processes that are ending
            cluster.shutdown()


def _connect(address: str, options: Mapping[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about settings that we do not use
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", **options)
        except Exception as error:
            raise ClusterError(f"no Ray cluster can be reached at {address}: {error}") from error


def nodes_of(choice: ClusterChoice) -> dict[Location, int]:
    wanted = choice.workers if choice.address is None else 1
    deadline = time.monotonic() + START_SECONDS
    while len(found := usable_nodes()) < wanted:
        if time.monotonic() > deadline:
            raise ClusterError(f"{len(found)} of {wanted} Ray nodes came up in {START_SECONDS} s")
        time.sleep(0.1)
    return {Location(node): cpus for node, cpus in sorted(found.items())}


def check_nodes(nodes: Mapping[Location, int]) -> None:
    found = {}
    for node in nodes:
        version = "no answer"
        with suppress(Exception):
            asked = version_here.options(scheduling_strategy=affinity(node)).remote()
            version = ray.get(asked, timeout=CHECK_SECONDS)
        found[node[:8]] = version
    check_versions("ray", found)


@ray.remote  # type: ignore[untyped-decorator]
def version_here() -> str:
    import spliter as found

    return found.__version__


def on_this_machine(nodes: Mapping[Location, int]) -> bool:
    hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["NodeID"] in nodes}
    return hosts == {os.uname().nodename}


def node_stats() -> Iterator[Any]:
    for node in ray.nodes():
        if node["Alive"]:
            yield internal_api.node_stats(
                node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False
            )


@dataclass
class RayMeter:
    """Tasks run by each process of a cluster, including processes that have ended."""

    executed: dict[bytes, int] = field(default_factory=dict)

    def reading(self) -> Reading:
        """Return tasks executed, and bytes created in object stores."""
        nbytes = 0
        for stats in node_stats():
            nbytes += stats.store_stats.cumulative_created_bytes
            for worker in stats.core_workers_stats:
                self.executed[worker.worker_id] = worker.num_executed_tasks
        return Reading(sum(self.executed.values()), nbytes)


def kept_objects() -> int:
    """Return the number of objects in all stores; copies of blocks do not count.

    Ray keeps copies until it needs the memory.
    """
    return sum(stats.store_stats.num_object_store_primary_copies for stats in node_stats())


MOST_INLINE = 100_000
"""Maximum bytes of an argument to send with every task; larger ones are put once."""


@dataclass(frozen=True, eq=False)
class LoadedArray(RayArray):
    """A collection with the node of each block."""

    seats: tuple[Location, ...] = ()

    @functools.cached_property
    def dataset(self) -> Any:
        """The same rows as a Ray Data dataset with the same blocks; created on first access."""
        with warnings.catch_warnings():
            # Ray Data warns of its own default settings.
            warnings.simplefilter("ignore", DeprecationWarning)
            import ray.data

            ray.data.DataContext.get_current().enable_progress_bars = False
            return ray.data.from_numpy_refs(list(self.blocks)).materialize()

    @property
    def blocks_of_dataset(self) -> int:
        """Number of objects of the dataset; 0 before its creation."""
        made = vars(self).get("dataset")
        return 0 if made is None else int(made.num_blocks())


@dataclass(frozen=True)
class RayEngine(LocatedEngine):
    """A Ray cluster whose tasks may be pinned to the node of their block."""

    pinned: bool = False

    @contextmanager
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> Iterator[LoadedArray]:
        places = seats(len(row_chunks), self.capacities, placement)
        given = ray.put(source)
        blocks = tuple(
            read_rows.options(scheduling_strategy=affinity(place)).remote(
                given, start, start + rows
            )
            for place, start, rows in zip(places, row_starts(row_chunks), row_chunks, strict=True)
        )
        with read_errors_named(source):
            self.call_tasks(touched, [(block,) for block in blocks], places)
        yield LoadedArray(blocks, chunks_of(row_chunks, like), like.dtype, tuple(places))

    def call_tasks(
        self,
        function: Any,
        calls: Sequence[tuple[Any, ...]],
        seats: Sequence[Location] | None,
        **shared: Any,
    ) -> list[Any]:
        """Run a task for each call, at the given nodes or where Ray puts it."""
        if seats is None:
            return results([function.remote(*call, **shared) for call in calls])
        at = {seat: function.options(scheduling_strategy=affinity(seat)) for seat in set(seats)}
        pairs = zip(seats, calls, strict=True)
        return results([at[seat].remote(*call, **shared) for seat, call in pairs])

    def call_blocks(
        self,
        blocks: LoadedArray,
        kernel: Callable[..., Any],
        aligned: LoadedArray | None = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Any]:
        none: list[tuple[Any, ...]] = [()] * blocks.nblocks
        others = none if aligned is None else [(block,) for block in aligned.blocks]
        numbers = none if starts is None else [(start,) for start in starts]
        given = {name: _put_if_large(value) for name, value in shared.items()}
        calls = [
            (kernel, block, *other, *number)
            for block, other, number in zip(blocks.blocks, others, numbers, strict=True)
        ]
        return self.call_tasks(call, calls, blocks.seats if self.pinned else None, **given)

    def call_pairs(
        self,
        blocks: LoadedArray,
        others: LoadedArray,
        pairing: Pairing,
        starts: Sequence[int],
        **shared: Any,
    ) -> list[Any]:
        at = blocks.seats if self.pinned else [None] * blocks.nblocks
        tasks = [
            call if seat is None else call.options(scheduling_strategy=affinity(seat))
            for seat in at
        ]
        made = [
            one.remote(pairing.make, block, start)
            for one, block, start in zip(tasks, blocks.blocks, starts, strict=True)
        ]
        merged = []
        for other in others.blocks:
            found = [
                one.remote(pairing.ask, tree, other, **shared)
                for one, tree in zip(tasks, made, strict=True)
            ]
            merged.append(call_on_all.remote(pairing.merge, *found, **shared))
        return results(merged)

    def idle_state(self, collections: Sequence[LoadedArray] = ()) -> KeptResults:
        """Return the current state; datasets of the collections may be created later."""
        return KeptResults.now(
            lambda: kept_objects() - sum(array.blocks_of_dataset for array in collections)
        )

    def meter(self) -> AbstractContextManager[RayMeter]:
        """Return a counter of tasks, and of bytes created in object stores."""
        return nullcontext(RayMeter())


def results(references: Sequence[ObjectRef]) -> list[Any]:
    try:
        return list(ray.get(list(references), timeout=WAIT_SECONDS))
    except ray.exceptions.RayTaskError as error:
        raise translate_error(error) from error
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error


def _put_if_large(value: Any) -> Any:
    return ray.put(value) if len(cloudpickle.dumps(value)) > MOST_INLINE else value


@ray.remote  # type: ignore[untyped-decorator]
def read_rows(source: Rows, start: int, stop: int) -> Any:
    return source.read(start, stop)


@ray.remote  # type: ignore[untyped-decorator]
def touched(block: Any) -> int:
    """Return the number of rows of a block; makes Ray compute it."""
    return len(block)


@ray.remote  # type: ignore[untyped-decorator]
def call(kernel: Callable[..., Any], *arguments: Any, **shared: Any) -> Any:
    return kernel(*arguments, **shared)


@ray.remote  # type: ignore[untyped-decorator]
def call_on_all(kernel: Callable[..., Any], *arguments: Any, **shared: Any) -> Any:
    """Call a function on a list; Ray fetches arguments, but not the elements of a list."""
    return kernel(list(arguments), **shared)


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[RayEngine]:
    with connected(choice):
        nodes = nodes_of(choice)
        check_nodes(nodes)
        yield RayEngine(nodes, on_this_machine(nodes))


ENGINE = EngineKind(
    name="ray",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}),
    connect=connect,
    own_ways="spliter_experiments.compare.workloads.ray",
    node_is_worker=True,
)
