"""Concatenate blocks of one kind along axis 0, and count their rows.

Types are kept: masked arrays keep their mask, sparse matrices their format, DataFrames their
columns and dtypes; columns are matched by name. The result is allocated once at its final size and
each block is copied into it once, so the memory needed beyond the blocks is one copy. Tables of
pyarrow, which nobody can change, are not copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._reading.column_names import column_names, match_columns
from spliter._reading.kinds import (
    DatasetAlong,
    checked,
    is_sparse,
    is_table,
    package_of,
    refuse_dataset,
)


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
    refuse_dataset(first)
    if package_of(first) == "xarray":
        return _data_arrays
    # The library of a block is already imported, so no import is needed here.
    if hasattr(sys.modules[package_of(first)], "concat"):  # pandas and libraries with its API
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
    return "sparse" if is_sparse(block) else package_of(block)


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
    library = sys.modules[package_of(first)]
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
