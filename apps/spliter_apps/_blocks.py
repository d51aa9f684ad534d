"""Validate blocks of points at their location, and determine their schema.

The checks are scikit-learn's own (``check_array``); its errors are translated into ours, with
the index of the invalid block.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import check_array

from spliter import InvalidArgumentError, Partition, Split, gather, task
from spliter_apps._differences import Names, check_same_columns, column_names, refuse_masked

FLOATS = (np.float64, np.float32)
"""Dtypes of points that are kept; all others are converted to float64."""


@dataclass(frozen=True)
class Schema:
    """Properties shared by the blocks of a collection of points.

    Parameters
    ----------
    n_items : int
        Total number of rows.
    n_features : int
        Number of columns.
    columns : tuple or None
        Names of the columns; ``None`` if they have none.
    dtype : dtype
        float32 if all blocks are, else float64.
    is_sparse : bool
        Whether at least one block is sparse.
    """

    n_items: int
    n_features: int
    columns: Names
    dtype: np.dtype[Any]
    is_sparse: bool = False

    def merged(self, other: Schema) -> Schema:
        """Return the common schema of these blocks and others.

        Raises
        ------
        InvalidArgumentError
            If their columns differ.
        """
        check_same_columns(self.columns, other.columns, "all blocks of points")
        if self.n_features != other.n_features:
            raise InvalidArgumentError(
                f"all blocks of points must have the same number of columns, got {self.n_features} "
                f"and {other.n_features}"
            )
        return Schema(
            self.n_items + other.n_items,
            self.n_features,
            self.columns,
            np.result_type(self.dtype, other.dtype),
            self.is_sparse or other.is_sparse,
        )


def check_points(block: Any, what: str, *, accept_sparse: bool = False) -> Any:
    """Return a block as an array of finite floating point numbers.

    Parameters
    ----------
    block : ndarray, DataFrame or sparse matrix of shape (n, n_features)
    what : str
        Name of the block in errors.
    accept_sparse : bool
        Whether sparse matrices are accepted.

    Returns
    -------
    ndarray or CSR matrix
        float32 or float64; the block itself if it is such an array already.

    Raises
    ------
    InvalidArgumentError
        If it is not two-dimensional, not numeric (as dates), has masked elements, or NaN or
        infinity.

    Examples
    --------
    >>> check_points(np.array([[1, 2]]), "block (0,)")
    array([[1., 2.]])
    """
    refuse_masked(block, what)
    if any(getattr(dtype, "kind", None) in {"M", "m"} for dtype in _dtypes(block)):
        raise InvalidArgumentError(
            f"{what}: dates and durations have a unit, which may differ by block; convert them to "
            "numbers first"
        )
    if _is_plain(block) and np.isfinite(_quick_sum(block)):
        return block  # most blocks: skip the slow checks of check_array
    if hasattr(block, "iloc") and block.ndim == 2 and not block.shape[1]:
        block = block.to_numpy(np.float64)  # scikit-learn finds no dtype in such a frame
        if not len(block):
            return block  # compared with the columns of other blocks; alone, refused as no rows
    try:
        return check_array(
            block,
            accept_sparse="csr" if accept_sparse else False,
            dtype=list(FLOATS),
            ensure_min_samples=0,
            input_name="X",
        )
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{what}: {error}") from error


def _dtypes(block: Any) -> Iterable[Any]:
    """Return the dtypes of the columns of a frame, or the dtype of anything else."""
    return block.dtypes if hasattr(block, "iloc") else (getattr(block, "dtype", None),)


def _is_plain(block: Any) -> bool:
    return (
        type(block) is np.ndarray
        and block.dtype in FLOATS
        and block.dtype.isnative
        and block.ndim == 2
        and block.shape[1] > 0
    )


def _quick_sum(block: npt.NDArray[Any]) -> Any:
    """Sum all elements: the sum is not finite if an element is not (or if it overflows)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return block.sum()


def points_of(block: Any, dtype: npt.DTypeLike) -> Any:
    """Convert a validated block to an array of the given dtype.

    Parameters
    ----------
    block : ndarray, DataFrame or sparse matrix of shape (n, n_features)
    dtype : dtype
        float32 or float64.

    Returns
    -------
    ndarray or CSR matrix
        The block itself if it has that dtype already.
    """
    if type(block) is np.ndarray and block.dtype == dtype:
        return block  # fast path: most blocks, and there may be very many
    if hasattr(block, "tocsr"):
        return block.tocsr().astype(dtype, copy=False)
    if hasattr(block, "iloc"):
        return block.to_numpy(dtype=dtype)
    return np.asarray(block, dtype=dtype)


def dense(points: Any) -> Any:
    """Return points as a dense array.

    Examples
    --------
    >>> dense(sparse.csr_array(np.eye(1)))
    array([[1.]])
    """
    # scipy-stubs: the type that issparse() narrows to has no method toarray().
    return points.toarray() if hasattr(points, "toarray") else points


def inspect(partition: Partition, *, accept_sparse: bool = False) -> Schema:
    """Check the blocks of a partition, at its location, and return their schema.

    Parameters
    ----------
    partition : Partition
        Blocks of points, or tuples whose first element is points.
    accept_sparse : bool
        Whether sparse matrices are accepted.

    Returns
    -------
    Schema
        Common schema of this partition's blocks.

    Raises
    ------
    InvalidArgumentError
        If a block cannot be used; names the first one.
    """
    found: Schema | None = None
    for index, block in partition.items():
        schema = block_schema(index, block, accept_sparse=accept_sparse)
        found = schema if found is None else found.merged(schema)
    assert found is not None, "a partition has at least one block"
    return found


def block_schema(index: tuple[int, ...], block: Any, *, accept_sparse: bool) -> Schema:
    """Check one block and return its schema.

    Parameters
    ----------
    index : tuple of int
        Block index, for errors.
    block : ndarray, DataFrame or sparse matrix, or tuple
        Points, or a tuple whose first element is points.
    accept_sparse : bool
        Whether sparse matrices are accepted.

    Raises
    ------
    InvalidArgumentError
        If the block cannot be used.
    """
    points = block[0] if isinstance(block, tuple) else block
    checked = check_points(points, f"block {index}", accept_sparse=accept_sparse)
    return Schema(
        checked.shape[0],
        checked.shape[1],
        column_names(points),
        checked.dtype,
        sparse.issparse(checked),
    )


inspect_task = task(inspect)


def describe(parts: Split, *, accept_sparse: bool = False) -> Schema:
    """Check all blocks of a Split of points, in one pass, and return their schema.

    Parameters
    ----------
    parts : Split
        Yields points, or tuples whose first element is points.
    accept_sparse : bool
        Whether sparse matrices are accepted.

    Returns
    -------
    Schema
        Schema of the whole collection.

    Raises
    ------
    InvalidArgumentError
        If a block cannot be used or two blocks differ; says which or how.
    """
    schemas: list[Schema] = gather(
        [inspect_task(part, accept_sparse=accept_sparse) for part in parts]
    )

    return functools.reduce(Schema.merged, schemas)


def keep_schema(estimator: Any, schema: Schema) -> None:
    """Keep the number and the names of the columns that an estimator was fitted on, in blocks.

    Parameters
    ----------
    estimator : estimator
        The estimator being fitted.
    schema : Schema
        Schema of its training points.
    """
    estimator.n_features_in_ = schema.n_features
    estimator._columns = schema.columns
    if schema.columns and all(isinstance(name, str) for name in schema.columns):
        estimator.feature_names_in_ = np.asarray(schema.columns, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
