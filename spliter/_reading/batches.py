"""Regroup blocks into batches that fit the processor's cache.

A chain of array functions reads its input once per call. Over a block of 100 MB each call goes
through memory; over blocks of ten rows each call costs more than its rows::

    blocks    |  9000 rows                | 10 | 10 | 10 | 10 | ...
    batches   | 3000   | 3000   | 3000    | 2990 rows, copied
              | views of the block        | one buffer, reused

"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from spliter._checks import check_count
from spliter._errors import InvalidArgumentError
from spliter._machine.cache import cache_nbytes
from spliter._planning.reuse import CALL_NBYTES
from spliter._reading.column_copy import Target, chosen_columns
from spliter._reading.column_names import column_names
from spliter._reading.columns import check_columns, select
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import is_sparse
from spliter._reading.rows import check_rows, count_rows, take_rows

BatchNbytes: TypeAlias = int | Literal["auto"]

MAX_AUTO_NBYTES: Final = 2**20
"""By default a batch has the size of the level-2 cache, up to this. With batches of 32, 128, 512,
1024 and 2048 KiB and a cache of 1 MiB, ``y = sqrt(x * x + 1); y -= x; y.sum()`` over 400,000 rows
of 5 columns in one block took 6.6, 4.8, 4.2, 4.2 and 4.1 ms (a loop over the block 9.6 ms), in
blocks of ten rows 14.3, 13.0, 12.2, 12.1 and 23.5 ms (106 ms): NumPy gets new pages for each
temporary of 2 MiB."""

UNKNOWN_ROW_NBYTES: Final = 100
"""Assumed size of items of a list."""


def batches(
    blocks: Iterable[Any],
    nbytes: BatchNbytes = "auto",
    columns: Sequence[Hashable] | None = None,
    rows: int | None = None,
) -> Iterator[Any]:
    """Yield the rows of any blocks in batches that fit the processor's cache.

    :meth:`spliter.Partition.batches` does this for the blocks of a partition. A batch is valid
    until the next one is requested.

    Parameters
    ----------
    blocks : iterable of block, or of tuple of block
        The blocks of a tuple have as many rows as each other. Blocks without rows are left out.
    nbytes, columns
        As for :meth:`spliter.Partition.batches`.
    rows : int, optional
        Maximum rows of a batch, for loops with temporaries of their own. These make many calls per
        batch, so that blocks of up to half as many rows are copied; by default only blocks that
        take no longer to copy than a few calls.

    Yields
    ------
    block, or tuple of block
        One or more consecutive rows, of blocks of one kind.

    Raises
    ------
    InvalidArgumentError
        If `nbytes` or `rows` is not positive, a column is unknown or repeated, or a block has no
        rows that can be counted.

    Examples
    --------
    >>> blocks = [np.full(rows, rows) for rows in (900, 2, 3)]
    >>> [(len(batch), int(batch[0])) for batch in batches(blocks, nbytes=4000)]
    [(450, 900), (450, 900), (5, 2)]
    """
    is_auto = isinstance(nbytes, str) and nbytes == "auto"
    limit: Any = min(cache_nbytes(), MAX_AUTO_NBYTES) if is_auto else nbytes
    check_count("nbytes", limit, instead='"auto" or ')
    if rows is not None:
        check_count("rows", rows)
    return _regrouped(blocks, limit, check_columns(columns), rows)


def _regrouped(
    blocks: Iterable[Any], nbytes: int, columns: list[Hashable] | None, most: int | None
) -> Iterator[Any]:
    iterator = iter(blocks)
    first = next((block for block in iterator if _height(block)), None)
    if first is None:
        return
    join = _Join(first, nbytes, columns, most)
    # Local names: with ten rows per block this loop takes as long as the copies.
    count, rows, small = join.count, join.rows, join.small
    pending: list[Any] = []
    filled = 0
    for block in itertools.chain((first,), iterator):
        try:
            height = count(block)
        except TypeError:
            height = _height(block)
        if height <= small:
            if filled + height > rows:
                yield from join.joined(pending, filled)
                pending, filled = [], 0
            if height:
                pending.append(block)
                filled += height
            continue
        if filled:
            yield from join.joined(pending, filled)
            pending, filled = [], 0
        yield from join.cut(block, height)
    if filled:
        yield from join.joined(pending, filled)


def _height(block: Any) -> int:
    """Return the rows of a block of any kind."""
    try:
        return count_rows(block)
    except (TypeError, IndexError):
        raise InvalidArgumentError(
            f"a block of type {type(block).__name__} has no rows; pass arrays, data frames, sparse "
            "matrices or lists, or tuples of these"
        ) from None


class _Join:
    """Joins small blocks and cuts large ones; knows both from the first block that has rows."""

    def __init__(
        self, first: Any, nbytes: int, columns: list[Hashable] | None, most: int | None
    ) -> None:
        self.limits = nbytes, columns, most
        self.kind = _kind(first)
        members, height = _members(first), count_rows(first)
        self.is_tuple = isinstance(first, tuple)
        # Sparse matrices refuse len(); for arrays it is much faster than count_rows().
        self.count: Callable[[Any], int] = len if type(first) is np.ndarray else _height
        row_nbytes = sum(_row_nbytes(member, height) for member in members) or 1
        self.rows = max(min(int(nbytes / row_nbytes), most or sys.maxsize), 1)
        # Copying a larger block takes longer than the calls that it saves.
        self.small = self.rows // 2
        if most is None:
            self.small = min(self.small, int(CALL_NBYTES / row_nbytes))
        self.members: list[_Buffer | _Copies] = [
            (_Buffer if type(member) is np.ndarray else _Copies)(
                member, self.rows, None if number else columns
            )
            for number, member in enumerate(members)
        ]

    def joined(self, blocks: list[Any], filled: int) -> Iterator[Any]:
        """Yield blocks as one batch, or as one for each run of blocks of one kind."""
        columns = zip(*blocks, strict=True) if self.is_tuple else (blocks,)
        try:
            parts = tuple(
                member.joined(list(of_member), filled)
                for member, of_member in zip(self.members, columns, strict=True)
            )
        except (TypeError, ValueError):
            for block in blocks:
                check_rows(_members(block), "a batch")
            if set(map(_kind, blocks)) == {self.kind}:
                raise
            for _, run in itertools.groupby(blocks, _kind):
                yield from _regrouped(run, *self.limits)
        else:
            yield parts if self.is_tuple else parts[0]

    def cut(self, block: Any, height: int) -> Iterator[Any]:
        """Yield a block in views of about equal size."""
        if _kind(block) != self.kind:
            yield from _regrouped([block], *self.limits)
        elif height <= self.rows and self.limits[1] is None:
            yield block
        else:
            check_rows(_members(block), "a batch")
            step = -(-height // -(-height // self.rows))
            for start in range(0, height, step):
                run = slice(start, start + step)
                parts = tuple(
                    member.cut(take_rows(one, run))
                    for member, one in zip(self.members, _members(block), strict=True)
                )
                yield parts if self.is_tuple else parts[0]


def _members(block: Any) -> tuple[Any, ...]:
    return block if isinstance(block, tuple) else (block,)


def _kind(block: Any) -> Any:
    """Return what blocks that are concatenated have in common."""
    if isinstance(block, tuple):
        return tuple(map(_kind, block))
    # Of the class: a data frame may have a column of that name.
    dtype = block.dtype if hasattr(type(block), "dtype") else None
    labels = None if isinstance(block, np.ndarray) else column_names(block)
    return type(block), dtype, getattr(block, "shape", ())[1:], labels and frozenset(labels)


def _row_nbytes(block: Any, height: int) -> float:
    """Return the bytes of a row of a block."""
    if isinstance(block, np.ndarray):
        return float(block.dtype.itemsize * math.prod(block.shape[1:]))
    if is_sparse(block):
        return float(block.data.nbytes) * 2 / height  # values and their indices
    if hasattr(block, "memory_usage"):
        return float(np.sum(block.memory_usage())) / height
    if hasattr(block, "nbytes"):
        return float(block.nbytes) / height
    return UNKNOWN_ROW_NBYTES


class _Buffer:
    """Plain arrays: small ones are copied into one buffer."""

    def __init__(self, first: Any, rows: int, columns: list[Hashable] | None) -> None:
        self.kind = _kind(first)
        self.columns = columns
        chosen = chosen_columns(first, columns, as_columns=False)
        self.target = Target(first.dtype, first.shape[1:], rows, chosen)

    def joined(self, blocks: Sequence[Any], filled: int) -> Any:
        """Copy blocks into the buffer; a `TypeError` or `ValueError` if their kinds differ."""
        buffer = self.target.result[:filled]
        if self.columns is None:
            if set(map(type, blocks)) != {np.ndarray}:
                raise TypeError("some blocks are not plain arrays")
            return np.concatenate(blocks, out=buffer, casting="no")
        start = 0
        for block in blocks:
            if _kind(block) != self.kind:
                raise TypeError("the kinds of blocks differ")
            self.target.copy(block, start)
            start += len(block)
        return buffer

    def cut(self, run: Any) -> Any:
        """Return rows of a block, or a copy of some of their columns."""
        if self.columns is None:
            return run
        self.target.copy(run, 0)
        return self.target.result[: len(run)]


class _Copies:
    """Blocks of other kinds: small ones are concatenated."""

    def __init__(self, first: Any, rows: int, columns: list[Hashable] | None) -> None:
        self.columns = columns

    def joined(self, blocks: Sequence[Any], filled: int) -> Any:
        """Concatenate blocks."""
        return select(concatenate(blocks), self.columns)

    def cut(self, run: Any) -> Any:
        """Return rows of a block, or some of their columns."""
        return select(run, self.columns)
