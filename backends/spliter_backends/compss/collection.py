"""Collections of blocks that are results of PyCOMPSs tasks, which know where they were made."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, overload

from spliter import BlockGrid, BlocksMade, InvalidArgumentError
from spliter._grid import UNKNOWN, IntArray
from spliter_backends.compss import tasks
from spliter_backends.compss.api import runtime_is_up
from spliter_backends.compss.blocks import known_facts, promise
from spliter_backends.compss.executor import EXECUTOR
from spliter_backends.compss.future import CompssFuture
from spliter_backends.compss.settings import settings

IN_TURN: Final = "in turn"
"""In place of nodes: each block at the next one."""


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

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of the blocks along each axis, as Dask arrays have them; -1 where not known."""
        return self._grid.chunks

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Size along each axis; None where sizes of blocks are not known."""
        return self._grid.extent

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
    nodes: Sequence[str] | Literal["in turn"] | None = None,
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
    nodes : sequence of str, or "in turn", optional
        Where to make each block: at the nodes in turn, or at those named, which the setting
        ``pins`` must have. Without it, COMPSs decides.

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
    base = "make_in_turn" if nodes == IN_TURN else "make"
    blocks = []
    for given, constraints in zip(calls, _constraints(nodes, len(calls)), strict=True):
        block, facts = EXECUTOR.start(base, fn, given, {}, constraints)
        if runtime_is_up():
            promise(block, facts)
        else:
            facts.result()  # raises what making it has raised
        blocks.append(block)
    unknown = BlockGrid.of_unknown_sizes(len(blocks))
    grid = unknown if chunks is None else BlockGrid.from_chunks(chunks)
    return CompssCollection(blocks, grid)


def _constraints(nodes: Sequence[str] | None, count: int) -> Sequence[Mapping[str, str]]:
    """Return for each block the constraints of the task that makes it."""
    if nodes is None or nodes == IN_TURN:
        return [{}] * count
    pins = settings().pins
    if isinstance(nodes, str) or len(nodes) != count or not set(nodes) <= pins.keys():
        raise InvalidArgumentError(
            f"nodes must name one of {sorted(pins)} (the setting pins) for each of the {count} "
            f"blocks, or be {IN_TURN!r}; got {nodes!r}"
        )
    return [{"app_software": pins[node]} for node in nodes]


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
            *pieces, facts = tasks.start(
                "spread",
                {},
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
