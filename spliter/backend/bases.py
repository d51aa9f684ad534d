"""Base classes of backends, with defaults that suit most engines.

A backend implements where the blocks are (:meth:`BlocksBase.locate`), how a partition refers
to them (:meth:`BlocksBase.sources`), how many tasks a location runs at once
(:meth:`ExecutorBase.capacities`) and how to run one there (:meth:`ExecutorBase.submit`).
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from spliter._errors import PartitionNotLocalError
from spliter._grid import BlockGrid, IntArray
from spliter._pace import Following, Pace, Prefetch
from spliter._planner import Location, Placement, PlannedPartition
from spliter._read_ahead import Fetches, ReadAhead
from spliter.backend.contents import nested
from spliter.backend.protocols import (
    BlockSource,
    Executor,
    Movement,
    ResultBlocks,
    SupportsFetches,
)

ValueT = TypeVar("ValueT")
ExecutorT = TypeVar("ExecutorT", bound=Executor)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def blocks_of(source: BlockSource) -> Iterator[Any]:
    """Return an iterator over the blocks of a source, which reads ahead if the source offers it."""
    return read_ahead(source) or source.read()


def some_blocks(source: BlockSource, numbers: Sequence[int]) -> Iterator[Any]:
    """Return an iterator over some blocks of a source, by their ascending numbers in it.

    Other blocks are not read, if the source offers fetches.
    """
    fetches = _fetches_of(source)
    if fetches is not None:
        return ReadAhead(fetches.only(numbers), "", None, None)
    chosen = set(numbers)
    return (block for number, block in enumerate(source.read()) if number in chosen)


def _fetches_of(source: BlockSource | SupportsFetches) -> Fetches | None:
    # Not by isinstance, which takes ten times as long for a protocol, in every loop.
    offered = getattr(source, "fetches", None)
    return None if offered is None else offered()


def read_ahead(
    source: BlockSource,
    split: str = "",
    pace: Pace | None = None,
    following: Following | None = None,
) -> ReadAhead | None:
    """Return a :class:`ReadAhead` of a source; ``None`` if it does not offer fetches."""
    fetches = _fetches_of(source)
    return None if fetches is None else ReadAhead(fetches, split, pace, following)


def not_local_error(where: str) -> PartitionNotLocalError:
    """Return the error for reading blocks in a process that does not have them.

    Parameters
    ----------
    where : str
        Where they are: ``"at a node"``.
    """
    return PartitionNotLocalError(
        f"this partition's blocks are {where}, not in this process; pass it to a function "
        "decorated with spliter.task, or call partition.submit(fn)"
    )


class RemoteSource:
    """Source of a partition away from its blocks, which cannot be read.

    Engines derive what the program holds of a partition, to send it to their tasks. It pickles as a
    plain `RemoteSource`, or as what tasks read.

    Parameters
    ----------
    where : str
        Where the blocks are, for the error: ``"at a node"``.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self) -> Any:
        """Raise `PartitionNotLocalError`."""
        raise not_local_error(self.where)

    def materialized(self) -> Any:
        """Raise `PartitionNotLocalError`."""
        raise not_local_error(self.where)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSource, (self.where,)


