"""Copy columns of many blocks straight into one result, without a copy of a block between.

The result is allocated once. Rows of a block go to their place in it, column by column in runs that
fit the processor's cache, so that a row's cache lines are read once for all its columns::

    blocks     a b c d | a b c d | a b c d
                 |   |     |   |     |   |
    result     b d | b d | b d               or, as columns,   b b b ... and d d d ...
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._machine.cache import cache_nbytes
from spliter._reading.column_names import match_columns
from spliter._reading.columns import column_numbers, field_names, label_numbers, packed, select
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import is_sparse
from spliter._reading.rows import count_rows

Array = npt.NDArray[Any]


def copy_columns(
    blocks: Iterable[Any], rows: int | None, columns: list[Hashable] | None, as_columns: bool
) -> Any:
    """Return columns of blocks, concatenated along axis 0.

    Parameters
    ----------
    blocks : iterable of block, or of tuple of block
        At least one. Of tuples, the columns are those of the first block; the others are
        concatenated whole.
    rows : int or None
        Rows of all blocks; ``None`` counts them, which takes all blocks at once.
    columns : list or None
        Columns by number, field or label; ``None`` for all.
    as_columns : bool
        Whether each column is contiguous: a dict of arrays for structured arrays and DataFrames,
        Fortran order for other arrays.

    Raises
    ------
    InvalidArgumentError
        If blocks have no such columns, differ in dtype or width, or have other than `rows` rows.

    Examples
    --------
    >>> copy_columns([np.array([[1, 2]]), np.array([[3, 4]])], 2, [1], False)
    array([[2],
           [4]])
    """
    if rows is None:
        blocks = list(blocks)
        rows = sum(map(count_rows, blocks))
    iterator = iter(blocks)
    first = next(iterator)
    aligned = isinstance(first, tuple)
    members = first if aligned else (first,)
    results = [
        _result_for(member, rows, columns if not number else None, as_columns and not number)
        for number, member in enumerate(members)
    ]
    for block in itertools.chain((first,), iterator):
        for result, member in zip(results, block if aligned else (block,), strict=True):
            result.add(member)
    finished = tuple(result.finish() for result in results)
    return finished if aligned else finished[0]


class _Result(Protocol):
    """Result of concatenating blocks of one kind."""

    def add(self, block: Any) -> None: ...

    def finish(self) -> Any: ...


def _result_for(first: Any, rows: int, columns: list[Hashable] | None, as_columns: bool) -> _Result:
    if isinstance(first, np.ndarray):
        return _Arrays(first, rows, columns, as_columns)
    return _Others(columns, as_columns)


class _Others:
    """DataFrames, sparse matrices and lists: kept until the end, then concatenated."""

    def __init__(self, columns: list[Hashable] | None, as_columns: bool) -> None:
        self.blocks: list[Any] = []
        self.columns = columns
        self.as_columns = as_columns

    def add(self, block: Any) -> None:
        if isinstance(block, np.ndarray):
            raise InvalidArgumentError(
                f"blocks differ: a {type(self.blocks[0]).__name__} and a {type(block).__name__}; "
                "convert them to one kind, for instance with map_blocks"
            )
        self.blocks.append(block)

    def finish(self) -> Any:
        first = self.blocks[0]
        if hasattr(first, "iloc") and first.ndim == 2:
            return self._frame(first)
        if self.as_columns:
            kind = f"sparse {first.format}" if is_sparse(first) else type(first).__name__
            raise InvalidArgumentError(
                f"blocks of type {kind} cannot be returned as columns; leave as_columns out"
            )
        return concatenate([select(block, self.columns) for block in self.blocks])

    def _frame(self, first: Any) -> Any:
        labels = first.columns
        numbers = (
            list(range(len(labels)))
            if self.columns is None
            else label_numbers(labels, self.columns)
        )
        self.blocks = match_columns(self.blocks)
        arrays = {number: self._column(number) for number in numbers}
        if self.as_columns:
            names = labels[numbers]
            if not names.is_unique:
                raise InvalidArgumentError(
                    f"several columns have the same label in {list(names)}; rename them"
                )
            return dict(zip(names, arrays.values(), strict=True))
        index = concatenate([block.index for block in self.blocks])
        made = type(first)(arrays, index=index, copy=False)
        made.columns = labels[numbers]
        return made

    def _column(self, number: int) -> Any:
        """Return one column: a NumPy array, or one of the library's own if its dtype is."""
        columns = [block.iloc[:, number] for block in self.blocks]
        dtypes = {column.dtype for column in columns}
        if len(dtypes) == 1 and isinstance(columns[0].dtype, np.dtype):
            return np.concatenate([column.to_numpy() for column in columns], dtype=dtypes.pop())
        found = concatenate(columns).array
        return found.copy() if len(columns) == 1 else found


