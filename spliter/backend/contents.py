"""Concatenate blocks of one kind along axis 0, and count their rows.

Types are kept: masked arrays keep their mask, sparse matrices their format, DataFrames their
columns and dtypes; columns are matched by name. The result is allocated once at its final size and
each block is copied into it once, so the memory needed beyond the blocks is one copy. Tables of
pyarrow, which nobody can change, are not copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import AlignmentError, InvalidArgumentError
from spliter._unsupported import checked


def concatenate(blocks: Iterable[Any]) -> Any:
    """Return blocks concatenated along axis 0.

    Parameters
    ----------
    blocks : iterable of block, or of tuple of block
        At least one, all of one kind: arrays (also masked), SciPy sparse matrices or arrays,
        pandas DataFrames, Series or indexes, tables of pyarrow, DataArrays of xarray (along the
        first dimension), lists, or arrays of other libraries that ``numpy.concatenate`` dispatches
        to (CuPy, sparse). Arrays next to sparse matrices become sparse. Tuples are concatenated
        element by element.

    Returns
    -------
    block or tuple of block
        A single block is returned without a copy.

    Raises
    ------
    InvalidArgumentError
        If their kinds, further axes or names of columns differ, the kind is not supported, or a
        block is an iterator.

    Examples
    --------
    >>> import numpy as np
    >>> concatenate([np.arange(2), np.arange(3)])
    array([0, 1, 0, 1, 2])
    >>> concatenate([(np.zeros(1), ["a"]), (np.ones(1), ["b"])])
    (array([0., 1.]), ['a', 'b'])
    """
    kept = list(map(checked, blocks))
    if not kept:
        raise InvalidArgumentError("concatenate() needs at least one block, got none")
    if isinstance(kept[0], tuple):
        return tuple(_concatenate(list(member)) for member in zip(*kept, strict=True))
    return _concatenate(kept)


def _concatenate(blocks: list[Any]) -> Any:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    try:
        return _function_for(first, blocks)(blocks)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"blocks of {_kinds(blocks)} cannot be concatenated: {error}"
        ) from error


def _function_for(first: Any, blocks: Sequence[Any]) -> Callable[[list[Any]], Any]:
    families = set(map(_family, blocks))
    is_masked = any(isinstance(block, np.ma.MaskedArray) for block in blocks)
    if families == {"array", "sparse"} and not is_masked:
        return _sparse
    if len(families) > 1:
        raise TypeError("their kinds differ")
    if is_masked:
        return _masked
    if isinstance(first, np.ndarray):
        return _arrays
    if isinstance(first, list):
        return _lists
    if is_sparse(first):
        return _sparse
    if is_table(first):
        return _tables
    if isinstance(first, DatasetAlong):
        return _datasets
    _refuse_dataset(first)
    if _package(first) == "xarray":
        return _data_arrays
    # The library of a block is already imported, so no import is needed here.
    if hasattr(sys.modules[_package(first)], "concat"):  # pandas and libraries with its API
        return _frames
    if hasattr(type(first), "__array_function__"):
        return np.concatenate
    raise TypeError("they are neither arrays, sparse matrices, data frames nor lists")


def _family(block: Any) -> str:
    """Return what blocks that are concatenated have in common."""
    if isinstance(block, np.ndarray | list):
        return "array" if isinstance(block, np.ndarray) else "list"
    if hasattr(block, "iloc"):  # of pandas, or of a library with subclasses of its frames
        return f"frame of {block.ndim} dimensions"
    return "sparse" if is_sparse(block) else _package(block)


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy."""
    return type(value).__module__.startswith("scipy.sparse.")


def is_table(value: Any) -> bool:
    """Return whether a value is a table of pyarrow."""
    return _package(value) == "pyarrow" and isinstance(value, sys.modules["pyarrow"].Table)


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


