"""The half of a backend that runs functions at locations."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter._planning.grid import BlockGrid, IntArray
from spliter._planning.planner import Location
from spliter._reading.concatenate import nested

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True)
class ResultBlocks:
    """Metadata of blocks made by tasks.

    Parameters
    ----------
    grid : BlockGrid
        Grid of the new blocks: that of the collection that was split, and one block along each
        further axis of the results. Sizes of frames are those of their rows.
    dtype : dtype or None
        Dtype of arrays; ``None`` for frames.
    output : int or None
        Which element of a task's result is the list of blocks; ``None`` if the result is.
    meta : DataFrame, Series, Index or sparse matrix, or None
        An empty frame or matrix like the blocks; ``None`` for other arrays.
    divisions : sequence or None
        Of frames: smallest labels of the index of each block, and the largest of the last one;
        ``None`` if unknown. From the attribute `divisions` of the opened blocks.
    """

    grid: BlockGrid
    dtype: np.dtype[Any] | None
    output: int | None = None
    meta: Any = None
    divisions: Sequence[Any] | None = None


class Executor(ABC):
    """Runs functions at locations; its futures have a ``result()``.

    Attributes
    ----------
    reports_passes : bool
        Whether tasks report to the program what they have measured (``spliter.metrics``), because
        a location has several processes. Otherwise one task per location collects it.
    can_steal : bool
        Whether :meth:`submit_among` is implemented.
    usable_in_forks : bool
        Whether a process that is forked may use it, too; ``False`` by default, as connections and
        threads stay in the first process.
    """

    reports_passes: bool = False
    can_steal: bool = False
    usable_in_forks: bool = False

    @abstractmethod
    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many tasks each location runs at once (cores, threads)."""

    @abstractmethod
    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Any:
        """Run ``fn(*args, **kwargs)``, at `location` if one is given; return the engine's future.

        Partitions among the arguments arrive as partitions that can be iterated there;
        futures of this engine arrive as their results.
        """

    def submit_team(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        location: Location,
        threads: int,
    ) -> Any:
        """Run ``fn(cores, *args)`` at a location, in one task that may use several threads.

        `cores` is a function that returns how many of the `threads` may run at the moment, and 0
        once the task has been cancelled. By default all may run until the task ends.
        """
        # Called without arguments it returns the number; unlike a lambda it can be pickled.
        return self.submit(fn, (functools.partial(int, threads), *args), {}, location)

    def submit_among(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        locations: Sequence[Location],
    ) -> Any:
        """Run ``fn(*args, **kwargs)`` at one of several locations, if the executor can steal.

        The engine chooses, and may move the task to another of them until it starts;
        :meth:`location_of` returns ``None`` for its future.
        """
        # Not abstract: never called for an executor that cannot steal.
        raise NotImplementedError

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for futures of this executor and return their results, in order.

        Override it to use fewer round trips than one after the other. The error of a task is
        raised unchanged.
        """
        return [future.result() for future in futures]

    def location_of(self, future: Any) -> Location | None:
        """Return the location of a result, if this executor pinned it: the future's `location`."""
        return getattr(future, "location", None)

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return the free bytes of memory at each location, ``None`` (the default) if unknown."""
        return dict.fromkeys(locations)

    def assemble(self, results: Sequence[tuple[IntArray, Any]], made: ResultBlocks) -> Any:
        """Return a collection of this engine's own kind, blocked like the one that was split.

        By default waits for the blocks and returns them as a list, in the order of the collection;
        if there are several blocks along other axes than the first, it is nested, as
        ``numpy.block`` takes it.

        Parameters
        ----------
        results : sequence of (ndarray of int64, future)
            For each partition the positions of its blocks, and a future of the new
            blocks in that order. Together the positions cover all blocks.
        made : ResultBlocks
            Metadata of the new blocks.
        """
        blocks: list[Any] = [None] * made.grid.nblocks
        for positions, future in results:
            result = future.result()
            new = result if made.output is None else result[made.output]
            for position, block in zip(positions.tolist(), new, strict=True):
                blocks[position] = block
        return nested(blocks, made.grid.shape)

    def blocking_call_allowed(self) -> bool:
        """Return whether this thread may wait for the engine; not where its event loop waits."""
        return True

    @property
    def is_closed(self) -> bool:
        """Whether the client that runs the tasks was closed; a local check, no request."""
        return False

    def check_own(self, executor: Executor) -> None:
        """Raise `InvalidArgumentError` unless a partition's executor is this one."""
        if executor is not self:
            raise InvalidArgumentError(
                "the partition belongs to another client or backend than the task; pass a future "
                "of its result instead"
            )


def stays_at_location(fn: FunctionT) -> FunctionT:
    """Mark a task function whose tasks wait for each other; usable as a decorator.

    A task is restarted elsewhere if most of its blocks have moved there. One that waits for others
    may find its thread occupied by one of these then; so marked ones read the blocks from there.
    """
    fn.__dict__["spliter_stays"] = True
    return fn


def may_move(fn: Callable[..., Any]) -> bool:
    """Return whether tasks of a function may be restarted at another location."""
    return not getattr(fn, "spliter_stays", False)


def futures_in(argument: Any, kind: type) -> Iterator[Any]:
    """Yield the futures in an argument of a task, by the type of the engine's futures.

    The argument itself, or those directly inside a list, tuple or dict.
    """
    if isinstance(argument, kind):
        yield argument
    elif type(argument) in {list, tuple}:
        yield from (value for value in argument if isinstance(value, kind))
    elif type(argument) is dict:
        yield from (value for value in argument.values() if isinstance(value, kind))


def with_results(argument: Any, kind: type[Any]) -> Any:
    """Replace the futures that :func:`futures_in` finds by their ``result()``; waits for them.

    An argument without any is returned itself.

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


def call_with_results(
    kind: type[Any], fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function; futures among its arguments arrive by :func:`with_results`."""
    given = [with_results(value, kind) for value in args]
    return fn(*given, **{name: with_results(value, kind) for name, value in kwargs.items()})
