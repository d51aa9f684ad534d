"""Results with a part for each block: what they look like, making them, and assembling them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._grid import BlockGrid
from spliter._partition import Partition
from spliter.backend.contents import count_rows


def count_items(partition: Partition) -> list[int]:
    """Run at a location: the number of rows of each block."""
    return [count_rows(block) for _, block in partition.items()]


@dataclass(frozen=True)
class Template:
    """What a function returns for every block, without its rows.

    Parameters
    ----------
    dtype : dtype or None
        Of the elements of arrays; ``None`` for frames.
    trailing_shape : tuple of int
        Shape of arrays along the axes after the first one.
    meta : DataFrame, Series or Index, or None
        An empty frame with the same columns and dtypes; ``None`` for arrays.
    """

    dtype: np.dtype[Any] | None
    trailing_shape: tuple[int, ...] = ()
    meta: Any = None

    @classmethod
    def given(
        cls, dtype: npt.DTypeLike | None, trailing_shape: Sequence[int], meta: Any
    ) -> Template | None:
        """Return the template that a caller describes, ``None`` if it has to be inferred.

        Parameters
        ----------
        dtype : dtype or None
            Of arrays.
        trailing_shape : sequence of int
            Of arrays.
        meta : DataFrame, Series, Index or ndarray, or None
            Like a result; its rows do not matter.

        Returns
        -------
        Template or None

        Raises
        ------
        InvalidArgumentError
            If it describes both an array and a frame, or neither completely.
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
                    f"trailing_shape={trailing} needs a dtype; pass both, or neither to have both "
                    "inferred"
                )
            return None
        if dtype is not None or trailing:
            raise InvalidArgumentError(
                "meta says what dtype and trailing_shape say; pass one or the other"
            )
        return cls.of(meta)

    @classmethod
    def of(cls, result: Any) -> Template:
        """Return the template of results like one that is given.

        Parameters
        ----------
        result : DataFrame, Series, Index, ndarray, or another array
            With any number of rows.

        Returns
        -------
        Template

        Raises
        ------
        InvalidArgumentError
            If it has no rows.
        """
        if is_frame(result):
            return cls(None, (), result.iloc[:0] if hasattr(result, "iloc") else result[:0])
        if not getattr(result, "shape", ()) or not hasattr(result, "dtype"):
            raise InvalidArgumentError(
                f"a {type(result).__name__} has no rows or no dtype; a function for map_blocks "
                "returns an array, DataFrame or Series with a row for each row of the block"
            )
        return cls(np.dtype(result.dtype), tuple(result.shape[1:]))

    @classmethod
    def inferred(
        cls,
        fn: Callable[..., Any],
        example: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Template:
        """Call a function on an example of a block, here, and return the template of the result.

        Parameters
        ----------
        fn : callable
            What is to be applied to the blocks.
        example : block or tuple of block
            A small block like those of the collection.
        args, kwargs
            Further arguments of `fn`.

        Returns
        -------
        Template

        Raises
        ------
        InvalidArgumentError
            If the call fails.
        """
        try:
            result = fn(example, *args, **kwargs)
        except Exception as error:
            raise InvalidArgumentError(
                "map_blocks calls the function on an example of a block to find out what it "
                f"returns, and that failed ({type(error).__name__}: {error}); {SAY}"
            ) from error
        return cls.of(result)

    def check(self, result: Any, index: tuple[int, ...]) -> None:
        """Refuse a result that is not like this.

        Parameters
        ----------
        result : object
            What the function has returned.
        index : tuple of int
            Of the block, for the error.

        Raises
        ------
        InvalidArgumentError
            If its kind, columns or trailing shape differ.
        """
        if self.meta is not None:
            expected, found = _described(self.meta), _described(result)
            if expected != found:
                raise InvalidArgumentError(
                    f"map_blocks: the function returned {found} for block {index}, and {expected} "
                    "was expected; pass meta= an empty one like what it returns"
                )
            return
        if is_frame(result):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {_described(result)} for block {index}, and "
                "dtype= is for arrays; leave it out, or pass meta= an empty one like what it "
                "returns"
            )
        shape = getattr(result, "shape", None)
        if shape is not None and tuple(shape[1:]) != self.trailing_shape:
            raise InvalidArgumentError(
                f"map_blocks: the function returned shape {tuple(shape)} for block {index}, and "
                f"rows of shape {self.trailing_shape} were expected; pass "
                f"trailing_shape={tuple(shape[1:])} if that is what it returns for every block"
            )


SAY = (
    "pass dtype= (and trailing_shape=) if the function returns arrays, or meta= an empty DataFrame "
    "or Series like what it returns"
)


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame, Series or Index, of pandas or a library like it.

    Parameters
    ----------
    value : object
        Any.

    Returns
    -------
    bool
    """
    return hasattr(type(value), "iloc") or hasattr(type(value), "to_frame")


def _described(value: Any) -> str:
    """Return kind and columns of a frame, or the kind of anything else."""
    columns = getattr(value, "columns", None)
    if columns is not None:
        return f"a DataFrame with columns {list(columns)}"
    if not is_frame(value):
        return f"a {type(value).__name__}"
    return "a Series" if hasattr(type(value), "iloc") else "an Index"


def map_over(
    partition: Partition, template: Template, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Run at a location: apply a function to each block, and check what it returns."""
    made = []
    for index, block in partition.items():
        result = fn(block, *args, **kwargs)
        if not getattr(result, "shape", hasattr(result, "__len__")):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {result!r} for block {index}, and it has to "
                "return a row for each row of the block; to compute one value for each block, "
                "start a task on each partition"
            )
        if (rows := count_rows(result)) != count_rows(block):
            raise InvalidArgumentError(
                f"map_blocks: the function returned {rows} rows for block {index} of "
                f"{count_rows(block)} rows; it has to return one for each"
            )
        template.check(result, index)
        made.append(result)
    return made


def placed_results(
    grid: BlockGrid, results: Iterable[tuple[Partition, Any]]
) -> list[tuple[npt.NDArray[np.int64], Any]]:
    """Return which blocks each result is of, having checked that every block has one.

    Parameters
    ----------
    grid : BlockGrid
        Of the collection that was split.
    results : iterable of (Partition, future)
        Partitions, each with what will be its result.

    Raises
    ------
    InvalidArgumentError
        If the partitions do not cover every block once, or the blocks form columns.
    """
    if grid.nblocks != grid.shape[0]:
        raise InvalidArgumentError(
            f"a grid of {grid.shape} blocks: only collections of one block along every "
            "axis but the first can be assembled"
        )
    placed = [(partition.indexes.positions, future) for partition, future in results]
    covered = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in placed)])
    if not np.array_equal(np.sort(covered), np.arange(grid.nblocks)):
        raise InvalidArgumentError(
            "the partitions do not cover every block once; give the results of all "
            "partitions of one iteration over this Split"
        )
    return placed
