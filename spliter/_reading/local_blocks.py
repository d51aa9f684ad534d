"""Read the blocks of a partition at their location: as they are, concatenated, or with records."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from spliter._errors import SplitClosedError
from spliter._planning.grid import BlockGrid, BlockIndexes, IntArray
from spliter._planning.planner import Location
from spliter._reading.batches import BatchNbytes, batches
from spliter._reading.column_copy import copy_columns
from spliter._reading.columns import check_columns
from spliter._reading.indexed_blocks import IndexedBlocks
from spliter._reading.kinds import unwrap_dataset, wrap_datasets
from spliter._reading.lookup import Keys, Lookup, LookupAhead, Missing, RecordSource
from spliter._reading.measured import MeasuredBlocks
from spliter._reading.pace import FOLLOWING, Pace, Prefetch
from spliter._reading.read_ahead import ReadAhead
from spliter._reading.rows import count_rows, cut_rows
from spliter._reading.source import BlockSource, read_ahead


class LocalBlocks(IndexedBlocks):
    """The part of a :class:`spliter.Partition` that reads its blocks."""

    __slots__ = ("_begun", "_closed", "_materializes", "_source", "location", "token")

    location: Location
    """Where the blocks were when the Split was planned."""

    token: str
    """Identifies its Split in what is measured (for backends)."""

    def __init__(
        self,
        location: Location,
        indexes: BlockIndexes,
        nbytes: IntArray,
        source: BlockSource,
        resolve_items: weakref.WeakMethod[Callable[[], BlockGrid]] | None,
        materialize: bool,
        token: str,
    ) -> None:
        super().__init__(indexes, nbytes, resolve_items)
        self.location = location
        self.token = token
        self._source = source
        self._materializes = materialize
        self._begun: ReadAhead | None = None
        self._closed = False

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
        self._check_open()
        self._indexes.check_whole_rows("materialized")
        if columns is None and not as_columns:
            return self._source.materialized()
        return copy_columns(
            self._blocks(), self._indexes.count_rows(), check_columns(columns), as_columns
        )

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
        self._check_open()
        self._indexes.check_whole_rows("cut into batches")
        dim = self._indexes.dim
        found = batches(wrap_datasets(self._iterated(), dim), nbytes, columns)
        return self._measured(found if dim is None else map(unwrap_dataset, found))

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
