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
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._machine.cache import cache_nbytes
from spliter._reading.column_names import match_columns
from spliter._reading.columns import (
    MIN_PACKED_ROWS,
    column_numbers,
    field_names,
    label_numbers,
    pack_fields,
    packed,
    select,
)
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import is_sparse
from spliter._reading.rows import count_rows

Array = npt.NDArray[Any]


def copy_columns(
    blocks: Iterable[Any], rows: int | None, columns: list[Hashable] | None, as_columns: bool
) -> Any:
    """Return columns of at least one block, concatenated along axis 0.

    Parameters
    ----------
    blocks : iterable of block, or of tuple of block
        Of tuples, the columns are those of the first block; the others are concatenated whole.
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
    results: list[_Arrays | _Others] = []
    for number, member in enumerate(first if aligned else (first,)):
        own = (columns, as_columns) if not number else (None, False)
        is_array = isinstance(member, np.ndarray)
        results.append(_Arrays(member, rows, *own) if is_array else _Others(*own))
    for block in itertools.chain((first,), iterator):
        for result, member in zip(results, block if aligned else (block,), strict=True):
            result.add(member)
    finished = tuple(result.finish() for result in results)
    return finished if aligned else finished[0]


class _Others:
    """DataFrames, sparse matrices and lists: kept until the end, then concatenated."""

    def __init__(self, columns: list[Hashable] | None, as_columns: bool) -> None:
        self.blocks: list[Any] = []
        self.columns = columns
        self.as_columns = as_columns

    def add(self, block: Any) -> None:
        if isinstance(block, np.ndarray):
            raise InvalidArgumentError(
                f"blocks differ: {_described(self.blocks[0])} and a {type(block).__name__}; "
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
        labels, every = first.columns, range(first.shape[1])
        numbers = list(every) if self.columns is None else label_numbers(labels, self.columns)
        self.blocks = match_columns(self.blocks)
        arrays = {number: self._column(number) for number in numbers}
        names = labels[numbers]
        if not self.as_columns:
            index = concatenate([block.index for block in self.blocks])
            made = type(first)(arrays, index=index, copy=False)
            made.columns = names
            return made
        if not names.is_unique:
            raise InvalidArgumentError(
                f"several columns have the same label in {list(names)}; rename them"
            )
        return dict(zip(names, arrays.values(), strict=True))

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
        self.shape = first.shape[1:], rows, chosen_columns(first, columns, as_columns), as_columns
        self.data = Target(first.dtype, *self.shape)
        self.mask: Target | None = None
        self.fill_values: dict[str, Any] = {}

    def add(self, block: Any) -> None:
        if not isinstance(block, np.ndarray) or (block.dtype, block.shape[1:]) != self.kind:
            raise InvalidArgumentError(
                f"blocks differ: rows of {_row(*self.kind)} and {_described(block)}; convert them "
                "to one dtype and width, for instance with map_blocks"
            )
        start, self.filled = self.filled, self.filled + len(block)
        if self.filled > self.rows:
            raise self._wrong_rows("more than")
        self.data.copy(block if type(block) is np.ndarray else np.asarray(block), start)
        if isinstance(block, np.ma.MaskedArray):
            self._add_mask(block, start)

    def _add_mask(self, block: Any, start: int) -> None:
        if block.dtype.names is None:
            self.fill_values[repr(block.fill_value)] = block.fill_value
        if self.mask is None:
            mask = np.ma.make_mask_descr(block.dtype)
            self.mask = Target(mask, *self.shape, allocate=np.zeros)
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
        fill_value = self.fill_values.popitem()[1] if len(self.fill_values) == 1 else None
        return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _described(block: Any) -> str:
    """Describe the rows of a block for an error."""
    if isinstance(block, np.ndarray):
        return _row(block.dtype, block.shape[1:])
    return f"a {type(block).__name__}"


def _row(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{shape} {dtype}"


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


class Target:
    """Columns of so many rows, as `result`, and how runs of rows of a block are copied to it."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        row_shape: tuple[int, ...],
        rows: int,
        chosen: list[str] | list[int] | None,
        as_columns: bool = False,
        allocate: Callable[..., Array] = np.empty,
    ) -> None:
        self.result: Any
        self._row_nbytes = dtype.itemsize * math.prod(row_shape)
        self._take: npt.NDArray[np.intp] | None = None
        self._packs = False
        # Parts of the result, and what a run of rows is indexed with for each.
        self._places: list[tuple[Array, Any]]
        if chosen is None:
            self.result = allocate((rows, *row_shape), dtype)
            self._places = [(self.result, ...)]
        elif dtype.names is not None:
            shape = rows, *row_shape
            self._packs = not as_columns
            self.result = (
                {name: allocate((*shape, *dtype[name].shape), dtype[name].base) for name in chosen}
                if as_columns
                else allocate(shape, packed(dtype, list(chosen)))
            )
            self._places = [(self.result[name], name) for name in chosen]
        else:
            shape = rows, len(chosen), *row_shape[1:]
            self.result = allocate(shape, dtype, "F" if as_columns else "C")
            self._take = None if as_columns else np.array(chosen, np.intp)
            self._places = [(self.result[:, to], (slice(None), at)) for to, at in enumerate(chosen)]

    def copy(self, block: Array, at: int) -> None:
        """Copy the rows of a block to the rows of the result from `at` on."""
        if self._take is not None and block.flags.c_contiguous and block.flags.aligned:
            block.take(self._take, 1, self.result[at : at + len(block)], "clip")
            return
        packs = self._packs and len(block) >= MIN_PACKED_ROWS
        if packs and pack_fields(block, self.result[at : at + len(block)]):
            return
        many = cache_nbytes() // 2 // self._row_nbytes if len(self._places) > 1 else len(block)
        step = max(many, 1)
        for start in range(0, len(block), step):
            run = block[start : start + step]
            for place, key in self._places:
                place[at + start : at + start + len(run)] = run[key]