@dataclass(frozen=True, eq=False)
class DatasetAlong:
    """A Dataset of xarray as a block with rows, which it has along one dimension only."""

    data: Any
    dim: Hashable

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (self.data.sizes[self.dim],)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, without those of variables that have none."""
        variables = self.data.variables.values()
        return sum(variable.nbytes for variable in variables if self.dim in variable.dims)

    def __getitem__(self, rows: Any) -> DatasetAlong:
        return DatasetAlong(self.data.isel({self.dim: rows}), self.dim)


def wrap_datasets(blocks: Iterable[Any], dim: Hashable | None) -> Iterable[Any]:
    """Return blocks with rows: Datasets along ``BlockGrid.dim`` of their collection, or others."""
    return blocks if dim is None else (DatasetAlong(block, dim) for block in blocks)


def unwrap_dataset(block: Any) -> Any:
    """Return the block itself of one of :func:`wrap_datasets`."""
    return block.data if isinstance(block, DatasetAlong) else block


def _is_dataset(value: Any) -> bool:
    return _package(value) == "xarray" and hasattr(type(value), "data_vars")


def _refuse_dataset(value: Any) -> None:
    if _is_dataset(value):
        raise InvalidArgumentError(
            "a Dataset does not say which dimension its rows are along; pass DataArrays, or use "
            "Split.take and Partition.batches of split(along(dataset, dim))"
        )


def _kinds(blocks: Sequence[Any]) -> str:
    return ", ".join(sorted({type(block).__name__ for block in blocks}))


def _arrays(blocks: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate plain arrays; subclasses (memory maps, matrices) become plain arrays."""
    arrays = [np.asarray(block) for block in blocks]
    # Of equal dtypes, NumPy alone would give the one in the byte order of the machine.
    return np.concatenate(arrays, dtype=_common_dtype(arrays))


def _common_dtype(arrays: Sequence[Any]) -> np.dtype[Any] | None:
    """Return the dtype that all arrays have, if there is one."""
    dtypes = {array.dtype for array in arrays}
    return dtypes.pop() if len(dtypes) == 1 else None


def _masked(blocks: list[Any]) -> Any:
    """Concatenate masked arrays; keep a fill value that all of them share."""
    result = np.ma.concatenate(blocks)  # type: ignore[no-untyped-call]
    result = result.astype(_common_dtype(blocks) or result.dtype, copy=False)
    fill_values = {repr(getattr(block, "fill_value", None)) for block in blocks}
    if len(fill_values) == 1:
        result.fill_value = blocks[0].fill_value
    return result


def _lists(blocks: list[list[Any]]) -> list[Any]:
    return [item for block in blocks for item in block]


def _sparse(blocks: list[Any]) -> Any:
    """Stack in the format of the first sparse block; for CSR this copies the buffers only."""
    first = next(filter(is_sparse, blocks))
    if first.ndim != 2:
        raise TypeError("sparse arrays must have two axes")
    own = [block if is_sparse(block) else type(first)(block) for block in blocks]
    return sys.modules["scipy.sparse"].vstack(own, format=first.format)


def _tables(blocks: list[Any]) -> Any:
    """Concatenate tables; columns that are null in some get the type of the others."""
    named = match_columns(blocks)
    return sys.modules["pyarrow"].concat_tables(named, promote_options="default")


def _data_arrays(blocks: list[Any]) -> Any:
    if len(dims := {block.dims[0] for block in blocks}) > 1:
        raise TypeError(f"their first dimensions differ ({', '.join(sorted(map(repr, dims)))})")
    return _labelled(blocks, dims.pop())


def _datasets(blocks: list[DatasetAlong]) -> DatasetAlong:
    dim = blocks[0].dim
    joined = _labelled([block.data for block in blocks], dim, data_vars="minimal")
    return DatasetAlong(joined, dim)


def _labelled(blocks: list[Any], dim: Hashable, **options: Any) -> Any:
    """Concatenate along a dimension; what does not have it must be equal in all blocks."""
    concat = sys.modules["xarray"].concat
    return concat(blocks, dim, coords="minimal", compat="equals", join="exact", **options)


def _frames(blocks: list[Any]) -> Any:
    """Concatenate data frames or series; columns are matched, and categories united."""
    if column_names(blocks[0]) is not None:
        blocks = match_columns(blocks)
    first = blocks[0]
    library = sys.modules[_package(first)]
    if not hasattr(first, "iloc"):  # an index, or a frame of another library
        return first.append(blocks[1:]) if hasattr(first, "append") else library.concat(blocks)
    if first.ndim == 1:
        return library.concat(unite_categories(library, blocks))
    for at, dtype in enumerate(first.dtypes):
        if hasattr(dtype, "categories"):
            columns = [block.iloc[:, at] for block in blocks]
            united = unite_categories(library, columns)
            if united is not columns:
                blocks = [block.copy(deep=False) for block in blocks]
                for block, column in zip(blocks, united, strict=True):
                    block.isetitem(at, column)
    return library.concat(blocks)


def column_names(block: Any) -> list[Hashable] | None:
    """Return the names of the columns of a frame or table in order; ``None`` for other blocks.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"a": [1], "b": [2]})), column_names(np.zeros((1, 2)))
    (['a', 'b'], None)
    """
    if is_table(block):
        return list(block.column_names)
    return list(block.columns) if hasattr(block, "iloc") and block.ndim == 2 else None


