"""Check points to predict for: like those of the fit, in memory or in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from spliter import InvalidArgumentError, Partition, Split, task
from spliter_apps._blocks import check_points
from spliter_apps._differences import Names, check_same_columns, column_names, refuse_masked


def validated(estimator: Any, X: Any, *targets: Any, reset: bool = True, **checks: Any) -> Any:
    """Validate points in memory, and targets if given, with scikit-learn's ``validate_data``.

    Beyond its checks, masked elements are refused, and so are columns whose names are not those of
    the fit, if the names are not strings.

    Parameters
    ----------
    estimator : estimator
        Gets the attributes about its columns if `reset`.
    X, *targets, reset, **checks
        As for ``sklearn.utils.validation.validate_data``.

    Returns
    -------
    ndarray or CSR matrix, or tuple of points and targets

    Raises
    ------
    InvalidArgumentError
        If elements are masked, or columns differ.
    ValueError, TypeError
        Of scikit-learn.
    """
    for name, value in zip(("X", "y"), (X, *targets), strict=False):
        refuse_masked(value, name)
    result = validate_data(estimator, X, *targets, reset=reset, **checks)
    columns = column_names(X)
    if reset:
        estimator._columns = columns
    else:
        Requirements.by(estimator).check_columns(estimator.n_features_in_, columns)
    return result


@dataclass(frozen=True)
class Requirements:
    """Requirements of a fitted estimator for blocks passed to its predictions.

    Parameters
    ----------
    estimator : str
        Class name of the estimator, for errors.
    n_features : int
        Number of columns in the training data.
    columns : tuple or None
        Their names in the training data, or in the first block if the former have none.
    dtype : dtype
        Dtype to compute in.
    accept_sparse : bool
        Whether sparse matrices are accepted.
    like_first : bool
        Whether `columns` are those of the first block.
    """

    estimator: str
    n_features: int
    columns: Names
    dtype: np.dtype[Any]
    accept_sparse: bool = False
    like_first: bool = False

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
        return cls(
            type(estimator).__name__,
            estimator.n_features_in_,
            getattr(estimator, "_columns", None),
            np.dtype(dtype),
            accept_sparse,
        )

    def of_blocks(self, parts: Split) -> Any:
        """Return the requirements for the blocks of a Split, as an argument of tasks.

        Parameters
        ----------
        parts : Split
            Points to predict for.

        Returns
        -------
        Requirements or future
            A future if the training data had no names of columns: the blocks must then have the
            columns of the first one.

        Raises
        ------
        InvalidArgumentError
            If the number of columns is known without the blocks, and differs.
        """
        extent = parts.grid.extent
        if len(extent) == 2 and extent[1] is not None:
            self.check_columns(extent[1], None)
        return self if self.columns is not None else _like_first_block(parts[0], self)

    def check_columns(self, n_features: int, columns: Names) -> None:
        """Reject columns other than those of the training data, with scikit-learn's messages.

        Parameters
        ----------
        n_features : int
            Number of columns.
        columns : tuple or None
            Their names.

        Raises
        ------
        InvalidArgumentError
            If the number of columns differs, or both sides have names and these differ.
        """
        if self.like_first:
            check_same_columns(self.columns, columns, "all blocks to predict for")
        elif None not in (names := (columns, self.columns)) and names[0] != names[1]:
            raise InvalidArgumentError(
                "The feature names should match those that were passed during fit: got "
                f"{names[0]}, and {self.estimator} was fitted with {names[1]}."
            )
        if n_features != self.n_features:
            raise InvalidArgumentError(
                f"X has {n_features} features, but {self.estimator} is expecting "
                f"{self.n_features} features as input."
            )

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
        self.check_columns(checked.shape[1], column_names(block))
        return checked.astype(self.dtype, copy=False)


@task
def _like_first_block(partition: Partition, requirements: Requirements) -> Requirements:
    """Return requirements with the names of the columns of one block."""
    _, block = next(iter(partition.items()))
    points = block[0] if isinstance(block, tuple) else block
    return replace(requirements, columns=column_names(points), like_first=True)
