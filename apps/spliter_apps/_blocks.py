"""Blocks of points at their location: what they may be, and their schema.

Checks are scikit-learn's own (``check_array``); its errors come back as ours, with the index
of the block that they are about.
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
"""Types that points keep; all others become float64."""


@dataclass(frozen=True)
class Schema:
    """What the blocks of a collection of points have in common.

    Parameters
    ----------
    n_items : int
        Rows of all of them together.
    n_features : int
        Columns.
    feature_names : tuple of str, or None
        Names of the columns, of DataFrames whose column names are all strings.
    dtype : dtype
        float32 if all blocks are, else float64.
    is_sparse : bool
        Whether a block is a sparse matrix.
    """

    n_items: int
    n_features: int
    feature_names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    is_sparse: bool = False

    def merged(self, other: Schema) -> Schema:
        """Return the schema of these blocks and others.

        Parameters
        ----------
        other : Schema
            Of the other blocks.

        Returns
        -------
        Schema
            Of all of them.

        Raises
        ------
        InvalidArgumentError
            If they have other columns.
        """
        if self.n_features != other.n_features:
            raise InvalidArgumentError(
                f"blocks of points have different numbers of columns: {self.n_features} and "
                f"{other.n_features}"
            )
        if self.feature_names != other.feature_names:
            raise InvalidArgumentError(
                f"blocks of points have different columns: {self.feature_names} and "
                f"{other.feature_names}"
            )
        return Schema(
            self.n_items + other.n_items,
            self.n_features,
            self.feature_names,
            np.result_type(self.dtype, other.dtype),
            self.is_sparse or other.is_sparse,
        )


def checked_points(block: Any, what: str, *, accept_sparse: bool = False) -> Any:
    """Return a block as an array of finite floating point numbers.

    Parameters
    ----------
    block : ndarray, DataFrame or sparse matrix of shape (n, n_features)
        Points.
    what : str
        What to call it in errors.
    accept_sparse : bool
        Whether it may be sparse.

    Returns
    -------
    ndarray or CSR matrix
        Of float32 or float64; the block itself where it is one already.

    Raises
    ------
    InvalidArgumentError
        If it is not two-dimensional, not numeric, has masked elements, or NaN or infinity.

    Examples
    --------
    >>> checked_points(np.array([[1, 2]]), "block (0,)")
    array([[1., 2.]])
    """
    if np.ma.is_masked(block):
        raise InvalidArgumentError(
            f"{what}: masked elements have no value to compute with; fill them, or leave their "
            "rows out"
        )
    if _is_plain(block) and np.isfinite(_quick_sum(block)):
        return block  # what nearly every block is: spared a hundred checks of what it is not
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
    """Add up all elements: finite only if they are; if it is not, they may be large."""
    with np.errstate(over="ignore", invalid="ignore"):
        return block.sum()


def points_of(block: Any, dtype: npt.DTypeLike) -> Any:
    """Return a block that has been checked before as an array of one type.

    Parameters
    ----------
    block : ndarray, DataFrame or sparse matrix of shape (n, n_features)
        Points.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    ndarray or CSR matrix
        The block itself where it is one already.
    """
    if type(block) is np.ndarray and block.dtype == dtype:
        return block  # what nearly every block is, of which there may be very many
    if hasattr(block, "tocsr"):
        return block.tocsr().astype(dtype, copy=False)
    if hasattr(block, "iloc"):
        return block.to_numpy(dtype=dtype)
    return np.asarray(block, dtype=dtype)


def dense(points: Any) -> Any:
    """Return points as an array, which they are already unless they are sparse.

    Examples
    --------
    >>> dense(sparse.csr_array(np.eye(1)))
    array([[1.]])
    """
    # scipy-stubs: the type that issparse() narrows to has no method toarray().
    return points.toarray() if hasattr(points, "toarray") else points


def survey(partition: Partition, *, accept_sparse: bool = False) -> Schema:
    """Check the blocks of a partition, at its location, and return their schema.

    Parameters
    ----------
    partition : Partition
        Of points, or of tuples whose first element is points.
    accept_sparse : bool
        Whether they may be sparse.

    Returns
    -------
    Schema
        Of this partition's blocks.

    Raises
    ------
    InvalidArgumentError
        Naming the first block that cannot be used.
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
        Its block index, for errors.
    block : ndarray, DataFrame or sparse matrix, or tuple
        Points, or a tuple whose first element is points.
    accept_sparse : bool
        Whether the points may be sparse.

    Returns
    -------
    Schema
        Of this block.

    Raises
    ------
    InvalidArgumentError
        If it cannot be used.
    """
    points = block[0] if isinstance(block, tuple) else block
    checked = checked_points(points, f"block {index}", accept_sparse=accept_sparse)
    return Schema(
        checked.shape[0],
        checked.shape[1],
        _feature_names(points),
        checked.dtype,
        sparse.issparse(checked),
    )


survey_task = task(survey)


def describe(parts: Split, *, accept_sparse: bool = False) -> Schema:
    """Check all blocks of a Split of points, in one pass, and return their schema.

    Parameters
    ----------
    parts : Split
        Of points, or of points and what goes with them.
    accept_sparse : bool
        Whether they may be sparse.

    Returns
    -------
    Schema
        Of the whole collection.

    Raises
    ------
    InvalidArgumentError
        Naming a block that cannot be used, or how two of them differ.
    """
    surveyed = [survey_task(partition, accept_sparse=accept_sparse) for partition in parts]
    schemas: list[Schema] = gather(surveyed)
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
        Being fitted.
    schema : Schema
        Of its points.
    """
    estimator.n_features_in_ = schema.n_features
    if schema.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


