"""What a comparison needs of an engine: load blocks, call functions on them, count and rest.

Each engine is a module with an :class:`EngineKind`; :mod:`.loading` finds it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.harness.errors import ClusterError, OptionError
from spliter_experiments.harness.runner import Reading

WAIT_SECONDS = 600


@dataclass(frozen=True)
class ClusterChoice:
    """Which cluster to use.

    Parameters
    ----------
    address : str or None
        Where the user's cluster is; None to start one.
    workers, threads : int
        Processes, and threads in each, of the one to start.
    """

    address: str | None
    workers: int
    threads: int

    def __post_init__(self) -> None:
        if self.workers < 1 or self.threads < 1:
            raise OptionError(
                f"--workers and --threads must be at least 1, got {self.workers} and {self.threads}"
            )


class Meter(Protocol):
    """Counts what ways cost."""

    def reading(self) -> Reading:
        """Read the counters."""


class Resting(Protocol):
    """A state of the cluster to come back to."""

    def wait(self) -> None:
        """Wait until the cluster is in that state again.

        Raises
        ------
        ClusterError
            If that takes too long.
        """


class Engine(Protocol):
    """A cluster, for the time of a comparison."""

    @property
    def cores(self) -> int:
        """How many tasks it runs at once."""

    @property
    def workers(self) -> int:
        """How many processes it has that run tasks."""

    def is_on_this_machine(self) -> bool:
        """Whether all of it runs on this host, so that plain processes here compare with it."""

    def persisted(
        self,
        source: Rows,
        row_chunks: Sequence[int],
        like: npt.NDArray[Any],
        placement: Placement,
    ) -> AbstractContextManager[Any]:
        """Load rows at the workers, in blocks, for the time of a context.

        Parameters
        ----------
        source : Rows
            Where the rows come from.
        row_chunks : sequence of int
            Rows of each block.
        like : ndarray
            A block without rows: says the dtype, and the size of further axes.
        placement : Placement
            How the blocks are spread over the workers. Sources that are loaded alike are at the
            same places if it is even.

        Yields
        ------
        collection
            One of the engine's, with ``shape`` and ``chunks``.

        Raises
        ------
        InputError
            If the workers cannot read the source.
        """

    def call_blocks(
        self,
        blocks: Any,
        kernel: Callable[..., Any],
        aligned: Any = None,
        starts: Sequence[int] | None = None,
        **shared: Any,
    ) -> list[Any]:
        """Call a function on all blocks at once.

        Returns
        -------
        list
            For each block its result, or a future of it.
        """

    def call_each(self, function: Callable[..., Any], *lists: Any, **shared: Any) -> list[Any]:
        """Call a function on results of calls, in tasks if they are futures, else here."""

    def results(self, pending: Sequence[Any]) -> list[Any]:
        """Wait for calls and return their results.

        Raises
        ------
        ClusterError
            If that takes longer than ten minutes.
        """

    def share(self, value: Any) -> Any:
        """Send a large argument of calls to the workers once; return what stands for it."""

    def rest(self, collections: Sequence[Any] = ()) -> Resting:
        """Take the state that there is now, with these collections at the workers."""

    def meter(self) -> AbstractContextManager[Meter]:
        """Count what is going on, for the time of a context."""


class ResultsHere:
    """Part of an engine whose calls return results, not futures: they are merged here."""

    def call_each(self, function: Callable[..., Any], *lists: Any, **shared: Any) -> list[Any]:
        """Call a function here."""
        return [function(*arguments, **shared) for arguments in zip(*lists, strict=True)]

    def results(self, pending: Sequence[Any]) -> list[Any]:
        """Return the results: they are here."""
        return list(pending)

    def share(self, value: Any) -> Any:
        """Return the value: calls send it along."""
        return value


Launch: TypeAlias = Callable[[ClusterChoice, Sequence[str]], int]
"""Runs the command, with these arguments, inside an engine; returns its exit status."""


@dataclass(frozen=True)
class EngineKind:
    """An engine before it is connected to.

    Parameters
    ----------
    name : str
        What the user calls it.
    address_option : str
        The option of the command by which the user says where a cluster is.
    placements : frozenset of Placement
        Those that it can do.
    connect : callable
        Given a choice, a context with the connected engine.
    own_ways : str or None
        Module with the ways that this engine alone has.
    launcher : callable
        Returns what runs the command anew inside the engine's own launcher; or None if there is no
        need to, as this process can connect.
    node_is_worker : bool
        Whether it has one worker on a node, with all of its cores, however many a plan has there.
    """

    name: str
    address_option: str
    placements: frozenset[Placement]
    connect: Callable[[ClusterChoice], AbstractContextManager[Engine]]
    own_ways: str | None = None
    launcher: Callable[[], Launch | None] = lambda: None
    node_is_worker: bool = False

    def check(self, placement: Placement) -> None:
        """Refuse a placement that is another engine's.

        Raises
        ------
        OptionError
            If it is.
        """
        if placement not in self.placements:
            raise OptionError(
                f"--placement {placement} is none of {self.name}'s; take one of "
                f"{', '.join(sorted(self.placements))}"
            )


def result_of(future: Any) -> Any:
    """Wait for a future of any engine and return its result.

    Raises
    ------
    ClusterError
        If that takes longer than ten minutes.
    """
    try:
        return future.result(timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error
