"""``map_blocks`` and ``assemble``: describe, compute and check results with one part per block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._grid import BlockGrid
from spliter._partition import Partition
from spliter.backend.contents import count_rows, is_sparse


def count_items(partition: Partition) -> list[int]:
    """Return the number of rows of each block; runs at a location."""
    return [count_rows(block) for _, block in partition.items()]


@dataclass(frozen=True)
class Template:
    """Type of the values that a function returns for every block, without their rows.

    Parameters
    ----------
    dtype : dtype or None
        Of arrays; ``None`` for frames.
    trailing_shape : tuple of int
        Shape of arrays along the axes after the first one.
    meta : DataFrame, Series, Index or sparse matrix, or None
        An empty frame with the same columns and dtypes, or an empty matrix of the same format;
        ``None`` for other arrays.
    """

    dtype: np.dtype[Any] | None
    trailing_shape: tuple[int, ...] = ()
    meta: Any = None

    @classmethod
    def given(
        cls, dtype: npt.DTypeLike | None, trailing_shape: Sequence[int], meta: Any
    ) -> Template | None:
        """Return the template described by the caller, ``None`` if it has to be inferred.

        Parameters
        ----------
        dtype, trailing_shape
            Of results that are arrays; the shape is that of one row.
        meta : DataFrame, Series, Index, ndarray or sparse matrix, or None
            Like a result; its rows are ignored.

        Raises
        ------
        InvalidArgumentError
            If both an array and a frame are described, or `trailing_shape` has no dtype.
        """
        try:
            trailing = tuple(trailing_shape)
        except TypeError:
            raise InvalidArgumentError(
                f"trailing_shape must be a sequence of int, got {trailing_shape!r}; rows of 3 "
                "columns have trailing_shape=(3,)"
            ) from None
        if meta is None:
            if dtype is not None:
                return cls(np.dtype(dtype), trailing)
            if trailing:
                raise InvalidArgumentError(
                    f"trailing_shape={trailing} needs a dtype; pass both, or neither to infer both"
                )
            return None
        if dtype is not None or trailing:
            raise InvalidArgumentError(
                "meta already determines dtype and trailing_shape; pass either meta or those"
            )
        return cls.of(meta)

    @classmethod
    def of(cls, result: Any) -> Template:
        """Return the template of a result.

        Parameters
        ----------
        result : DataFrame, Series, Index, ndarray, or another array
            Any number of rows.

        Raises
        ------
        InvalidArgumentError
            If it has no axis of rows or no dtype.
        """
        if is_frame(result):
            return cls(None, (), result.iloc[:0] if hasattr(result, "iloc") else result[:0])
        if not getattr(result, "shape", ()) or not hasattr(result, "dtype"):
            raise InvalidArgumentError(
                f"the function for map_blocks returned a {type(result).__name__}; return an array, "
                "DataFrame or Series with one row for each row of the block"
            )
        trailing = tuple(result.shape[1:])
        # Not all formats of SciPy can be sliced.
        empty = type(result)((0, *trailing), dtype=result.dtype) if is_sparse(result) else None
        return cls(np.dtype(result.dtype), trailing, empty)

    @classmethod
    def infer(
        cls,
        fn: Callable[..., Any],
        example: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Template:
        """Call a function on an example block, in this process, and use its result as template.

        Parameters
        ----------
        fn : callable
            The function to apply to the blocks.
        example : block or tuple of block
            A small block like those of the collection.
        args, kwargs
            Further arguments of `fn`.

        Raises
        ------
        InvalidArgumentError
            If the call fails.
        """
        try:
            result = fn(example, *args, **kwargs)
        except Exception as error:
            raise InvalidArgumentError(
                "map_blocks called the function on an example block to infer its result type, "
                f"which failed ({type(error).__name__}: {error}); {HINT}"
            ) from error
        return cls.of(result)

    def check(self, result: Any, index: tuple[int, ...]) -> None:
        """Reject a result that does not match this template.

        Parameters
        ----------
        result : object
            Return value of the function.
        index : tuple of int
            Block index, for the error message.

        Raises
        ------
        InvalidArgumentError
            If its kind, columns or trailing shape differ.
        """
        if self.meta is not None:
            expected, found = _describe(self.meta), _describe(result)
            if expected != found:
                raise InvalidArgumentError(
                    f"map_blocks: the function returned {found} for block {index}, expected "
                    f"{expected}; pass an empty result of the function as meta="
                )
        elif is_frame(result):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {_describe(result)} for block {index}, but "
                "dtype= is for arrays; pass an empty result of the function as meta= instead"
            )
        shape = getattr(result, "shape", None)
        if self.dtype is not None and shape is not None and tuple(shape[1:]) != self.trailing_shape:
            raise InvalidArgumentError(
                f"map_blocks: the function returned shape {tuple(shape)} for block {index}, "
                f"expected rows of shape {self.trailing_shape}; pass "
                f"trailing_shape={tuple(shape[1:])} if it returns this for every block"
            )


HINT = (
    "pass dtype= (and trailing_shape=) if the function returns arrays, or an empty result of it as "
    "meta= if it returns DataFrames or Series"
)


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, Series or Index, of pandas or a similar library."""
    return hasattr(type(value), "iloc") or hasattr(type(value), "to_frame")


def _describe(value: Any) -> str:
    """Return the kind of a value, with the columns of a DataFrame."""
    columns = getattr(value, "columns", None)
    if columns is not None:
        return f"a DataFrame with columns {list(columns)}"
    if not is_frame(value):
        return f"a {type(value).__name__}"
    return "a Series" if hasattr(type(value), "iloc") else "an Index"


def map_over(
    partition: Partition, template: Template, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Apply a function to each block and check the results; runs at a location."""
    made = []
    for index, block in partition.items():
        result = fn(block, *args, **kwargs)
        if not getattr(result, "shape", hasattr(result, "__len__")):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {result!r} for block {index}, but must "
                "return one row for each row of the block; to compute one value per block, start a "
                "task on each partition"
            )
        if (rows := count_rows(result)) != count_rows(block):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {rows} rows for block {index} of "
                f"{count_rows(block)} rows; it must return one for each"
            )
        template.check(result, index)
        made.append(result)
    return made


def place_results(
    grid: BlockGrid, results: Iterable[tuple[Partition, Any]]
) -> list[tuple[npt.NDArray[np.int64], Any]]:
    """Pair each result with the positions of its blocks; check that every block has one.

    Parameters
    ----------
    grid : BlockGrid
        Grid of the collection being split.
    results : iterable of (Partition, future)

    Raises
    ------
    InvalidArgumentError
        If the partitions do not cover every block once, or the blocks form columns.
    """
    if grid.nblocks != grid.shape[0]:
        raise InvalidArgumentError(
            f"a grid of {grid.shape} blocks cannot be assembled; rechunk the collection to one "
            "block along every axis but the first"
        )
    placed = [(partition.indexes.positions, future) for partition, future in results]
    covered = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in placed)])
    if not np.array_equal(np.sort(covered), np.arange(grid.nblocks)):
        raise InvalidArgumentError(
            "the partitions do not cover every block once; pass the results of all "
            "partitions of one iteration over this Split"
        )
    return placed