@dataclass(frozen=True)
class Expected:
    """What a fitted estimator expects of a block that it is to predict for.

    Parameters
    ----------
    estimator : str
        Its name, for errors.
    n_features : int
        Columns it was fitted with.
    feature_names : tuple of str, or None
        Their names, if they had any.
    dtype : dtype
        What to compute in.
    accept_sparse : bool
        Whether the block may be sparse.
    """

    estimator: str
    n_features: int
    feature_names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    accept_sparse: bool = False

    @classmethod
    def by(
        cls, estimator: Any, dtype: npt.DTypeLike = np.float64, *, accept_sparse: bool = False
    ) -> Expected:
        """Return what a fitted estimator expects.

        Parameters
        ----------
        estimator : estimator
            Fitted.
        dtype : dtype
            What it computes in.
        accept_sparse : bool
            Whether it takes sparse matrices.

        Returns
        -------
        Expected
            To be sent to where the blocks are.
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
        """Refuse other columns than those of the fit, in scikit-learn's words.

        Parameters
        ----------
        n_features : int
            Columns there are.
        feature_names : tuple of str, or None
            Their names.

        Raises
        ------
        InvalidArgumentError
            If the number differs, or names on both sides do.
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
        """Refuse a Split of another number of columns, where that is known without its blocks.

        Parameters
        ----------
        parts : Split
            Of points to predict for.

        Raises
        ------
        InvalidArgumentError
            If the number of columns is known and differs.
        """
        extent = parts.grid.extent
        if len(extent) == 2 and extent[1] is not None:
            self.check_columns(extent[1], None)

    def points(self, block: Any) -> Any:
        """Return a block, at its location, as an array that fits.

        Parameters
        ----------
        block : ndarray, DataFrame or sparse matrix
            Points to predict for.

        Returns
        -------
        ndarray or CSR matrix of shape (n, n_features)
            In the type to compute in.

        Raises
        ------
        InvalidArgumentError
            If it does not fit.
        """
        checked = checked_points(block, "a block to predict for", accept_sparse=self.accept_sparse)
        self.check_columns(checked.shape[1], _feature_names(block))
        return checked.astype(self.dtype, copy=False)
