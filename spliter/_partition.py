"""``Partition``: a picklable reference to blocks at one location, with their indexes.

It pickles to a few bytes per block and never carries data. A partition returned by ``split`` has
an executor and can be submitted; at its location it has none and can be iterated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError, SplitClosedError
from spliter._format import plural
from spliter._grid import BlockGrid, BlockIndexes, IntArray
from spliter._indexed_blocks import IndexedBlocks
from spliter._lookup import Keys, Lookup, LookupAhead, Missing, RecordSource
from spliter._materialize import Materialization
from spliter._pace import FOLLOWING, Pace, Prefetch
from spliter._planner import Location, PlannedPartition
from spliter._read_ahead import ReadAhead
from spliter._task_checks import check_keywords, check_task_function
from spliter.backend.bases import read_ahead
from spliter.backend.contents import count_rows, cut_rows
from spliter.backend.protocols import BlockSource, Executor, SupportsSteal
from spliter.html import partition_html
from spliter.metrics._records import MeasuredBlocks

NOT_MATERIALIZED = Materialization(None, "not requested")


class Partition(IndexedBlocks):
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
        "_begun",
        "_closed",
        "_executor",
        "_materializes",
        "_passes",
        "_source",
        "holders",
        "location",
        "location_number",
        "materialization",
        "token",
    )

    location: Location
    """Where the blocks were when the Split was planned."""

    location_number: int
    """Index of its location in :attr:`Split.locations`; 0 at the location itself."""

    holders: tuple[Location, ...]
    """Locations at any of which its tasks may run, with ``split(..., steal=True)``; empty if they
    run at :attr:`location` alone, and at the location itself."""

    materialization: Materialization
    """Whether its tasks iterate over one concatenated block; set by the Split."""

    token: str
    """Identifies its Split in what is measured (for backends)."""

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
        super().__init__(indexes, nbytes, resolve_items)
        self.location = location
        self.location_number = 0
        self.holders = ()
        self.materialization = NOT_MATERIALIZED
        self._source = source
        self._executor = executor
        self._materializes = materialize
        self.token = token
        self._passes = 0
        self._begun: ReadAhead | None = None
        self._closed = False

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

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks in collection order; only at their location.

        A partition of a materializing Split yields one block with all rows.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the partition's location.
        """
        return self._measured(self._iterated())

    def _iterated(self) -> Iterator[Any]:
        self._check_open()
        return iter((self.materialize(),)) if self._materializes else self._blocks()

    def _blocks(self) -> Iterator[Any]:
        begun, self._begun = self._begun or self._read_ahead(), None
        return begun or self._source.read()

    def _read_ahead(self, pace: Pace | None = None) -> ReadAhead | None:
        return read_ahead(self._source, self.token, pace, FOLLOWING.get())

    def begin(self, pace: Pace, depth: int) -> int:
        """Read blocks before the iteration begins; return how many of `depth` need no more.

        For teams, at the location: the loop before this one has nothing left to read.
        """
        if self._materializes:
            return depth
        self._begun = self._begun or self._read_ahead(pace)
        return depth if self._begun is None else self._begun.begin(depth)

    def drop_begun(self) -> None:
        """Drop what :meth:`begin` has read, if no loop has taken it."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None

    def _measured(self, blocks: Iterator[Any]) -> Iterator[Any]:
        return MeasuredBlocks(blocks, self.token, self._indexes.positions, self.nbytes)

    def materialize(self) -> Any:
        """Return all blocks concatenated along axis 0; only at their location, no transfers.

        The first call copies the blocks. The copy is kept at the location until the Split is
        closed or garbage-collected; the engine accounts for its memory (as much again as the
        blocks) and may spill it. Do not change it in place: all tasks share it.

        Returns
        -------
        block, or tuple of block
            A tuple if collections are aligned. Arrays, masked arrays, sparse matrices, data
            frames and lists keep their type. The block of a partition with a single block is
            returned without a copy.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the partition's location.
        InvalidArgumentError
            If the blocks form several columns, or their kind cannot be concatenated.
        NotEnoughMemoryError
            If the location has too little memory for the concatenated block.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> (partition,) = split([np.arange(3), np.arange(2)], partitions_per_location=1)
        >>> partition.submit(lambda part: part.materialize()).result()
        array([0, 1, 2, 0, 1])
        """
        self._check_open()
        self._indexes.check_whole_rows("materialized")
        return self._source.materialized()

    def cut(self, values: Any) -> list[Any]:
        """Split an array with one entry per row into one part per block.

        Parameters
        ----------
        values : ndarray, sparse matrix or list, of length n_items
            One entry per row of the partition, in the order of iteration.

        Returns
        -------
        list of the same type
            The entries of each block's rows; views, if `values` is an array.

        Raises
        ------
        InvalidArgumentError
            If the number of entries is not the number of rows, or the blocks form several columns.
        PartitionNotLocalError
            If the sizes of the blocks are unknown and this process is not their location.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> (partition,) = split([np.ones(3), np.ones(1)], partitions_per_location=1)
        >>> partition.cut(np.arange(4))
        [array([0, 1, 2]), array([3])]
        """
        self._indexes.check_whole_rows("cut by its rows")
        counts = self._indexes.item_counts
        if counts is None:
            counts = np.fromiter(map(count_rows, self._blocks()), np.int64, len(self))
        return cut_rows(values, counts)

    def items(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield ``(block index, block)`` pairs; only at the blocks' location.

        Yields the original blocks even if the partition is materialized.

        Yields
        ------
        tuple of (tuple of int, block)
            The block's position in the collection's block grid, and the block.
        """
        self._check_open()
        return zip(self.get_indexes(), self._measured(self._blocks()), strict=True)

    def lookup(
        self,
        source: RecordSource,
        keys: Keys,
        prefetch: Prefetch = "auto",
        missing: Missing = None,
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Yield each block with the records that it names; only at the blocks' location.

        While the program works on a block, threads fetch the records of the following ones.

        Parameters
        ----------
        source : RecordSource
            A key-value store, a table, a service: see :mod:`spliter_backends.records`.
        keys : callable
            Called with each block, in order; returns an array or list of keys that can be hashed.
        prefetch : "auto", False or int
            For how many blocks to fetch records ahead: decided from measured times; none; or so
            many. The blocks are held meanwhile, up to 64 MiB at a location.
        missing : None or "raise"
            Whether a key without a record is a ``KeyError``.

        Yields
        ------
        tuple of (block, list)
            As by iteration, and for each key its record, or None. Each key of a block is requested
            once, in batches of at most ``source.max_batch``.

        Raises
        ------
        InvalidArgumentError
            If an argument cannot be used.
        PartitionNotLocalError
            If this process is not the partition's location.
        RecordSourceError
            If the source does not answer; raised, like any error, at the turn of the block.

        Examples
        --------
        See :class:`spliter.backend.RecordSource`.
        """
        lookup = Lookup(source, keys, missing)
        blocks = self._iterated()
        nbytes = [self.nbytes] if self._materializes else self._nbytes.tolist()
        return self._measured(
            LookupAhead(blocks, lookup, nbytes, prefetch, self.location, self.token)
        )

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
        check_keywords(fn, kwargs)
        return self._submit_call(fn, (self, *args), kwargs)

    def _submit_call(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Submit a call for this partition: at any holder, unless there are other partitions."""
        executor = self._executor
        assert executor is not None
        alone = sum(isinstance(value, Partition) for value in (*args, *kwargs.values())) == 1
        if alone and self.holders and isinstance(executor, SupportsSteal):
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

    @property
    def executor(self) -> Executor | None:
        """The executor that runs its tasks; ``None`` at its location."""
        return self._executor

    @property
    def source(self) -> BlockSource:
        """The source of its blocks at the location (for backends)."""
        return self._source

    def close(self) -> None:
        """Make further use an error; called when the Split is closed."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise SplitClosedError("the Split of this partition was closed; split again")

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

    def __sizeof__(self) -> int:
        """Return the approximate memory of the references, not of the blocks."""
        return 500 + 200 * len(self)

    def __repr__(self) -> str:
        """Return location, number of blocks and size."""
        return f"<Partition {self.location}: {plural(len(self), 'block')}, {self.nbytes} bytes>"

    def _repr_html_(self) -> str:
        return partition_html(self)