class _Arrays:
    """Arrays, masked arrays and structured arrays: copied as they come."""

    def __init__(
        self, first: Array, rows: int, columns: list[Hashable] | None, as_columns: bool
    ) -> None:
        self.kind = first.dtype, first.shape[1:]
        self.rows = rows
        self.filled = 0
        self.chosen = chosen_columns(first, columns, as_columns)
        self.as_columns = as_columns
        self.data = self._target(first.dtype, np.empty)
        self.mask: Target | None = None
        self.fill_values: dict[str, Any] = {}

    def _target(self, dtype: np.dtype[Any], allocate: Callable[..., Array]) -> Target:
        shape = self.rows, *self.kind[1]
        return Target.of(dtype, shape, self.chosen, self.as_columns, allocate)

    def add(self, block: Any) -> None:
        if not isinstance(block, np.ndarray) or (block.dtype, block.shape[1:]) != self.kind:
            raise InvalidArgumentError(
                f"blocks differ: rows of {_row(*self.kind)} and {_row_of(block)}; convert them "
                "to one dtype and width, for instance with map_blocks"
            )
        start, self.filled = self.filled, self.filled + len(block)
        if self.filled > self.rows:
            raise self._wrong_rows("more than")
        if type(block) is np.ndarray:
            self.data.copy(block, start)
            return
        self.data.copy(np.asarray(block), start)
        if isinstance(block, np.ma.MaskedArray):
            self._add_mask(block, start)

    def _add_mask(self, block: Any, start: int) -> None:
        if self.kind[0].names is None:
            self.fill_values[repr(block.fill_value)] = block.fill_value
        if self.mask is None:
            self.mask = self._target(np.ma.make_mask_descr(self.kind[0]), np.zeros)
        if block.mask is not np.ma.nomask:
            self.mask.copy(block.mask, start)

    def _wrong_rows(self, how_many: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the blocks have {self.filled} rows, {how_many} the {self.rows} that their collection "
            "declares; declare the sizes of its blocks as they are"
        )

    def finish(self) -> Any:
        if self.filled < self.rows:
            raise self._wrong_rows("fewer than")
        data = self.data.result
        if self.mask is None:
            return data
        mask = self.mask.result
        if isinstance(data, dict):
            return {name: np.ma.MaskedArray(data[name], mask[name]) for name in data}
        fill_values = list(self.fill_values.values())
        fill_value = fill_values[0] if len(fill_values) == 1 else None
        return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _row(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{shape} {dtype}"


def _row_of(block: Any) -> str:
    """Describe the rows of a block for an error."""
    if isinstance(block, np.ndarray):
        return _row(block.dtype, block.shape[1:])
    return f"a {type(block).__name__}"


def chosen_columns(
    first: Array, columns: list[Hashable] | None, as_columns: bool
) -> list[str] | list[int] | None:
    """Return the chosen fields or numbers of columns; ``None`` for whole rows."""
    if columns is None and not as_columns:
        return None
    if first.dtype.names is not None:
        return list(first.dtype.names) if columns is None else field_names(first.dtype, columns)
    every = range(first.shape[1] if first.ndim > 1 else 0)
    return column_numbers(first, list(every) if columns is None else columns)


@dataclass(frozen=True, eq=False)
class Target:
    """The result, and where each run of rows of a block goes in it.

    Parameters
    ----------
    result : ndarray or dict of str to ndarray
        All rows.
    places : list of (ndarray, key)
        Parts of the result, and what a run of rows is indexed with for each.
    take : ndarray of intp, or None
        Columns that contiguous blocks copy to the result in one call.
    row_nbytes : int
        Bytes of a row of a block.
    """

    result: Any
    places: list[tuple[Array, Any]]
    take: npt.NDArray[np.intp] | None
    row_nbytes: int

    @classmethod
    def of(
        cls,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        chosen: Sequence[Any] | None,
        as_columns: bool,
        allocate: Callable[..., Array],
    ) -> Target:
        """Allocate the result for all rows; `shape` is that of whole rows."""
        row_nbytes = dtype.itemsize * math.prod(shape[1:])
        if chosen is None:
            out = allocate(shape, dtype)
            return cls(out, [(out, ...)], None, row_nbytes)
        if dtype.names is not None:
            result: Any = (
                {name: allocate((*shape, *dtype[name].shape), dtype[name].base) for name in chosen}
                if as_columns
                else allocate(shape, packed(dtype, list(chosen)))
            )
            return cls(result, [(result[name], name) for name in chosen], None, row_nbytes)
        order = "F" if as_columns else "C"
        out = allocate((shape[0], len(chosen), *shape[2:]), dtype, order)
        places = [(out[:, to], (slice(None), at)) for to, at in enumerate(chosen)]
        return cls(out, places, None if as_columns else np.array(chosen, np.intp), row_nbytes)

    def copy(self, block: Array, at: int) -> None:
        """Copy the rows of a block to the rows of the result from `at` on."""
        if self.take is not None and block.flags.c_contiguous and block.flags.aligned:
            block.take(self.take, 1, self.result[at : at + len(block)], "clip")
            return
        most = len(block) if len(self.places) == 1 else cache_nbytes() // 2 // self.row_nbytes
        step = max(most, 1)
        for start in range(0, len(block), step):
            run = block[start : start + step]
            for place, key in self.places:
                place[at + start : at + start + len(run)] = run[key]
