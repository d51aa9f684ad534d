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
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from spliter._cache import cache_nbytes
from spliter._column_copy import Target, chosen_columns
from spliter._columns import select
from spliter._errors import InvalidArgumentError
from spliter._materialize import CALL_NBYTES
from spliter.backend.contents import concatenate, count_rows, is_sparse, take_rows

BatchNbytes: TypeAlias = int | Literal["auto"]

MAX_AUTO_NBYTES: Final = 2**20
"""By default a batch has the size of the level-2 cache, up to this. With batches of 32, 128, 512,
1024 and 2048 KiB and a cache of 1 MiB, ``y = sqrt(x * x + 1); y -= x; y.sum()`` over 400,000 rows
of 5 columns in one block took 6.6, 4.8, 4.2, 4.2 and 4.1 ms (a loop over the block 9.6 ms), in
blocks of ten rows 14.3, 13.0, 12.2, 12.1 and 23.5 ms (106 ms): NumPy gets new pages for each
temporary of 2 MiB."""

UNKNOWN_ROW_NBYTES: Final = 100
"""Assumed size of items of a list."""


def batch_nbytes(nbytes: BatchNbytes) -> int:
    """Return the maximum bytes of a batch.

    Raises
    ------
    InvalidArgumentError
        If they are neither ``"auto"`` nor a positive int.
    """
    if isinstance(nbytes, str) and nbytes == "auto":
        return min(cache_nbytes(), MAX_AUTO_NBYTES)
    try:
        number = 0 if isinstance(nbytes, bool) else operator.index(nbytes)
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidArgumentError(f'nbytes must be "auto" or an int >= 1, got {nbytes!r}')
    return number


def batches(
    blocks: Iterable[Any], nbytes: int, columns: list[Hashable] | None = None
) -> Iterator[Any]:
    """Yield the rows of blocks in batches of about `nbytes`; each is valid until the next one.

    Parameters
    ----------
    blocks : iterable of block, or of tuple of block
        Blocks without rows are left out.
    nbytes : int
        Maximum bytes of a batch, of all blocks of a tuple together; one row may be larger.
    columns : list or None
        Columns of the (first) block.

    Examples
    --------
    >>> blocks = [np.full(rows, rows) for rows in (900, 2, 3)]
    >>> [(len(batch), int(batch[0])) for batch in batches(blocks, nbytes=4000)]
    [(450, 900), (450, 900), (5, 2)]
    """
    iterator = iter(blocks)
    first = next((block for block in iterator if count_rows(block)), None)
    if first is None:
        return
    join = _Join(first, nbytes, columns)
    # Local names: with ten rows per block this loop takes as long as the copies.
    count, rows, small = join.count, join.rows, join.small
    pending: list[Any] = []
    filled = 0
    for block in itertools.chain((first,), iterator):
        height = count(block)
        if height <= small:
            if filled + height > rows:
                yield join.joined(pending, filled)
                pending, filled = [], 0
            if height:
                pending.append(block)
                filled += height
            continue
        if filled:
            yield join.joined(pending, filled)
            pending, filled = [], 0
        if height <= rows and columns is None:
            yield block
        else:
            yield from join.cut(block, height)
    if filled:
        yield join.joined(pending, filled)


class _Join:
    """Joins small blocks and cuts large ones; knows both from the first block that has rows."""

    def __init__(self, first: Any, nbytes: int, columns: list[Hashable] | None) -> None:
        members, height = _members(first), count_rows(first)
        self.is_tuple = isinstance(first, tuple)
        # Sparse matrices refuse len(); for arrays it is much faster than count_rows().
        self.count: Callable[[Any], int] = len if type(first) is np.ndarray else count_rows
        row_nbytes = sum(_row_nbytes(member, height) for member in members) or 1
        self.rows = max(int(nbytes / row_nbytes), 1)
        # Copying a larger block takes longer than the calls that it saves.
        self.small = min(self.rows // 2, int(CALL_NBYTES / row_nbytes))
        self.members: list[_Buffer | _Copies] = [
            (_Buffer if type(member) is np.ndarray else _Copies)(
                member, self.rows, None if number else columns
            )
            for number, member in enumerate(members)
        ]

    def joined(self, blocks: list[Any], filled: int) -> Any:
        """Return blocks as one batch."""
        if not self.is_tuple:
            return self.members[0].joined(blocks, filled)
        columns = zip(*blocks, strict=True)
        return tuple(
            member.joined(list(of_member), filled)
            for member, of_member in zip(self.members, columns, strict=True)
        )

    def cut(self, block: Any, height: int) -> Iterator[Any]:
        """Yield a block in views of about equal size."""
        step = -(-height // -(-height // self.rows))
        for start in range(0, height, step):
            run = slice(start, start + step)
            parts = tuple(
                member.cut(one, run)
                for member, one in zip(self.members, _members(block), strict=True)
            )
            yield parts if self.is_tuple else parts[0]


def _members(block: Any) -> tuple[Any, ...]:
    return block if isinstance(block, tuple) else (block,)


def _row_nbytes(block: Any, height: int) -> float:
    """Return the bytes of a row of a block."""
    if isinstance(block, np.ndarray):
        return float(block.dtype.itemsize * math.prod(block.shape[1:]))
    if is_sparse(block):
        return float(block.data.nbytes) * 2 / height  # values and their indices
    if hasattr(block, "memory_usage"):
        return float(np.sum(block.memory_usage())) / height
    return UNKNOWN_ROW_NBYTES


class _Buffer:
    """Plain arrays: small ones are copied into one buffer."""

    def __init__(self, first: Any, rows: int, columns: list[Hashable] | None) -> None:
        self.kind = first.dtype, first.shape[1:]
        self.target = Target.of(
            first.dtype,
            (rows, *first.shape[1:]),
            chosen_columns(first, columns, as_columns=False),
            as_columns=False,
            allocate=np.empty,
        )
        self.has_columns = columns is not None

    def joined(self, blocks: Sequence[Any], filled: int) -> Any:
        """Copy blocks into the buffer."""
        buffer = self.target.result[:filled]
        if self.has_columns:
            start = 0
            for block in blocks:
                self._copy(block, start)
                start += len(block)
            return buffer
        try:
            return np.concatenate(blocks, out=buffer, casting="no")
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"blocks cannot be joined to a batch: {error}") from error

    def cut(self, block: Any, rows: slice) -> Any:
        """Return rows of a block: a view, or a copy of some columns."""
        run = block[rows]
        if not self.has_columns:
            return run
        self._copy(run, 0)
        return self.target.result[: len(run)]

    def _copy(self, block: Any, start: int) -> None:
        if (block.dtype, block.shape[1:]) != self.kind:
            raise InvalidArgumentError(
                f"blocks cannot be joined to a batch: rows of {self.kind[1]} {self.kind[0]} and "
                f"of {block.shape[1:]} {block.dtype}"
            )
        self.target.copy(block, start)


class _Copies:
    """Blocks of other kinds: small ones are concatenated."""

    def __init__(self, first: Any, rows: int, columns: list[Hashable] | None) -> None:
        self.columns = columns

    def joined(self, blocks: Sequence[Any], filled: int) -> Any:
        """Concatenate blocks."""
        return select(concatenate(blocks), self.columns)

    def cut(self, block: Any, rows: slice) -> Any:
        """Return rows of a block."""
        return select(take_rows(block, rows), self.columns)