def order_columns(frame: Any, names: list[Hashable], whose: str, advice: str) -> Any:
    """Return a frame or table with its columns in a given order.

    Parameters
    ----------
    frame : DataFrame or table
    names : list
        Result of :func:`column_names` for another frame.
    whose, advice : str
        What the frame is, and what to do if it has other columns, for the error message.

    Raises
    ------
    InvalidArgumentError
        If it has other columns.

    Examples
    --------
    >>> import pandas as pd
    >>> list(order_columns(pd.DataFrame({"b": [1], "a": [2]}), ["a", "b"], "a frame", "rename it"))
    ['a', 'b']
    """
    found = column_names(frame) or []
    if found == names:
        return frame
    if not len(found) == len(names) == len(set(found)) or set(found) != set(names):
        raise InvalidArgumentError(f"{whose} has columns {found}, expected {names}; {advice}")
    return frame.select(names) if is_table(frame) else frame[names]


def match_columns(blocks: Sequence[Any]) -> list[Any]:
    """Return frames or tables with their columns in the order of the first one's.

    Blocks with neither columns nor rows, which Ray Data has, are left out if others have columns.

    Raises
    ------
    InvalidArgumentError
        If their names differ.

    Examples
    --------
    >>> import pandas as pd
    >>> frames = [pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [3], "a": [4]})]
    >>> [list(frame) for frame in match_columns(frames)]
    [['a', 'b'], ['a', 'b']]
    """
    kept = [block for block in blocks if column_names(block) or len(block)] or list(blocks[:1])
    names = column_names(kept[0]) or []
    frames = [None if is_table(block) else column_names(block) for block in kept]
    advice = same_columns_advice(*frames)
    return [order_columns(block, names, "a block", advice) for block in kept]


def same_columns_advice(*names: Sequence[Hashable] | None) -> str:
    """Return what to do about blocks with other columns, or with the same in another order.

    Parameters
    ----------
    *names : sequence, or None
        Names of the columns of each block; ``None`` if it has none.

    Returns
    -------
    str
        Names the columns that all blocks have, in the order of the first one.

    Examples
    --------
    >>> same_columns_advice(["a", "b", "c"], ["c", "b"])
    "select them by name in each block: frame.map_partitions(lambda block: block[['b', 'c']]) ..."
    >>> same_columns_advice(["a"], None)
    'give all blocks the same columns'
    """
    lists = [list(each or ()) for each in names]
    common = [name for name in lists[0] if all(each.count(name) == 1 for each in lists)]
    if not common:
        return "give all blocks the same columns"
    # Not frame[names]: Dask drops it if its first block has these columns already.
    selected = f"block[{common}]"
    return (
        f"select them by name in each block: frame.map_partitions(lambda block: {selected}) of a "
        f"Dask DataFrame, [{selected} for block in blocks] of a list"
    )


def unite_categories(library: Any, columns: list[Any]) -> list[Any]:
    """Give columns of unordered categories the union of these, in order of appearance."""
    # A column without rows often has categories of another dtype: those of an empty list.
    full = [column for column in columns if len(column)] or columns[:1]
    dtypes = {column.dtype for column in columns}
    if len(dtypes) == 1 or not all(_is_unordered(dtype) for dtype in dtypes):
        return columns
    kinds = sorted({str(column.cat.categories.dtype) for column in full})
    if len(kinds) > 1:
        raise TypeError(
            f"the categories of {full[0].name!r} are of several dtypes ({', '.join(kinds)}); "
            "convert them to one, as by .cat.rename_categories(str)"
        )
    united = library.api.types.union_categoricals(full).dtype
    return [column.astype(united) for column in columns]


def _is_unordered(dtype: Any) -> bool:
    return hasattr(dtype, "categories") and not dtype.ordered


def count_rows(block: Any) -> int:
    """Return the number of items of a block along axis 0.

    Parameters
    ----------
    block : object
        An array, DataFrame, sparse matrix or sequence, or a tuple of aligned blocks.

    Returns
    -------
    int
        ``block.shape[0]`` if it has a shape (sparse matrices refuse ``len``), else its
        length; for a tuple, that of its first block.

    Raises
    ------
    InvalidArgumentError
        If it is a Dataset of xarray, or an iterator.

    Examples
    --------
    >>> count_rows([1, 2, 3]), count_rows(([1, 2], ["a", "b"]))
    (3, 2)
    """
    if isinstance(block, tuple):
        return count_rows(block[0])
    shape = getattr(block, "shape", None)
    if shape:
        return int(shape[0])
    _refuse_dataset(block)
    return len(checked(block))