class MovementCounter:
    """Thread-safe count of the blocks moved for a Split, and whether its plan is outdated.

    Examples
    --------
    >>> counter = MovementCounter()
    >>> counter.add(Movement(fetched_blocks=2, fetched_nbytes=16), drifted=True)
    >>> counter.movement.nbytes, counter.drifted
    (16, True)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.movement: Movement = Movement()
        self.drifted: bool = False

    def add(self, more: Movement = Movement(), *, drifted: bool = False) -> None:  # noqa: B008
        """Add to the count.

        Parameters
        ----------
        more : Movement
            Blocks moved since the last call.
        drifted : bool, default False
            Whether a task found blocks at other locations than planned.
        """
        with self._lock:
            self.movement += more
            self.drifted |= drifted


class BlocksBase(ABC, Generic[ExecutorT]):
    """The opened blocks of a Split; by default nothing moves and nothing needs to be released.

    Parameters
    ----------
    grids : sequence of BlockGrid
        Grid of each collection; the first one is that of the collection being split.
    executor : Executor
        Runs tasks over the blocks.

    Attributes
    ----------
    counter : MovementCounter
        Counts moved blocks. If the engine moves blocks by itself, :meth:`locate` sets
        ``counter.drifted`` to ``False`` before it queries their locations.
    stored : bool
        Whether each read of a block reads a file or an object store; ``False`` by default.
    prefetch : "auto", False or int
        How many blocks loops read ahead, if the sources offer fetches; set by ``split``.
    """

    stored: bool = False
    prefetch: Prefetch = "auto"

    def __init__(self, grids: Sequence[BlockGrid], executor: ExecutorT) -> None:
        self.grids: tuple[BlockGrid, ...] = tuple(grids)
        self.executor: ExecutorT = executor
        self.counter: MovementCounter = MovementCounter()

    @abstractmethod
    def locate(self) -> Placement:
        """Query the engine for the locations of the blocks; see :class:`Blocks`."""

    @abstractmethod
    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[BlockSource]:
        """Return one source per planned partition; see :class:`Blocks`."""

    def moved(self) -> Movement:
        """Return the movement counted so far."""
        return self.counter.movement

    def has_drifted(self) -> bool:
        """Return whether a task found blocks elsewhere since they were last located."""
        return self.counter.drifted

    def close(self) -> None:
        """Do nothing: only the collections hold the blocks."""


class ExecutorBase(ABC):
    """An executor whose futures have a ``result()``, and a ``location`` if they were pinned.

    Attributes
    ----------
    reports_passes : bool
        Whether tasks report what they have measured; ``False`` by default.
    usable_in_forks : bool
        Whether a process that is forked may use it, too; ``False`` by default, as connections and
        threads stay in the first process.
    """

    reports_passes: bool = False
    usable_in_forks: bool = False

    @abstractmethod
    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many tasks each location runs at once; see :class:`Executor`."""

    @abstractmethod
    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Any:
        """Run ``fn(*args, **kwargs)``, at `location` if given; see :class:`Executor`."""

    def submit_team(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        location: Location,
        threads: int,
    ) -> Any:
        """Submit an ordinary task, whose threads may all run until it ends."""
        # Called without arguments it returns the number; unlike a lambda it can be pickled.
        return self.submit(fn, (functools.partial(int, threads), *args), {}, location)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for one future after the other and return their results."""
        return [future.result() for future in futures]

    def location_of(self, future: Any) -> Location | None:
        """Return the ``location`` of a future, ``None`` if it has none."""
        return getattr(future, "location", None)

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return ``None`` (unknown) for each location."""
        return dict.fromkeys(locations)

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
        """Wait for the new blocks and return them as a list, in the order of the collection.

        If there are several blocks along other axes than the first, the list is nested, as
        ``numpy.block`` takes it.
        """
        blocks: list[Any] = [None] * made.grid.nblocks
        for positions, future in results:
            result = future.result()
            new = result if made.output is None else result[made.output]
            for position, block in zip(positions.tolist(), new, strict=True):
                blocks[position] = block
        return nested(blocks, made.grid.shape)

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread may wait: always, as there is no event loop."""
        return True


class CachedValue(Generic[ValueT]):
    """A value computed by the first thread that needs it, while the others wait.

    For :meth:`BlockSource.materialized`. If the computation raises, the next thread tries again.

    Examples
    --------
    >>> one = CachedValue()
    >>> one.get(lambda: [1, 2]) is one.get(lambda: [3])
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[ValueT] | None = None

    def get(self, make: Callable[[], ValueT]) -> ValueT:
        """Return the value; call `make` if there is none yet."""
        with self._lock:
            if self._made is None:
                self._made = (make(),)
            return self._made[0]


def stays_at_location(fn: FunctionT) -> FunctionT:
    """Mark a task function whose tasks wait for each other; usable as a decorator.

    A task is restarted elsewhere if most of its blocks have moved there. One that waits for others
    may find its thread occupied by one of these then; so marked ones read the blocks from there.

    Parameters
    ----------
    fn : callable

    Returns
    -------
    callable
        The same function.
    """
    fn.__dict__["spliter_stays"] = True
    return fn


def may_move(fn: Callable[..., Any]) -> bool:
    """Return whether tasks of a function may be restarted at another location."""
    return not getattr(fn, "spliter_stays", False)


def futures_in(argument: Any, kind: type) -> Iterator[Any]:
    """Yield the futures in an argument of a task.

    Parameters
    ----------
    argument : object
        A future; a list, tuple or dict with futures; or anything else.
    kind : type
        Type of the engine's futures.

    Yields
    ------
    future
        The argument itself, or those directly inside a list, tuple or dict.
    """
    if isinstance(argument, kind):
        yield argument
    elif type(argument) in {list, tuple}:
        yield from (value for value in argument if isinstance(value, kind))
    elif type(argument) is dict:
        yield from (value for value in argument.values() if isinstance(value, kind))


def with_results(argument: Any, kind: type[Any]) -> Any:
    """Replace the futures that :func:`futures_in` finds by their results; waits for them.

    Parameters
    ----------
    argument : object
        An argument of a task.
    kind : type
        Type of the engine's futures, which have a ``result()``.

    Returns
    -------
    object
        The argument itself if it has no futures.

    Examples
    --------
    >>> from concurrent.futures import Future
    >>> future = Future()
    >>> future.set_result(3)
    >>> with_results([1, future], Future)
    [1, 3]
    """

    def resolve(value: Any) -> Any:
        return value.result() if isinstance(value, kind) else value

    if next(futures_in(argument, kind), None) is None:
        return argument
    if isinstance(argument, kind):
        return argument.result()
    if isinstance(argument, dict):
        return {key: resolve(value) for key, value in argument.items()}
    # `map` would end at a StopIteration of a task.
    return type(argument)([resolve(each) for each in argument])
