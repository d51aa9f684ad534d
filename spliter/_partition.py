"""``Partition``: a picklable reference to blocks at one location, with their indexes.

It pickles to a few bytes per block and never carries data. A partition returned by ``split`` has
an executor and can be submitted; at its location it has none and can be iterated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spliter._checks import check_keywords, check_process, check_task_function, owner_of
from spliter._errors import InvalidArgumentError
from spliter._format import plural
from spliter._hints import ITEMS, missing_attribute
from spliter._planning.grid import BlockGrid, BlockIndexes, IntArray
from spliter._planning.planner import Location, PlannedPartition
from spliter._planning.reuse import Materialization
from spliter._reading.local_blocks import LocalBlocks
from spliter._reading.source import BlockSource
from spliter.backend.executor import Executor
from spliter.backend.registry import options_of_tasks
from spliter.html import partition_html

NOT_MATERIALIZED = Materialization(None, "not requested")


class Partition(LocalBlocks):
    """Blocks at one location, and their indexes.

    Created by :func:`spliter.split`, not by its constructor.

    Notes
    -----
    ``len(partition)`` is its number of blocks. Iteration yields the blocks in collection
    order, and works only at the partition's location: inside a function started with
    :func:`spliter.task`, :meth:`submit` or :meth:`Split.map`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> blocks = [np.arange(3), np.arange(3, 5)]
    >>> (partition,) = split(blocks, partitions_per_location=1)
    >>> len(partition), partition.nbytes, partition.shape
    (2, 40, (5,))
    >>> partition.submit(lambda part: sum(block.sum() for block in part)).result()
    np.int64(10)
    """

    __slots__ = (
        "__weakref__",
        "_executor",
        "_owner",
        "_passes",
        "holders",
        "location_number",
        "materialization",
    )

    location_number: int
    """Index of its location in :attr:`Split.locations`; 0 at the location itself."""

    holders: tuple[Location, ...]
    """Locations at any of which its tasks may run, with ``split(..., steal=True)``; empty if they
    run at :attr:`location` alone, and at the location itself."""

    materialization: Materialization
    """Whether its tasks iterate over one concatenated block; set by the Split."""

    def __init__(
        self,
        location: Location,
        indexes: BlockIndexes,
        nbytes: IntArray,
        source: BlockSource,
        executor: Executor | None = None,
        resolve_items: weakref.WeakMethod[Callable[[], BlockGrid]] | None = None,
        materialize: bool = False,
        token: str = "",
    ) -> None:
        super().__init__(location, indexes, nbytes, source, resolve_items, materialize, token)
        self.location_number = 0
        self.holders = ()
        self.materialization = NOT_MATERIALIZED
        self._executor = executor
        self._passes = 0
        self._owner = None if executor is None else owner_of(executor)

    @classmethod
    def from_plan(
        cls,
        planned: PlannedPartition,
        grid: BlockGrid,
        source: BlockSource,
        executor: Executor,
        resolve_items: weakref.WeakMethod[Callable[[], BlockGrid]],
        token: str,
    ) -> Partition:
        """Create a partition of the Split with a token from its plan."""
        indexes = BlockIndexes.of(grid, planned.positions)
        where, nbytes = planned.location, planned.nbytes
        made = cls(where, indexes, nbytes, source, executor, resolve_items, token=token)
        made.holders = planned.holders
        return made

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run ``fn(partition, *args, **kwargs)`` at the partition's location, or a holder of it.

        Parameters
        ----------
        fn : callable
            Gets this partition, which it can iterate, as its first argument.
        *args, **kwargs
            Further arguments; futures of the same engine arrive as their results.

        Returns
        -------
        future
            The engine's own future (``distributed.Future``, ``concurrent.futures.Future``).

        Raises
        ------
        InvalidArgumentError
            If `fn` is not callable or is a coroutine function, or if a keyword that `fn` does
            not accept is an option of Dask's ``submit``.
        TaskNotSerializableError
            If `fn` or an argument cannot be sent there.
        SplitClosedError
            If the Split was closed.
        """
        self._check_open()
        check_task_function(fn)
        if self._executor is None:
            return fn(self, *args, **kwargs)
        check_keywords(fn, kwargs, options_of_tasks())
        return self._submit_call(fn, (self, *args), kwargs)

    def _submit_call(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Submit a call for this partition: at any holder, unless there are other partitions."""
        executor = self._executor
        assert executor is not None
        alone = sum(isinstance(value, Partition) for value in (*args, *kwargs.values())) == 1
        if alone and self.holders:
            return executor.submit_among(fn, args, kwargs, self.holders)
        return executor.submit(fn, args, kwargs, location=self.location)

    def begin_pass(self) -> bool:
        """Count a task on this partition; return whether it iterates over one concatenated block.

        For backends: an executor calls it once for each partition among a task's arguments.

        Returns
        -------
        bool
            Argument `materialize` of :meth:`at_location`.
        """
        self._passes += 1
        return self.materialization.applies_to(self._passes)

    def at_location(
        self, source: BlockSource | None = None, *, materialize: bool | None = None
    ) -> Partition:
        """Return this partition in the form for its location: iterable, not submittable.

        For backends: an executor passes this to the function it runs.

        Parameters
        ----------
        source : BlockSource, optional
            Another source of the same blocks.
        materialize : bool, optional
            Whether iteration yields one block; unchanged by default.

        Returns
        -------
        Partition
            The same blocks, without executor.
        """
        return Partition(
            self.location,
            self._indexes,
            self._nbytes,
            source or self._source,
            materialize=self._materializes if materialize is None else materialize,
            token=self.token,
        )

    def _check_open(self) -> None:
        super()._check_open()
        check_process(self._owner, "Split")

    @property
    def executor(self) -> Executor | None:
        """The executor that runs its tasks; ``None`` at its location."""
        return self._executor

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reference, without the executor."""
        reference = (self.location, self._indexes, self._nbytes, self._source)
        return Partition, (*reference, None, None, self._materializes, self.token)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> IntArray:
        """Reject conversion to an array, which would silently copy all blocks.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        raise InvalidArgumentError(
            f"{self!r} is not an array, but refers to blocks at its location; iterate over it, or "
            "call its materialize(), inside a task"
        )

    def __dask_tokenize__(self) -> tuple[str, str, bytes]:
        """Return what identifies the partition, for Dask's own functions."""
        return "spliter.Partition", self.token, self._indexes.positions.tobytes()

    if not TYPE_CHECKING:  # so that type checkers reject unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, with a hint for names of blocks."""
            raise missing_attribute(self, name)

        def __getitem__(self, index: Any) -> Any:
            """Raise `TypeError`, with a hint."""
            raise TypeError(f"'Partition' object is not subscriptable; {ITEMS}")

    def __sizeof__(self) -> int:
        """Return the approximate memory of the references, not of the blocks."""
        return 500 + 200 * len(self)

    def __repr__(self) -> str:
        """Return location, number of blocks and size."""
        return f"<Partition {self.location}: {plural(len(self), 'block')}, {self.nbytes} bytes>"

    def _repr_html_(self) -> str:
        return partition_html(self)
