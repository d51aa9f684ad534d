"""Interface of the engines to compare on: load blocks, call functions on them, count and reset.

Each engine is a module with an :class:`EngineKind`; :mod:`.loading` finds it by name.
"""

from __future__ import annotations

import gc
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy.typing as npt

import spliter
from spliter import Location
from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.harness.errors import (
    ClusterError,
    ExperimentError,
    InputError,
    OptionError,
)
from spliter_experiments.harness.runner import Reading

PlaceT = TypeVar("PlaceT")


class Placement(StrEnum):
    """Distribution of blocks over the workers."""

    EVEN = "even"
    """Round robin, each worker as often as it has threads."""
    CONTIGUOUS = "contiguous"
    """A range of consecutive blocks per worker, in proportion to its threads: up to a block the
    same rows as after rechunking to one chunk per thread."""
    DASK = "dask"
    """Chosen by Dask's scheduler; uneven by a tenth or more."""
    COMPSS = "compss"
    """Chosen by COMPSs' scheduler."""


def seats(nblocks: int, cores: Mapping[PlaceT, int], placement: Placement) -> list[PlaceT]:
    """Return the location of each block, by even or contiguous placement.

    >>> seats(6, {"a": 2, "b": 1}, Placement.EVEN)
    ['a', 'b', 'a', 'a', 'b', 'a']
    >>> seats(6, {"a": 2, "b": 1}, Placement.CONTIGUOUS)
    ['a', 'a', 'a', 'a', 'b', 'b']
    """
    if placement is Placement.CONTIGUOUS:
        chairs = [place for place, count in cores.items() for _ in range(count)]
        return [chairs[number * len(chairs) // nblocks] for number in range(nblocks)]
    turns = range(max(cores.values()))
    chairs = [place for turn in turns for place, count in cores.items() if count > turn]
    return list(itertools.islice(itertools.cycle(chairs), nblocks))


WAIT_SECONDS = 600
REST_SECONDS = 60.0
POLL_SECONDS = 0.03


@dataclass(frozen=True)
class ClusterChoice:
    """Cluster requested by the user, by its address.

    Without one, a cluster of `workers` processes of `threads` threads each is started.
    """

    address: str | None
    workers: int
    threads: int


class Meter(Protocol):
    """Counts tasks and bytes."""

    def reading(self) -> Reading:
        """Return the current counters."""


class IdleState(Protocol):
    """A state of the cluster that it is to return to."""

    def wait(self) -> None:
        """Wait until the cluster is in this state again; raise a `ClusterError` after a minute."""


@dataclass(frozen=True)
class Pairing:
    """Functions that are called on pairs of blocks; workers import them by name.

    ``make(block, index of its first row)`` makes something of a block, ``ask(made, other,
    **shared)`` is called with that and another block, ``merge(list of results, **shared)`` merges
    the results of one of the other blocks.
    """

    make: Callable[..., Any]
    ask: Callable[..., Any]
    merge: Callable[..., Any]


class Engine(ABC):
    """A cluster, connected while a comparison runs.

    Calls return results, which are merged here, unless an engine overrides `call_each`, `results`
    and `share` and returns futures.
    """

    split_backend: ClassVar[str | None] = None
    """Backend to request for a Split of this engine's collections; None for their own."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """Number of tasks that run at the same time."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """Number of processes that run tasks."""

    @abstractmethod
    def is_on_this_machine(self) -> bool:
        """Return whether all workers run on this host, so that local processes are comparable."""

    @abstractmethod
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> AbstractContextManager[Any]:
        """Load rows at the workers, in blocks of `row_chunks` rows, while the context is open.

        Yields a collection of the engine with ``shape`` and ``chunks``; `like` is an empty block.
        If the placement is even, sources with the same `row_chunks` are placed alike. An
        `InputError` says that the workers cannot read the rows.
        """

    @abstractmethod
    def call_blocks(
        self,
        blocks: Any,
        kernel: Callable[..., Any],
        aligned: Any = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Any]:
        """Call a function on all blocks in parallel; return results, or futures of them."""

    @abstractmethod
    def call_pairs(
        self, blocks: Any, others: Any, pairing: Pairing, starts: Sequence[int], **shared: Any
    ) -> list[Any]:
        """Call functions on all pairs of what is made of one block and another block.

        Nothing made of a block leaves the engine. Returns for each of the other blocks the merged
        result of its pairs, or a future of it.
        """

    def call_each(self, function: Callable[..., Any], *lists: Any, **shared: Any) -> list[Any]:
        """Call a function on results of calls: in tasks if these are futures, else here."""
        return [function(*arguments, **shared) for arguments in zip(*lists, strict=True)]

    def results(self, pending: Sequence[Any]) -> list[Any]:
        """Wait for calls and return their results; raise a `ClusterError` after ten minutes."""
        return list(pending)

    def share(self, value: Any) -> Any:
        """Send a large argument to the workers once; return a reference to pass in its place."""
        return value

    @abstractmethod
    def idle_state(self, collections: Sequence[Any] = ()) -> IdleState:
        """Return the current state, with these collections loaded."""

    @abstractmethod
    def meter(self) -> AbstractContextManager[Meter]:
        """Count tasks and bytes while the context is open."""


@dataclass(frozen=True)
class LocatedEngine(Engine):
    """Base of engines whose tasks run at locations.

    `capacities` are the tasks that run at the same time at each; `on_this_machine` says whether
    all are on this host.
    """

    capacities: Mapping[Location, int]
    on_this_machine: bool

    @property
    def cores(self) -> int:
        return sum(self.capacities.values())

    @property
    def workers(self) -> int:
        return len(self.capacities)

    def is_on_this_machine(self) -> bool:
        return self.on_this_machine


Launch: TypeAlias = Callable[[ClusterChoice, Sequence[str]], int]
"""Runs the command with these arguments inside an engine; returns its exit status."""


@dataclass(frozen=True)
class EngineKind:
    """An engine before it is connected; its name is the value of ``--backend``.

    `own_ways` is the module with the ways that exist only on this engine. `launcher` returns the
    function that runs the command inside the engine's own launcher, or None if this process can
    connect. With `node_is_worker`, there is one worker per node with all of its cores.
    """

    name: str
    placements: frozenset[Placement]
    connect: Callable[[ClusterChoice], AbstractContextManager[Engine]]
    own_ways: str | None = None
    launcher: Callable[[], Launch | None] = lambda: None
    node_is_worker: bool = False

    def check(self, placement: Placement) -> None:
        if placement not in self.placements:
            raise OptionError(
                f"--placement {placement} is none of {self.name}'s; take one of "
                f"{', '.join(sorted(self.placements))}"
            )


def result_of(future: Any) -> Any:
    """Wait for a future of any engine and return its result."""
    try:
        return future.result(timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error


def wait_until_idle(found: Callable[[], str], timeout: float) -> None:
    """Wait until nothing is found that a run has left; `found` describes it."""
    deadline = time.monotonic() + timeout
    while left := found():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the cluster is not at rest after {timeout:g} s: {left}; did a worker die, or "
                "does someone else use the cluster?"
            )
        gc.collect()  # futures in reference cycles hold results
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class KeptResults:
    """Initial state of a cluster: the number of results that it keeps, counted by `count`."""

    count: Callable[[], int]
    kept: int

    @classmethod
    def now(cls, count: Callable[[], int]) -> KeptResults:
        return cls(count, count())

    def wait(self, timeout: float = REST_SECONDS) -> None:
        wait_until_idle(self._found, timeout)

    def _found(self) -> str:
        kept = self.count()
        return "" if kept <= self.kept else f"{kept} results are kept (before: {self.kept})"


def check_versions(engine: str, found: Mapping[str, object]) -> None:
    wrong = [
        f"{at} has {version}" for at, version in found.items() if version != spliter.__version__
    ]
    if wrong:
        raise ClusterError(
            f"there is no spliter {spliter.__version__} everywhere: {'; '.join(wrong)}; install "
            f"the same version there, with its extras [experiments,{engine}]"
        )


@contextmanager
def read_errors_named(source: Rows) -> Iterator[None]:
    """Turn an error of a worker that reads a source into an `InputError`."""
    try:
        yield
    except ExperimentError:
        raise
    except Exception as error:
        raise InputError(
            f"the workers cannot read {source.origin}: {error}; a file has to be at the same path "
            "on every worker"
        ) from error


def chunks_of(row_chunks: Sequence[int], like: npt.NDArray[Any]) -> tuple[tuple[int, ...], ...]:
    """Return the chunks of an array that is divided in rows only, like an empty block."""
    return (tuple(row_chunks), *((size,) for size in like.shape[1:]))
