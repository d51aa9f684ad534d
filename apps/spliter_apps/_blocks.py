"""Validate blocks of points at their location, and determine their schema.

The checks are scikit-learn's own (``check_array``); its errors are translated into ours, with
the index of the invalid block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import check_array

from spliter import InvalidArgumentError, Partition
from spliter_apps._differences import (
    Names,
    check_same_columns,
    check_same_number,
    column_names,
    refuse_masked,
)

FLOATS = (np.float64, np.float32)
"""Dtypes of points that are kept; all others are converted to float64."""


@dataclass(frozen=True)
class Schema:
    """Properties shared by the blocks of a collection of points.

    n_items: Total number of rows.
    n_features: Number of columns.
    columns: Names of the columns; ``None`` if they have none.
    dtype: float32 if all blocks are, else float64.
    is_sparse: Whether at least one block is sparse.
    """

    n_items: int
    n_features: int
    columns: Names
    dtype: np.dtype[Any]
    is_sparse: bool = False

    def merged(self, other: Schema) -> Schema:
        """Return the common schema of these blocks and others."""
        what = "all blocks of points"
        check_same_columns(self.columns, other.columns, what)
        check_same_number(self.n_features, other.n_features, what)
        return Schema(
            self.n_items + other.n_items,
            self.n_features,
            self.columns,
            np.result_type(self.dtype, other.dtype),
            self.is_sparse or other.is_sparse,
        )


def check_points(block: Any, what: str, *, accept_sparse: bool = False) -> Any:
    """Return a block as an array of finite floats; the block itself if it is one already.

    `what` names the block in errors. float32 is kept, any other dtype becomes float64.

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
    """Convert a validated block to an array of the given dtype; the block itself if it has that."""
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


def inspect(partition: Partition) -> Schema:
    """Check the blocks of a partition, at its location, and return their common schema."""
    found: Schema | None = None
    for index, block in partition.items():
        schema = block_schema(index, block)
        found = schema if found is None else found.merged(schema)
    assert found is not None, "a partition has at least one block"
    return found


def block_schema(index: tuple[int, ...], block: Any) -> Schema:
    """Check one block, or the points of a tuple, and return its schema."""
    points = block[0] if isinstance(block, tuple) else block
    checked = check_points(points, f"block {index}", accept_sparse=True)
    return Schema(
        checked.shape[0],
        checked.shape[1],
        column_names(points),
        checked.dtype,
        sparse.issparse(checked),
    )


def keep_schema(estimator: Any, schema: Schema) -> None:
    """Keep the number and the names of the columns that an estimator was fitted on, in blocks."""
    estimator.n_features_in_ = schema.n_features
    estimator._columns = schema.columns
    if schema.columns and all(isinstance(name, str) for name in schema.columns):
        estimator.feature_names_in_ = np.asarray(schema.columns, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
