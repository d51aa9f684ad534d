"""Collection of blocks that are results of PyCOMPSs tasks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, overload

from spliter import BlockGrid, InvalidArgumentError
from spliter.backend import UNKNOWN, IntArray, ResultBlocks
from spliter_backends.compss import tasks
from spliter_backends.compss.api import runtime_is_up
from spliter_backends.compss.blocks import known_metadata, register_metadata
from spliter_backends.compss.future import CompssFuture


class CompssCollection(Sequence[Any]):
    """Blocks along one or several axes, each a PyCOMPSs future.

    A sequence of the futures, which PyCOMPSs tasks accept as arguments. Without a runtime it
    contains the blocks themselves.

    Parameters
    ----------
    blocks : sequence of future
        In C order of the grid.
    grid : BlockGrid
    """

    def __init__(self, blocks: Sequence[Any], grid: BlockGrid) -> None:
        if len(blocks) != grid.nblocks:
            raise InvalidArgumentError(
                f"got {len(blocks)} blocks for a grid of {grid.shape}; pass one per cell"
            )
        self._blocks = tuple(blocks)
        self._grid = grid

    @property
    def grid(self) -> BlockGrid:
        """The block grid."""
        return self._grid

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of the blocks along each axis, as in Dask; -1 for unknown sizes."""
        return self._grid.chunks

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Size along each axis; None if unknown."""
        return self._grid.extent

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._blocks)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return one block, or a slice of them."""
        return self._blocks[index]

    def __repr__(self) -> str:
        """Return the shape of the block grid."""
        return f"<CompssCollection: {self._grid.shape} blocks>"

    def gather(self) -> list[Any]:
        """Wait for the blocks and return them, in C order of the grid.

        Raises
        ------
        BaseException
            The error of a task that makes a block.
        """
        return [b.result() if isinstance(b, CompssFuture) else b for b in self._blocks]

    def dsarray(self, sparse: bool = False) -> Any:
        """Return the same blocks as a dislib ds-array; waits until they are made.

        Parameters
        ----------
        sparse : bool
            Whether the blocks are sparse matrices.

        Returns
        -------
        dislib.data.array.Array
            It does not delete the blocks when it is freed.

        Raises
        ------
        InvalidArgumentError
            If the grid has not two axes, or blocks between the first and the last differ in size.
        """
        from dislib.data.array import Array

        chunks = [self._row_counts(), *self._grid.chunks[1:]]
        if len(chunks) != 2 or any(UNKNOWN in sizes for sizes in chunks):
            raise InvalidArgumentError(
                f"a ds-array needs two axes of known sizes; this grid is {self._grid.shape}"
            )
        across = self._grid.shape[1]
        rows = [list(self._blocks[at : at + across]) for at in range(0, len(self), across)]
        first = tuple(sizes[0] for sizes in chunks)
        regular = tuple(map(_regular_size, chunks))
        shape = tuple(map(sum, chunks))
        return Array(rows, first, regular, shape, sparse, delete=False)

    def _row_counts(self) -> tuple[int, ...]:
        if self._grid.has_known_items:
            return self._grid.chunks[0]
        metadata = [known_metadata(block) for block in self._blocks]
        return tuple(UNKNOWN if fact is None else fact.rows for fact in metadata)


def _regular_size(sizes: Sequence[int]) -> int:
    """Return the size of all blocks but the first and the last, which may be smaller."""
    inner = set(sizes[1:-1]) or {max(sizes)}
    if len(inner) > 1 or max(sizes) > max(inner):
        raise InvalidArgumentError(
            f"a ds-array needs blocks of one size, except the first and the last; got {sizes}"
        )
    return inner.pop()


def assemble_blocks(
    results: Sequence[tuple[IntArray, Any]], made: ResultBlocks
) -> CompssCollection:
    """Return blocks made by tasks as a collection; one task per result separates its blocks."""
    blocks: list[Any] = [None] * made.grid.nblocks
    for positions, future in results:
        places = positions.tolist()
        if runtime_is_up():
            *parts, metadata = tasks.start(
                "separate",
                {},
                uuid.uuid4().hex,
                made.output,
                len(places),
                [future],
                returns=[CompssFuture] * (len(places) + 1),
            )
            for which, part in enumerate(parts):
                register_metadata(part, metadata, which)
        else:
            value = future.result()
            parts = value if made.output is None else value[made.output]
        for place, part in zip(places, parts, strict=True):
            blocks[place] = part
    return CompssCollection(blocks, made.grid)