def take_rows(block: Any, rows: npt.NDArray[Any] | slice) -> Any:
    """Return some rows of a block; a view for a slice of an array.

    Parameters
    ----------
    block : block or tuple of block
        An array, table, DataFrame, sparse matrix or list; of a tuple, the rows of each.
    rows : ndarray of int, shape (n,), or slice
        Row numbers, in any order and repeated.

    Examples
    --------
    >>> import numpy as np
    >>> take_rows((np.arange(3) * 10, ["a", "b", "c"]), np.array([2, 0]))
    (array([20,  0]), ['c', 'a'])
    """
    if isinstance(block, tuple):
        return tuple(take_rows(member, rows) for member in block)
    if isinstance(block, list):
        return block[rows] if isinstance(rows, slice) else [block[row] for row in rows.tolist()]
    if is_sparse(block):  # not all formats can be indexed
        return block.tocsr()[rows].asformat(block.format)
    if is_table(block) and not isinstance(rows, slice):
        return block.take(rows)
    _refuse_dataset(block)
    return block.iloc[rows] if hasattr(block, "iloc") else block[rows]


def cut_rows(values: Any, counts: npt.NDArray[np.int64]) -> list[Any]:
    """Cut an array with one entry per row into parts of so many rows.

    Raises
    ------
    InvalidArgumentError
        If it has more or fewer entries.
    """
    ends = np.cumsum(counts).tolist()
    total = ends[-1] if ends else 0
    if (rows := count_rows(values)) != total:
        raise InvalidArgumentError(f"expected one entry for each of {total} rows, got {rows}")
    return [values[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def has_rows(block: Any) -> bool:
    """Return whether a block has rows that :func:`count_rows` can count.

    Parameters
    ----------
    block : object
        A block, or another task's result (a number, say).

    Returns
    -------
    bool

    Examples
    --------
    >>> has_rows([1]), has_rows(1)
    (True, False)
    """
    if _is_dataset(block):
        return False
    return bool(getattr(block, "shape", None)) or hasattr(block, "__len__")


def check_rows(blocks: Sequence[Any], at: object) -> None:
    """Reject aligned blocks of different lengths, when unknown sizes become known.

    Parameters
    ----------
    blocks : sequence of block
        One of each collection. Those without rows are ignored.
    at : object
        Block index, for the error message.

    Raises
    ------
    AlignmentError
        If the numbers of rows differ.

    Examples
    --------
    >>> check_rows(([1, 2], ["a", "b"]), (0,))
    """
    rows = [count_rows(block) for block in blocks if has_rows(block)]
    if len(set(rows)) > 1:
        raise AlignmentError(
            f"the aligned blocks at {at} have {rows} rows; rechunk the collections to the same "
            "blocks along axis 0"
        )


def concatenate_grid(blocks: Iterable[Any], shape: Sequence[int]) -> Any:
    """Return the blocks of a grid concatenated along all its axes, as :func:`concatenate` does.

    Parameters
    ----------
    blocks : iterable of block
        In C order; arrays or sparse matrices, if there are several along another axis than the
        first.
    shape : sequence of int
        Number of blocks along each axis.

    Examples
    --------
    >>> import numpy as np
    >>> concatenate_grid([np.full((1, 2), at) for at in range(4)], (2, 2))
    array([[0, 0, 1, 1],
           [2, 2, 3, 3]])
    """
    made = list(blocks)
    for axis in reversed(range(1, len(shape))):
        if shape[axis] > 1:
            moved = [_swapped(block, axis) for block in made]
            rows = range(0, len(moved), shape[axis])
            made = [_swapped(concatenate(moved[at : at + shape[axis]]), axis) for at in rows]
    return concatenate(made)


def _swapped(block: Any, axis: int) -> Any:
    """Return a block with axis 0 and another one exchanged."""
    return block.transpose() if is_sparse(block) else block.swapaxes(0, axis)


def nested(blocks: list[Any], shape: Sequence[int]) -> list[Any]:
    """Return blocks in C order as a nested list; a flat one if all are along axis 0.

    Examples
    --------
    >>> nested(["a", "b", "c", "d"], (2, 2)), nested(["a", "b"], (2, 1))
    ([['a', 'b'], ['c', 'd']], ['a', 'b'])
    """
    if len(blocks) == shape[0]:
        return blocks
    grid = np.empty(shape, dtype=object)
    for at, block in zip(np.ndindex(*shape), blocks, strict=True):
        grid[at] = block
    made: list[Any] = grid.tolist()
    return made
