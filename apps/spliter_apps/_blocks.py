"""Validate blocks of points at their location, and determine their schema.

The checks are scikit-learn's own (``check_array``); its errors are translated into ours, with
the index of the invalid block.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import check_array

from spliter import InvalidArgumentError, Partition, Split, gather, task

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
    feature_names : tuple of str, or None
        Column names of DataFrames, if all of them are strings.
    dtype : dtype
        float32 if all blocks are, else float64.
    is_sparse : bool
        Whether at least one block is sparse.
    """

    n_items: int
    n_features: int
    feature_names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    is_sparse: bool = False

    def merged(self, other: Schema) -> Schema:
        """Return the common schema of these blocks and others.

        Raises
        ------
        InvalidArgumentError
            If their columns differ.
        """
        if self.n_features != other.n_features:
            raise InvalidArgumentError(
                f"all blocks of points must have the same number of columns, got {self.n_features} "
                f"and {other.n_features}"
            )
        if self.feature_names != other.feature_names:
            raise InvalidArgumentError(
                f"all blocks of points must have the same columns, got {self.feature_names} and "
                f"{other.feature_names}"
            )
        return Schema(
            self.n_items + other.n_items,
            self.n_features,
            self.feature_names,
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
        If it is not two-dimensional, not numeric, has masked elements, or NaN or infinity.

    Examples
    --------
    >>> check_points(np.array([[1, 2]]), "block (0,)")
    array([[1., 2.]])
    """
    if np.ma.is_masked(block):
        raise InvalidArgumentError(
            f"{what}: masked elements are not supported; fill them, or remove their rows"
        )
    if _is_plain(block) and np.isfinite(_quick_sum(block)):
        return block  # most blocks: skip the slow checks of check_array
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
        _feature_names(points),
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


def _feature_names(points: Any) -> tuple[str, ...] | None:
    columns = getattr(points, "columns", None)
    if columns is None or not all(isinstance(column, str) for column in columns):
        return None
    return tuple(columns)


def keep_schema(estimator: Any, schema: Schema) -> None:
    """Set ``n_features_in_`` and ``feature_names_in_`` of an estimator fitted on blocks.

    Parameters
    ----------
    estimator : estimator
        The estimator being fitted.
    schema : Schema
        Schema of its training points.
    """
    estimator.n_features_in_ = schema.n_features
    if schema.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


@dataclass(frozen=True)
class Requirements:
    """Requirements of a fitted estimator for blocks passed to its predictions.

    Parameters
    ----------
    estimator : str
        Class name of the estimator, for errors.
    n_features : int
        Number of columns in the training data.
    feature_names : tuple of str, or None
        Column names of the training data, if it had any.
    dtype : dtype
        Dtype to compute in.
    accept_sparse : bool
        Whether sparse matrices are accepted.
    """

    estimator: str
    n_features: int
    feature_names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    accept_sparse: bool = False

    @classmethod
    def by(
        cls, estimator: Any, dtype: npt.DTypeLike = np.float64, *, accept_sparse: bool = False
    ) -> Requirements:
        """Return the requirements of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        dtype : dtype
            Dtype it computes in.
        accept_sparse : bool
            Whether it accepts sparse matrices.

        Returns
        -------
        Requirements
            Small and picklable, to be sent to the blocks.
        """
        names = getattr(estimator, "feature_names_in_", None)
        return cls(
            type(estimator).__name__,
            estimator.n_features_in_,
            None if names is None else tuple(names),
            np.dtype(dtype),
            accept_sparse,
        )

    def check_columns(self, n_features: int, feature_names: tuple[str, ...] | None) -> None:
        """Reject columns other than those of the training data, with scikit-learn's messages.

        Parameters
        ----------
        n_features : int
            Number of columns.
        feature_names : tuple of str, or None

        Raises
        ------
        InvalidArgumentError
            If the number of columns differs, or both sides have names and these differ.
        """
        if None not in (names := (feature_names, self.feature_names)) and names[0] != names[1]:
            raise InvalidArgumentError(
                "The feature names should match those that were passed during fit: got "
                f"{names[0]}, and {self.estimator} was fitted with {names[1]}."
            )
        if n_features != self.n_features:
            raise InvalidArgumentError(
                f"X has {n_features} features, but {self.estimator} is expecting "
                f"{self.n_features} features as input."
            )

    def check_grid(self, parts: Split) -> None:
        """Reject a Split with a wrong number of columns, if it is known without its blocks.

        Parameters
        ----------
        parts : Split
            Points to predict for.

        Raises
        ------
        InvalidArgumentError
            If the number of columns is known and differs.
        """
        extent = parts.grid.extent
        if len(extent) == 2 and extent[1] is not None:
            self.check_columns(extent[1], None)

    def points(self, block: Any) -> Any:
        """Validate a block, at its location, and convert it to the dtype to compute in.

        Parameters
        ----------
        block : ndarray, DataFrame or sparse matrix
            Points to predict for.

        Raises
        ------
        InvalidArgumentError
            If the block does not meet the requirements.
        """
        checked = check_points(block, "a block to predict for", accept_sparse=self.accept_sparse)
        self.check_columns(checked.shape[1], _feature_names(block))
        return checked.astype(self.dtype, copy=False)
