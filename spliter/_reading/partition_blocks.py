"""The blocks of one partition: which they are, and how they are read at their location."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spliter._errors import SplitClosedError
from spliter._planning.grid import BlockGrid, BlockIndexes, IntArray
from spliter._planning.planner import Location
from spliter._reading.batches import BatchNbytes, batches
from spliter._reading.column_copy import copy_columns
from spliter._reading.columns import check_columns
from spliter._reading.kinds import unwrap_dataset, wrap_datasets
from spliter._reading.lookup import Lookup, LookupAhead
from spliter._reading.measured import MeasuredBlocks
from spliter._reading.pace import FOLLOWING, Pace, Prefetch
from spliter._reading.read_ahead import ReadAhead
from spliter._reading.rows import count_rows, cut_rows
from spliter._reading.source import BlockSource, read_ahead


@dataclass(eq=False, slots=True)
class PartitionBlocks:
    """What a :class:`spliter.Partition` takes along to its location.

    Parameters
    ----------
    location : Location
        Where the blocks were when the Split was planned.
    indexes : BlockIndexes
        Which blocks these are, and their rows.
    nbytes : ndarray of int64, shape (n,)
        Bytes of each block.
    source : BlockSource
        Reads them.
    token : str
        Identifies the Split in what is measured.
    materializes : bool
        Whether iteration yields one concatenated block.
    """

    location: Location
    indexes: BlockIndexes
    nbytes: IntArray
    source: BlockSource
    token: str = ""
    materializes: bool = False
    is_closed: bool = field(default=False, init=False)
    begun: ReadAhead | None = field(default=None, init=False)

    def at_location(self, source: BlockSource | None, materialize: bool | None) -> PartitionBlocks:
        """Return the same blocks, by another source or materialized, unless these are None."""
        return PartitionBlocks(
            self.location,
            self.indexes,
            self.nbytes,
            source or self.source,
            self.token,
            self.materializes if materialize is None else materialize,
        )

    def reference(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor, to pickle."""
        mine = self.location, self.indexes, self.nbytes, self.source
        return *mine, self.token, self.materializes

    def number_items(self, grid: BlockGrid) -> None:
        """Fill in the sizes of blocks, which have become known."""
        self.indexes = BlockIndexes.of(grid, self.indexes.positions)

    def check_open(self) -> None:
        """Raise `SplitClosedError` if the Split was closed."""
        if self.is_closed:
            raise SplitClosedError("the Split of this partition was closed; split again")

    def iterate(self) -> Iterator[Any]:
        """Yield the blocks, or all of them as one; measured."""
        return self.measured(self._iterated())

    def read(self) -> Iterator[Any]:
        """Yield the blocks; ahead of their turn, if the source offers it."""
        begun, self.begun = self.begun or self._read_ahead(), None
        return begun or self.source.read()

    def _iterated(self) -> Iterator[Any]:
        return iter((self.materialize(),)) if self.materializes else self.read()

    def _read_ahead(self, pace: Pace | None = None) -> ReadAhead | None:
        return read_ahead(self.source, self.token, pace, FOLLOWING.get())

    def begin(self, pace: Pace, depth: int) -> int:
        """Read blocks before the iteration begins; return how many of `depth` need no more.

        For teams: the loop before this one has nothing left to read.
        """
        if self.materializes:
            return depth
        self.begun = self.begun or self._read_ahead(pace)
        return depth if self.begun is None else self.begun.begin(depth)

    def drop_begun(self) -> None:
        """Drop what :meth:`begin` has read, if no loop has taken it."""
        if self.begun is not None:
            self.begun.close()
            self.begun = None

    def measured(self, blocks: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over these that measures the iteration."""
        nbytes = int(self.nbytes.sum())
        return MeasuredBlocks(blocks, self.token, self.indexes.positions, nbytes)

    def materialize(
        self, columns: Sequence[Hashable] | None = None, as_columns: bool = False
    ) -> Any:
        """As :meth:`spliter.Partition.materialize`."""
        self.indexes.check_whole_rows("materialized")
        if columns is None and not as_columns:
            return self.source.materialized()
        rows = self.indexes.count_rows()
        return copy_columns(self.read(), rows, check_columns(columns), as_columns)

    def batches(self, nbytes: BatchNbytes, columns: Sequence[Hashable] | None) -> Iterator[Any]:
        """As :meth:`spliter.Partition.batches`."""
        self.indexes.check_whole_rows("cut into batches")
        dim = self.indexes.dim
        found = batches(wrap_datasets(self._iterated(), dim), nbytes, columns)
        return self.measured(found if dim is None else map(unwrap_dataset, found))

    def cut(self, values: Any) -> list[Any]:
        """As :meth:`spliter.Partition.cut`."""
        self.indexes.check_whole_rows("cut by its rows")
        counts = self.indexes.item_counts
        if counts is None:
            counts = np.fromiter(map(count_rows, self.read()), np.int64, len(self.nbytes))
        return cut_rows(values, counts)

    def lookup(self, lookup: Lookup, prefetch: Prefetch) -> Iterator[tuple[Any, list[Any]]]:
        """As :meth:`spliter.Partition.lookup`."""
        nbytes = self.nbytes.tolist()
        if self.materializes:
            nbytes = [sum(nbytes)]
        blocks = self._iterated()
        return self.measured(
            LookupAhead(blocks, lookup, nbytes, prefetch, self.location, self.token)
        )
