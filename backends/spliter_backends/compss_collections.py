"""Collections of blocks that are results of PyCOMPSs tasks, which know where they were made."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from spliter import BlockGrid, BlocksMade, InvalidArgumentError
from spliter._grid import UNKNOWN, IntArray
from spliter_backends import _compss_tasks as tasks
from spliter_backends._compss_api import runtime_is_up
from spliter_backends._compss_blocks import known_facts, promise
from spliter_backends._compss_future import CompssFuture
from spliter_backends._compss_settings import settings
from spliter_backends.compss_executor import EXECUTOR


class CompssCollection(Sequence[Any]):
    """Blocks along one or several axes, each a PyCOMPSs future.

    A sequence of the futures, which PyCOMPSs tasks take as arguments. Where there is no runtime,
    it is one of the blocks themselves.

    Parameters
    ----------
    blocks : sequence of future
        In C order of the grid.
    grid : BlockGrid
        Their arrangement.
    """

    def __init__(self, blocks: Sequence[Any], grid: BlockGrid) -> None:
        if len(blocks) != grid.nblocks:
            raise InvalidArgumentError(f"{len(blocks)} blocks for a grid of {grid.shape}")
        self._blocks = tuple(blocks)
        self._grid = grid

    @property
    def grid(self) -> BlockGrid:
        """Arrangement of the blocks."""
        return self._grid

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._blocks)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return one block, or some."""
        return self._blocks[index]

    def __repr__(self) -> str:
        """Return the arrangement of the blocks."""
        return f"<CompssCollection: {self._grid.shape} blocks>"

    def gather(self) -> list[Any]:
        """Wait for the blocks and return them.

        Returns
        -------
        list of block
            In C order of the grid.

        Raises
        ------
        BaseException
            What making one of them has raised.
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
            It does not delete the blocks when it goes.

        Raises
        ------
        InvalidArgumentError
            If the grid has not two axes, or blocks between the first and the last differ in size.
        """
        from dislib.data.array import Array

        chunks = [self._row_counts(), *self._grid.chunks[1:]]
        if len(chunks) != 2 or any(UNKNOWN in sizes for sizes in chunks):
            raise InvalidArgumentError(
                f"a ds-array has two axes of known sizes; this has a grid of {self._grid.shape}"
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
        facts = [known_facts(block) for block in self._blocks]
        return tuple(UNKNOWN if fact is None else fact.rows for fact in facts)


def _regular_size(sizes: Sequence[int]) -> int:
    """Return the size of all blocks but the first and the last, which may be smaller."""
    inner = set(sizes[1:-1]) or {max(sizes)}
    if len(inner) > 1 or max(sizes) > max(inner):
        raise InvalidArgumentError(
            f"a ds-array has blocks of one size, but for a smaller first and last one; got {sizes}"
        )
    return inner.pop()


def make_blocks(
    fn: Callable[..., Any],
    arguments: Iterable[Sequence[Any]],
    *,
    chunks: Sequence[Sequence[int]] | None = None,
    nodes: Sequence[str] | None = None,
) -> CompssCollection:
    """Make blocks by tasks that say where they run, so that splitting has nobody to ask.

    Parameters
    ----------
    fn : callable
        Returns a block: reads a file, say.
    arguments : iterable of sequence
        The arguments of `fn` for each block; futures arrive as results.
    chunks : sequence of sequence of int, optional
        Sizes of the blocks along each axis, if they are known; else the collection has one axis.
    nodes : sequence of str, optional
        Where to make each block. The setting ``pins`` must have the nodes.

    Returns
    -------
    CompssCollection
        For ``split``; a sequence of PyCOMPSs futures.

    Raises
    ------
    InvalidArgumentError
        If `nodes` has others than those in ``pins``, or not as many as there are blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> blocks = make_blocks(np.arange, [(0, 3), (3, 5)])
    >>> [int(future.result()) for future in split(blocks).map(lambda part: sum(map(np.sum, part)))]
    [10]
    """
    calls = [tuple(given) for given in arguments]
    pins = settings().pins
    if nodes is not None and (len(nodes) != len(calls) or not set(nodes) <= pins.keys()):
        raise InvalidArgumentError(
            f"nodes must name one of {sorted(pins)} (the setting pins) for each of the "
            f"{len(calls)} blocks, got {list(nodes)}"
        )
    blocks = []
    for number, given in enumerate(calls):
        constraints = {} if nodes is None else {"app_software": pins[nodes[number]]}
        block, facts = EXECUTOR.start("make", fn, given, {}, constraints)
        if runtime_is_up():
            promise(block, facts)
        else:
            facts.result()  # raises what making it has raised
        blocks.append(block)
    unknown = BlockGrid.of_unknown_sizes(len(blocks))
    grid = unknown if chunks is None else BlockGrid.from_chunks(chunks)
    return CompssCollection(blocks, grid)


def assembled(results: Sequence[tuple[IntArray, Any]], made: BlocksMade) -> CompssCollection:
    """Return the blocks that tasks have made as a collection (for the executor).

    Parameters
    ----------
    results : sequence of (ndarray of int64, future)
        Positions of blocks, and the future of the new ones.
    made : BlocksMade
        What they are.

    Returns
    -------
    CompssCollection
        One task per result takes it apart, where it is.
    """
    blocks: list[Any] = [None] * len(made.rows)
    for positions, future in results:
        places = positions.tolist()
        if runtime_is_up():
            *pieces, facts = tasks.spread(
                uuid.uuid4().hex,
                made.output,
                len(places),
                [future],
                returns=[CompssFuture] * (len(places) + 1),
            )
            for which, piece in enumerate(pieces):
                promise(piece, facts, which)
        else:
            value = future.result()
            pieces = value if made.output is None else value[made.output]
        for place, piece in zip(places, pieces, strict=True):
            blocks[place] = piece
    return CompssCollection(blocks, BlockGrid((made.rows, *((n,) for n in made.trailing_shape))))


__all__ = ["CompssCollection", "make_blocks"]
