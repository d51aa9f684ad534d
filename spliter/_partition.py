"""``Partition``: a picklable reference to blocks at one location, with their indexes.

It has two parts: `_blocks`, which read the blocks and travel (a few bytes each, never data), and
`_dispatch`, which starts tasks and stays in the program. At the location there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spliter._checks import check_keywords, check_task_function
from spliter._dispatch import Dispatch
from spliter._errors import InvalidArgumentError
from spliter._format import plural
from spliter._hints import ITEMS, missing_attribute
from spliter._planning.grid import BlockIndexes, IntArray
from spliter._planning.planner import Location
from spliter._reading.batches import BatchNbytes
from spliter._reading.lookup import Keys, Lookup, Missing, RecordSource
from spliter._reading.pace import Prefetch
from spliter._reading.partition_blocks import PartitionBlocks
from spliter._reading.source import BlockSource
from spliter.backend.executor import Executor
from spliter.backend.registry import options_of_tasks
from spliter.html import partition_html


class Partition:
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

    __slots__ = ("__weakref__", "_blocks", "_dispatch")

    def __init__(self, blocks: PartitionBlocks, dispatch: Dispatch | None = None) -> None:
        self._blocks = blocks
        self._dispatch = dispatch

    @property
    def location(self) -> Location:
        """Where the blocks were when the Split was planned."""
        return self._blocks.location

    @property
    def indexes(self) -> BlockIndexes:
        """Indexes of its blocks and items, as arrays (for backends)."""
        return self._blocks.indexes

    @property
    def token(self) -> str:
        """Identifies its Split in what is measured (for backends)."""
        return self._blocks.token

    @property
    def source(self) -> BlockSource:
        """The source of its blocks at the location (for backends)."""
        return self._blocks.source

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._blocks.nbytes)

    @property
    def nbytes(self) -> int:
        """Total bytes of its blocks (of the first collection), as far as known."""
        return int(self._blocks.nbytes.sum())

    @property
    def block_nbytes(self) -> IntArray:
        """Bytes of each block (of the first collection); shape (len(self),)."""
        return self._blocks.nbytes

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Shape of its blocks concatenated along axis 0.

        ``None`` along an axis of unknown size, or along which the collection has several blocks.
        """
        return self.indexes.shape

    def get_indexes(self) -> list[tuple[int, ...]]:
        """Return the block index of every block, in iteration order.

        Returns
        -------
        list of tuple of int
            Coordinates in the collection's block grid, one tuple per block.
        """
        return self.indexes.blocks()

    def get_item_indexes(self) -> IntArray:
        """Return the global index of every item (row), in iteration order.

        If block sizes are unknown (NaN chunks, DataFrames), the first call on the client
        counts the rows, with one task per partition for the whole Split. At the location this
        works only if the rows were counted before the task was submitted.

        Returns
        -------
        ndarray of int64, shape (n_items,)
            Row numbers in the whole collection. In a grid with several columns of blocks, the
            rows of each block appear separately.

        Raises
        ------
        UnknownItemIndexError
            If the sizes are unknown and cannot be counted: at the location, after the Split was
            deleted, or on the engine's event loop.
        """
        if self.indexes.item_counts is None and self._dispatch is not None:
            self._blocks.number_items(self._dispatch.count_rows())
        return self.indexes.rows()

    def _opened(self) -> PartitionBlocks:
        """Return the blocks; raise if the Split was closed, or belongs to another process."""
        self._blocks.check_open()
        if self._dispatch is not None:
            self._dispatch.check_process()
        return self._blocks

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks in collection order; only at their location.

        A partition of a materializing Split yields one block with all rows.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the partition's location.
        """
        return self._opened().iterate()

    def items(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield ``(block index, block)`` pairs; only at the blocks' location.

        Yields the original blocks even if the partition is materialized.

        Yields
        ------
        tuple of (tuple of int, block)
            The block's position in the collection's block grid, and the block.
        """
        blocks = self._opened()
        return zip(self.get_indexes(), blocks.measured(blocks.read()), strict=True)

    def materialize(
        self, columns: Sequence[Hashable] | None = None, as_columns: bool = False
    ) -> Any:
        """Return all blocks concatenated along axis 0; only at their location, no transfers.

        The first call copies the blocks. The copy is kept at the location until the Split is
        closed or garbage-collected; the engine accounts for its memory (as much again as the
        blocks) and may spill it. Do not change it in place: all tasks share it.

        With `columns` or `as_columns` each call makes a copy that belongs to the caller. Each
        block is copied straight to its place in it; of sparse matrices the columns of all blocks
        are held as well.

        Parameters
        ----------
        columns : sequence, optional
            Columns to copy, in this order: numbers for arrays and sparse matrices, names of fields
            for structured arrays, labels for DataFrames and tables. All columns by default. Aligned
            blocks, after the first one, keep all theirs.
        as_columns : bool, default False
            Whether to return each column in contiguous memory: a dict of arrays for structured
            arrays and DataFrames, an array in Fortran order for others.

        Returns
        -------
        block, or tuple of block
            A tuple if collections are aligned. Arrays, masked arrays, sparse matrices, data
            frames, tables and lists keep their type. The block of a partition with a single block
            is returned without a copy.

        Raises
        ------
        PartitionNotLocalError
            If this process is not the partition's location.
        InvalidArgumentError
            If the blocks form several columns, or their kind cannot be concatenated; if a column
            is unknown or repeated, or arrays of different dtypes are to be copied by columns.
        NotEnoughMemoryError
            If the location has too little memory for the concatenated block.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> (partition,) = split([np.arange(3), np.arange(2)], partitions_per_location=1)
        >>> partition.submit(lambda part: part.materialize()).result()
        array([0, 1, 2, 0, 1])
        >>> (table,) = split([np.ones((2, 3)), np.zeros((1, 3))], partitions_per_location=1)
        >>> table.submit(lambda part: part.materialize(columns=[2])).result().T
        array([[1., 1., 0.]])
        """
        return self._opened().materialize(columns, as_columns)

    def batches(
        self, nbytes: BatchNbytes = "auto", columns: Sequence[Hashable] | None = None
    ) -> Iterator[Any]:
        """Yield all rows in batches that fit the processor's cache; only at their location.

        For loops of several array functions. Large blocks are cut into views; small ones are copied
        into one buffer, which each batch uses again. So a batch is valid until the next one is
        requested: copy what has to last, and do not change it in place, as it may be a block.

        Parameters
        ----------
        nbytes : "auto" or int
            Maximum bytes of a batch, of all aligned collections together, if a row is not larger;
            by default those of the level-2 cache of a core, up to 1 MiB.
        columns : sequence, optional
            As for :meth:`materialize`; the columns are copied into the buffer.

        Yields
        ------
        block, or tuple of block
            One or more consecutive rows, in the order of the partition, of any number of blocks of
            one kind.

        Raises
        ------
        InvalidArgumentError
            If `nbytes` is not positive, a column is unknown or repeated, or the blocks form several
            columns.
        PartitionNotLocalError
            If this process is not the partition's location.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> blocks = [np.full(3, at) for at in range(1000)]
        >>> (partition,) = split(blocks, partitions_per_location=1)
        >>> partition.submit(lambda part: [len(x) for x in part.batches(nbytes=8000)]).result()
        [999, 999, 999, 3]
        """
        return self._opened().batches(nbytes, columns)

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
        return self._blocks.cut(values)

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
            A key-value store, a table, a service: see :class:`spliter.backend.RecordSource`.
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
        """
        return self._opened().lookup(Lookup(source, keys, missing), prefetch)

    @property
    def executor(self) -> Executor | None:
        """The executor that runs its tasks; ``None`` at its location."""
        return None if self._dispatch is None else self._dispatch.executor

    @property
    def holders(self) -> tuple[Location, ...]:
        """Locations at any of which its tasks may run, with ``split(..., steal=True)``.

        Empty if they run at :attr:`location` alone, and at the location itself.
        """
        return () if self._dispatch is None else self._dispatch.holders

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
        self._opened()
        check_task_function(fn)
        if self._dispatch is None:
            return fn(self, *args, **kwargs)
        check_keywords(fn, kwargs, options_of_tasks())
        is_alone = not any(isinstance(value, Partition) for value in (*args, *kwargs.values()))
        return self._dispatch.submit(fn, (self, *args), kwargs, is_alone)

    def begin_pass(self) -> bool:
        """Count a task on this partition; return whether it iterates over one concatenated block.

        For backends: an executor calls this or :meth:`at_location` once for each partition among a
        task's arguments.
        """
        return self._dispatch is not None and self._dispatch.begin_pass()

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
            Whether iteration yields one block; as :meth:`begin_pass` says by default.
        """
        if materialize is None and self._dispatch is not None:
            materialize = self.begin_pass()
        return Partition(self._blocks.at_location(source, materialize))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reference, without what the program keeps."""
        return _from_reference, self._blocks.reference()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> IntArray:
        """Reject conversion to an array, which would silently copy all blocks."""
        raise InvalidArgumentError(
            f"{self!r} is not an array, but refers to blocks at its location; iterate over it, or "
            "call its materialize(), inside a task"
        )

    def __dask_tokenize__(self) -> tuple[str, str, bytes]:
        """Return what identifies the partition, for Dask's own functions."""
        return "spliter.Partition", self.token, self.indexes.positions.tobytes()

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
        number = 0 if self._dispatch is None else self._dispatch.location_number
        return partition_html(self._blocks, number)


def _from_reference(*reference: Any) -> Partition:
    """Unpickle a partition."""
    return Partition(PartitionBlocks(*reference))
