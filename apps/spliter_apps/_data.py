"""Split the input of an estimator: points, labels and weights, in memory or in blocks.

Input is either *in memory* (an array, a DataFrame, a sparse matrix, nested lists: what
scikit-learn takes) or *blocked* (a :class:`spliter.Split`, or a collection that
:func:`spliter.split` takes). Arrays in memory are cut into views and split in this process,
so that estimators need only one code path, on partitions. In-memory labels and weights of blocked
points are sent to the blocks (:func:`~spliter_apps._row_values.block_like`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from spliter import InvalidArgumentError, Split, is_collection, split
from spliter_apps._row_values import check_columns, split_with

Materialize: TypeAlias = bool | Literal["auto"]

BLOCK_ROWS = 65_536
"""Default number of rows per block when an array in memory is cut."""


def is_blocked(X: Any) -> bool:
    """Return whether input is a collection of blocks, as opposed to one array in memory.

    Blocked are a Split, a list whose elements are blocks of points (two-dimensional arrays,
    DataFrames, sparse matrices, an engine's futures), and an engine's own collections. In memory is
    what scikit-learn takes: arrays (also memory maps), DataFrames, sparse matrices, nested lists.

    Examples
    --------
    >>> import numpy as np
    >>> is_blocked(np.zeros((2, 3))), is_blocked([[0, 1], [2, 3]])
    (False, False)
    >>> is_blocked([np.zeros((2, 3)), np.zeros((4, 3))])
    True
    """
    if isinstance(X, Split):
        return True
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return False
    if isinstance(X, list | tuple):
        return bool(X) and _may_be_block(X[0]) and is_collection(X)
    return is_collection(X)


def _may_be_block(element: Any) -> bool:
    """Return whether a list's element can be a block of points, as opposed to a row or a number."""
    if isinstance(element, list | tuple | int | float | str | np.generic):
        return False
    if isinstance(element, np.ndarray):
        return element.ndim == 2
    # A Series is a row of a nested list. hasattr() is called on the type, because Dask's delayed
    # values pretend to have every attribute.
    return not hasattr(type(element), "ndim") or element.ndim == 2


@dataclass(frozen=True)
class Data:
    """An estimator's input, split. A context manager that closes the Split if it owns it.

    parts: Yields blocks of points, or tuples of points, labels and weights.
    in_memory: Whether the input was one array in memory, so that results must be arrays as well.
    owned: Whether the Split was made from the input and has to be closed.
    """

    parts: Split
    in_memory: bool
    owned: bool

    def __enter__(self) -> Data:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the Split if it is owned."""
        if self.owned:
            self.parts.close()

    def gathered(self, collection: Any) -> Any:
        """Return a result in the form of the input: one array if the input was one."""
        return np.concatenate(collection) if self.in_memory else collection


def open_data(
    X: Any,
    *aligned: Any,
    materialize: Materialize = "auto",
    partitions_per_location: int | None = None,
    block_rows: int = BLOCK_ROWS,
    names: Sequence[str] = ("y", "sample_weight"),
) -> Data:
    """Split an estimator's input; lazy collections stay persisted while the result is open.

    `aligned` are labels and weights, called `names` in errors: for blocked points blocked alike, or
    in memory (see :func:`block_like`); for points in memory validated arrays. A Split is used as it
    is, and not closed; it must include them.

    An array in memory is cut into views of `block_rows` rows, and never materialized.
    """
    given = {name: value for name, value in zip(names, aligned, strict=False) if value is not None}
    if isinstance(X, Split):
        for name in given:
            raise InvalidArgumentError(
                f"{name} cannot be passed together with a Split of the points; pass the Split of "
                f"both, split(X, {name}), or the collection itself as X"
            )
        check_columns(X)
        data = Data(X, in_memory=False, owned=False)
    elif is_blocked(X):
        parts = split_with(
            X, given, materialize=materialize, partitions_per_location=partitions_per_location
        )
        data = Data(parts, in_memory=False, owned=True)
    else:
        blocked = [_cut(value, block_rows) for value in (X, *given.values())]
        parts = split(*blocked, partitions_per_location=partitions_per_location, backend="local")
        data = Data(parts, in_memory=True, owned=True)
    return data


def _cut(array: Any, rows: int) -> list[Any]:
    """Cut an array into one or more views (for a sparse matrix, copies)."""
    length = array.shape[0]
    if length <= rows:
        return [array]
    return [array[at : at + rows] for at in range(0, length, rows)]


def check_members(data: Data, ncollections: int, of_what: str) -> None:
    """Reject a Split of the wrong number of collections; `of_what` is how to make the right one."""
    if data.parts.ncollections != ncollections:
        raise InvalidArgumentError(
            f"expected a Split made by {of_what}, got one of {data.parts.ncollections} collections"
        )
