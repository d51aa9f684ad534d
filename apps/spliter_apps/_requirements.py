"""Check points to predict for: like those of the fit, in memory or in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
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


def check_number(name: str, value: Any) -> None:
    """Reject a parameter that is no number >= 0; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
        raise InvalidArgumentError(f"{name} must be a number >= 0, got {value!r}")


@dataclass(frozen=True)
class Requirements:
    """Requirements of a fitted estimator for blocks passed to its predictions.

    estimator: Class name of the estimator, for errors.
    n_features: Number of columns in the training data.
    columns: Their names in the training data, or in the first block if the former have none.
    dtype: Dtype to compute in.
    accept_sparse: Whether sparse matrices are accepted.
    like_first: Whether `columns` are those of the first block.
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
        """Return the requirements of a fitted estimator that computes in a dtype."""
        return cls(
            type(estimator).__name__,
            estimator.n_features_in_,
            getattr(estimator, "_columns", None),
            np.dtype(dtype),
            accept_sparse,
        )

    def of_blocks(self, parts: Split) -> Any:
        """Return the requirements for the blocks of a Split, as an argument of tasks.

        A future if the training data had no names of columns: the blocks must then have the columns
        of the first one.
        """
        extent = parts.grid.extent
        if len(extent) == 2 and extent[1] is not None:
            self.check_columns(extent[1], None)
        return self if self.columns is not None else _like_first_block(parts[0], self)

    def check_columns(self, n_features: int, columns: Names) -> None:
        """Reject columns other than those of the training data, with scikit-learn's messages.

        Names are compared if both sides have them.
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
        """Validate a block, at its location, and convert it to the dtype to compute in."""
        checked = check_points(block, "a block to predict for", accept_sparse=self.accept_sparse)
        self.check_columns(checked.shape[1], column_names(block))
        return checked.astype(self.dtype, copy=False)


@task
def _like_first_block(partition: Partition, requirements: Requirements) -> Requirements:
    """Return requirements with the names of the columns of one block."""
    _, block = next(iter(partition.items()))
    points = block[0] if isinstance(block, tuple) else block
    return replace(requirements, columns=column_names(points), like_first=True)
