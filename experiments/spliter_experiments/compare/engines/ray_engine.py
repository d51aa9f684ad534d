"""Ray as an engine to compare on."""

from __future__ import annotations

import functools
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import ray
from ray import ObjectRef, cloudpickle
from ray._private import internal_api

from spliter import Location
from spliter_backends.ray import RayArray
from spliter_backends.ray.blocks import affinity
from spliter_backends.ray.errors import told
from spliter_experiments.compare.data.blocks import row_starts
from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines.engine import (
    WAIT_SECONDS,
    ClusterChoice,
    EngineKind,
    ResultsHere,
)
from spliter_experiments.compare.engines.placement import Placement, seats
from spliter_experiments.compare.engines.ray_cluster import (
    check_nodes,
    connected,
    nodes_of,
    on_this_machine,
)
from spliter_experiments.harness.errors import ClusterError, ExperimentError, InputError
from spliter_experiments.harness.runner import Reading

REST_SECONDS = 60.0
POLL_SECONDS = 0.03


def node_stats() -> Iterator[Any]:
    """Ask each node that is alive for its counters."""
    for node in ray.nodes():
        if node["Alive"]:
            yield internal_api.node_stats(
                node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False
            )


@dataclass
class RayMeter:
    """Counters of a cluster.

    Parameters
    ----------
    executed : dict of bytes to int
        Tasks that each process has run; those that have ended since count too.
    """

    executed: dict[bytes, int] = field(default_factory=dict)

    def __enter__(self) -> RayMeter:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was changed that had to be changed back."""

    def reading(self) -> Reading:
        """Read the counters."""
        nbytes = 0
        for stats in node_stats():
            nbytes += stats.store_stats.cumulative_created_bytes
            for worker in stats.core_workers_stats:
                self.executed[worker.worker_id] = worker.num_executed_tasks
        return Reading(sum(self.executed.values()), nbytes)


@dataclass(frozen=True)
class RayRest:
    """A state of the object stores to come back to: no more objects were made than are gone.

    Copies that Ray has made of blocks do not count, as it keeps them until it needs the room.

    Parameters
    ----------
    kept : int
        Objects that are there, without copies.
    may_come : callable
        Returns how many objects have been made since that are to stay.
    """

    kept: int
    may_come: Callable[[], int]

    @classmethod
    def now(cls, may_come: Callable[[], int] = lambda: 0) -> RayRest:
        """Take what is there now."""
        return cls(_kept() - may_come(), may_come)

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until no more is kept than there was.

        Raises
        ------
        ClusterError
            If that takes longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (kept := _kept()) > self.kept + self.may_come():
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the nodes are not at rest after {timeout:g} s: they keep {kept} objects "
                    f"(before: {self.kept}); does someone else use this Ray cluster?"
                )
            gc.collect()  # references in cycles hold results
            time.sleep(POLL_SECONDS)


def _kept() -> int:
    return sum(stats.store_stats.num_object_store_primary_copies for stats in node_stats())


MOST_INLINE = 100_000
"""Bytes of an argument up to which it goes along with every task; larger ones are put once."""


@dataclass(frozen=True, eq=False)
class LoadedArray(RayArray):
    """A collection that was loaded at nodes."""

    seats: tuple[Location, ...] = ()

    @functools.cached_property
    def dataset(self) -> Any:
        """The same rows as a dataset of Ray Data, in blocks of the same rows."""
        with warnings.catch_warnings():
            # Ray Data warns of settings that are its own defaults.
            warnings.simplefilter("ignore", DeprecationWarning)
            import ray.data

            ray.data.DataContext.get_current().enable_progress_bars = False
            return ray.data.from_numpy_refs(list(self.blocks)).materialize()

    @property
    def blocks_of_dataset(self) -> int:
        """How many objects it consists of; none before it is asked for."""
        made = vars(self).get("dataset")
        return 0 if made is None else int(made.num_blocks())


@dataclass(frozen=True)
class RayEngine(ResultsHere):
    """A Ray cluster; implements :class:`.engine.Engine`.

    Parameters
    ----------
    nodes : mapping of Location to int
        For each node, how many tasks it runs at once.
    here : bool
        Whether all of them are on this host.
    pinned : bool
        Whether the tasks of blocks are given an affinity to the node of their block.
    """

    nodes: Mapping[Location, int]
    here: bool
    pinned: bool = False

    @property
    def cores(self) -> int:
        """How many tasks it runs at once."""
        return sum(self.nodes.values())

    @property
    def workers(self) -> int:
        """How many nodes it has."""
        return len(self.nodes)

    def is_on_this_machine(self) -> bool:
        """Whether all nodes are this host."""
        return self.here

    @contextmanager
    def persisted(
        self,
        source: Rows,
        row_chunks: Sequence[int],
        like: npt.NDArray[Any],
        placement: Placement,
    ) -> Iterator[LoadedArray]:
        """Have tasks read rows at nodes; they go when nobody refers to them any more."""
        places = seats(len(row_chunks), self.nodes, placement)
        given = ray.put(source)
        blocks = tuple(
            read_rows.options(scheduling_strategy=affinity(place)).remote(
                given, start, start + rows
            )
            for place, start, rows in zip(places, row_starts(row_chunks), row_chunks, strict=True)
        )
        try:
            self.call_tasks(touched, [(block,) for block in blocks], places)
        except ExperimentError:
            raise
        except Exception as error:
            raise InputError(
                f"the nodes cannot read {source.origin}: {error}; a file has to be at the same "
                "path on every node"
            ) from error
        chunks = (tuple(row_chunks), *((size,) for size in like.shape[1:]))
        yield LoadedArray(blocks, chunks, like.dtype, tuple(places))

    def call_tasks(
        self,
        function: Any,
        calls: Sequence[tuple[Any, ...]],
        seats: Sequence[Location] | None,
        **shared: Any,
    ) -> list[Any]:
        """Run a task for each of several calls, at given nodes or where Ray puts it."""
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
        """Run a task for every block."""
        none: list[tuple[Any, ...]] = [()] * blocks.nblocks
        others = none if aligned is None else [(block,) for block in aligned.blocks]
        numbers = none if starts is None else [(start,) for start in starts]
        given = {name: _put_if_large(value) for name, value in shared.items()}
        calls = [
            (kernel, block, *other, *number)
            for block, other, number in zip(blocks.blocks, others, numbers, strict=True)
        ]
        return self.call_tasks(call, calls, blocks.seats if self.pinned else None, **given)

    def rest(self, collections: Sequence[LoadedArray] = ()) -> RayRest:
        """Take what is in the object stores now; datasets of the collections may come."""
        return RayRest.now(lambda: sum(array.blocks_of_dataset for array in collections))

    def meter(self) -> RayMeter:
        """Count tasks, and bytes that come into object stores."""
        return RayMeter()


def results(references: Sequence[ObjectRef]) -> list[Any]:
    """Wait for tasks and return their results.

    Raises
    ------
    ClusterError
        If that takes longer than ten minutes.
    """
    try:
        return list(ray.get(list(references), timeout=WAIT_SECONDS))
    except ray.exceptions.RayTaskError as error:
        raise told(error) from error
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error


def _put_if_large(value: Any) -> Any:
    return ray.put(value) if len(cloudpickle.dumps(value)) > MOST_INLINE else value


@ray.remote  # type: ignore[untyped-decorator]
def read_rows(source: Rows, start: int, stop: int) -> Any:
    """Read the rows of one block."""
    return source.read(start, stop)


@ray.remote  # type: ignore[untyped-decorator]
def touched(block: Any) -> int:
    """Make sure that a block is there."""
    return len(block)


@ray.remote  # type: ignore[untyped-decorator]
def call(kernel: Callable[..., Any], *arguments: Any, **shared: Any) -> Any:
    """Call a function on a block."""
    return kernel(*arguments, **shared)


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[RayEngine]:
    """Connect to a cluster with at least one node, started and stopped here if embedded.

    Raises
    ------
    ClusterError
        If it cannot be started or reached in time, or a node has another SplIter.
    """
    with connected(choice):
        nodes = nodes_of(choice)
        check_nodes(nodes)
        yield RayEngine(nodes, on_this_machine(nodes))


ENGINE = EngineKind(
    name="ray",
    address_option="--address",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}),
    connect=connect,
    own_ways="spliter_experiments.compare.workloads.ray",
)
