"""``LinearRegression`` and ``Ridge``: least squares on distributed points by normal equations."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
import sklearn.linear_model
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError, Partition, gather
from spliter_apps._blocks import FLOATS, keep_schema
from spliter_apps._data import Data, check_members, is_blocked, open_data
from spliter_apps._differences import Names, check_same_columns, refuse_masked
from spliter_apps._requirements import Requirements, check_number, validated
from spliter_apps.kmeans.kernel import one_blas_thread
from spliter_apps.kmeans.points import check_point_weights
from spliter_apps.linear.moments import FloatArray, Summary, summarise
from spliter_apps.neighbors.inspection import output_names
from spliter_apps.neighbors.scores import tally_blocks
from spliter_apps.neighbors.votes import ErrorSums


class _NormalEquations(ABC):
    """Least squares over blocks, for scikit-learn's estimators."""

    fit_intercept: bool
    positive: bool
    coef_: npt.NDArray[Any]
    intercept_: Any
    _output_names: Names = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            The points; a :class:`spliter.Split` has to include `y`, and `sample_weight` if any.
        y : array-like or collection of shape (n,) or (n, n_targets)
            The targets; in memory, or blocked like `X`. ``None`` for a Split.
        sample_weight : float, array-like or collection of shape (n,), optional
            Non-negative weight of each point.

        Returns
        -------
        LinearRegression or Ridge
            The fitted estimator.

        Raises
        ------
        InvalidArgumentError
            If points, targets or weights are not finite numbers, do not match or are masked, the
            columns of two blocks differ, or a parameter is invalid. A ``ValueError``.
        AlignmentError, UnsupportedCollectionError, LazyCollectionError, BlockLostError
            As for :func:`spliter.split`.
        """
        self._validate_params()  # type: ignore[attr-defined]
        if self.positive:
            raise InvalidArgumentError(
                "positive=True is not supported: normal equations do not bound coefficients"
            )
        self._check_parameters()
        if not is_blocked(X):
            checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS}
            self._output_names = output_names(y)
            X, y = validated(self, X, y, y_numeric=True, multi_output=True, **checks)
            if sample_weight is not None:
                if isinstance(sample_weight, Real):
                    sample_weight = np.full(X.shape[0], float(sample_weight))
                sample_weight = check_point_weights(sample_weight, X.shape[0], "sample_weight")
        with one_blas_thread(), self._open(X, y, sample_weight) as data:
            found = summarise(data, weighted=data.parts.ncollections == 3)
            if not data.in_memory:
                keep_schema(self, found.schema)
                assert found.targets is not None
                self._output_names = found.targets.names
        self._keep(found)
        return self

    @abstractmethod
    def _check_parameters(self) -> None:
        """Reject parameters that scikit-learn accepts, and normal equations do not."""

    def _open(self, X: Any, y: Any, sample_weight: Any) -> Data:
        data = open_data(X, y, sample_weight, materialize=False)
        if data.parts.ncollections != 3:
            check_members(data, 2, "split(X, y) or split(X, y, sample_weight)")
        return data

    def _keep(self, found: Summary) -> None:
        n_features, dtype = found.schema.n_features, found.schema.dtype
        assert found.targets is not None
        products = found.products(centred=self.fit_intercept)
        coefficients = self._solve(
            products[:n_features, :n_features], products[:n_features, n_features:]
        )
        means = found.moments.mean
        shape = (n_features,) if found.targets.n_outputs is None else (-1, n_features)
        self.coef_ = coefficients.T.reshape(shape).astype(dtype)
        self.intercept_ = 0.0
        if self.fit_intercept:
            intercept = means[n_features:] - means[:n_features] @ coefficients
            one = found.targets.n_outputs is None
            self.intercept_ = dtype.type(intercept[0]) if one else intercept.astype(dtype)

    @abstractmethod
    def _solve(self, gram: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the coefficients, of shape (n_features, n_targets), of normal equations."""

    def predict(self, X: Any) -> Any:
        """Return the values that the model has at points.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n,) or (n, n_targets), or collection
            A collection with the same blocks if `X` is one.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If the columns of `X` differ from those of the fit, or values are not finite.
        """
        check_is_fitted(self)
        if not is_blocked(X):
            return super().predict(X)  # type: ignore[misc]
        with open_data(X, materialize=False) as data:
            check_members(data, 1, "split(X)")
            return data.parts.map_blocks(
                _predict,
                self._requirements().of_blocks(data.parts),
                self.coef_,
                self.intercept_,
                dtype=self.coef_.dtype,
                trailing_shape=self.coef_.shape[:-1],
            )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination of the predictions.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        NotFittedError, InvalidArgumentError
            As for :meth:`predict`.
        """
        check_is_fitted(self)
        if not is_blocked(X):
            refuse_masked(y, "y")
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        with self._open(X, y, sample_weight) as data:
            requirements = self._requirements().of_blocks(data.parts)
            args = (requirements, self.coef_, self.intercept_)
            names, found = zip(*gather(data.parts.map(_score, *args)), strict=True)
        for others in names:
            check_same_columns(names[0], others, "all blocks of y")
        if None not in (names[0], self._output_names):
            check_same_columns(self._output_names, names[0], "y of fit and score")
        total: ErrorSums = functools.reduce(ErrorSums.merged, found)
        return total.r2()

    def _requirements(self) -> Requirements:
        return Requirements.by(self, self.coef_.dtype, accept_sparse=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.array_api_support = False
        return tags


class LinearRegression(_NormalEquations, sklearn.linear_model.LinearRegression):  # type: ignore[misc]
    """Least squares on points in blocks: ``sklearn.linear_model.LinearRegression`` in one pass.

    Parameters and attributes are those of scikit-learn; `positive` is not supported. Where columns
    depend on each other, the coefficients are the smallest ones, as there.

    Notes
    -----
    Normal equations square the condition number of the centred points: if it is above 1e6, use
    scikit-learn on one machine. Singular values less than `tol` times the largest count as zero.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps import LinearRegression
    >>> x, y = (
    ...     [np.array([[0.0], [1.0]]), np.array([[2.0]])],
    ...     [np.array([1.0, 3.0]), np.array([5.0])],
    ... )
    >>> model = LinearRegression().fit(x, y)
    >>> model.coef_.round(6), float(model.intercept_.round(6))
    (array([2.]), 1.0)
    >>> model.predict([np.array([[3.0]])])[0].round(6)
    array([7.])
    """

    def _check_parameters(self) -> None:
        """Accept all."""

    def _solve(self, gram: FloatArray, targets: FloatArray) -> FloatArray:
        values, vectors = np.linalg.eigh(gram)
        largest = values[-1] if len(values) else 0.0
        kept = values > largest * max(self.tol**2, len(values) * np.finfo(float).eps)
        self.rank_ = int(kept.sum())
        self.singular_ = np.sqrt(np.maximum(values[::-1], 0.0))
        if kept.all():
            return _solve_positive(gram, targets)
        return np.asarray(vectors[:, kept] / values[kept] @ (vectors[:, kept].T @ targets))


class Ridge(_NormalEquations, sklearn.linear_model.Ridge):  # type: ignore[misc]
    """Least squares with small coefficients on points in blocks: ``sklearn.linear_model.Ridge``.

    Parameters and attributes are those of scikit-learn; `solver` is ``"auto"`` or ``"cholesky"``,
    and `positive` is not supported. One pass over the data.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps import Ridge
    >>> x, y = (
    ...     [np.array([[0.0], [1.0]]), np.array([[2.0]])],
    ...     [np.array([1.0, 3.0]), np.array([5.0])],
    ... )
    >>> Ridge(alpha=2.0).fit(x, y).coef_
    array([1.])
    """

    def _check_parameters(self) -> None:
        if self.solver not in {"auto", "cholesky"}:
            raise InvalidArgumentError(
                f'solver must be "auto" or "cholesky", got {self.solver!r}; all solve the same '
                "equations"
            )
        for alpha in np.ravel(self.alpha).tolist():
            check_number("alpha", alpha)

    def _solve(self, gram: FloatArray, targets: FloatArray) -> FloatArray:
        penalties = np.ravel(self.alpha).astype(np.float64)
        if penalties.size not in {1, targets.shape[1]}:
            raise InvalidArgumentError(
                "Number of targets and number of penalties do not correspond: "
                f"{penalties.size} != {targets.shape[1]}"
            )
        self.n_iter_, self.solver_ = 1, "cholesky"
        if penalties.size == 1:
            return _solve_penalized(gram, targets, penalties[0])
        columns = zip(penalties, targets.T, strict=True)
        return np.stack([_solve_penalized(gram, one, alpha) for alpha, one in columns], axis=1)


def _solve_positive(gram: FloatArray, targets: FloatArray) -> FloatArray:
    return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram), targets))


def _solve_penalized(gram: FloatArray, targets: FloatArray, alpha: float) -> FloatArray:
    penalized = gram + alpha * np.eye(len(gram))
    try:
        return _solve_positive(penalized, targets)
    except scipy.linalg.LinAlgError:  # dependent columns, and no penalty
        return np.asarray(scipy.linalg.pinvh(penalized) @ targets)


def _predict(
    block: Any, requirements: Requirements, coef: npt.NDArray[Any], intercept: Any
) -> npt.NDArray[Any]:
    """Predict for the points of one block."""
    points = requirements.points(block[0] if isinstance(block, tuple) else block)
    return np.asarray(points @ coef.T + intercept, requirements.dtype)


def _score(
    partition: Partition, requirements: Requirements, coef: npt.NDArray[Any], intercept: Any
) -> tuple[Names, ErrorSums]:
    """Score the predictions for the blocks of a partition; the body of a task."""
    indexes, blocks = zip(*partition.items(), strict=True)
    predicted = [_predict(block, requirements, coef, intercept) for block in blocks]
    truth = [block[1:] for block in blocks]
    names, sums = tally_blocks(np.concatenate(predicted), indexes, truth, ErrorSums.of)
    return names, sums
