"""``CascadeSVM``: a support vector classifier of distributed points, trained as a cascade.

The numerical steps are in :mod:`spliter_apps.svm.kernel`, the loop over partitions in
:mod:`spliter_apps.svm.loop`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from spliter_apps._blocks import keep_schema
from spliter_apps._data import Data, Materialize, is_blocked, open_data
from spliter_apps._differences import refuse_masked
from spliter_apps._requirements import validated
from spliter_apps.svm.balance import SAMPLE_ROWS
from spliter_apps.svm.inspection import DataSummary
from spliter_apps.svm.kernel import SupportSet, support
from spliter_apps.svm.loop import Cascade, inspect_data
from spliter_apps.svm.predictions import check_labelled, predict_blocks, score_blocks
from spliter_apps.svm.settings import needs_variance, scale_svc, unfitted_svc

Array: TypeAlias = npt.NDArray[Any]

BLOCK_ROWS = 1_024
"""Rows per block when a longer array in memory is cut, so that partitions are even."""


class CascadeSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """C-support vector classification of points in blocks.

    Each partition trains a :class:`sklearn.svm.SVC` on its own points, in place. The support
    vectors and the points close to the margins are merged, a few sets at a time, and trained
    again, until one set is left: the solution. It is fed back to the partitions, which return
    the points that violate its margins, and trained again with these. Training ends when there
    are no such points, or the dual objective converges (after Graf, Cosatto, Bottou, Dourdanovic
    and Vapnik, "Parallel Support Vector Machines: The Cascade SVM", 2004). Only merged and
    fed-back points move. If a cascade would save little or nothing, all points are sent to one
    location, which trains one SVC.

    Parameters
    ----------
    C : float, default 1.0
        Regularisation, as for SVC: strictly positive, smaller is stronger.
    kernel : {"linear", "poly", "rbf", "sigmoid"} or callable, default "rbf"
        As for SVC. A callable gets two arrays of points and returns their kernel matrix; it
        must be picklable if the engine uses several processes.
    degree : int, default 3
        Degree of the kernel "poly".
    gamma : {"scale", "auto"} or float, default "scale"
        Coefficient of the kernels "rbf", "poly" and "sigmoid". "scale" is
        ``1 / (n_features * X.var())`` with the variance of *all* points, also in
        partitions; "auto" is ``1 / n_features``.
    coef0 : float, default 0.0
        Constant of the kernels "poly" and "sigmoid".
    shrinking : bool, default True
        Whether libsvm uses its shrinking heuristic.
    class_weight : dict of label to float, or "balanced", optional
        Factor of `C` for each class; "balanced" uses the class frequencies in all data.
    cascade_arity : int, default 2
        Sets of support vectors merged by one task.
    max_iter : int, default 5
        Maximum number of iterations of the cascade, including the first; -1 for no limit.
    tol : float, default 1e-3
        Relative tolerance of the dual objective: the cascade has converged when the objective
        cannot rise, or has not risen, by more than this.
    svc_tol : float, default 1e-3
        Tolerance of each SVC, within which points count as on the margin.
    svc_max_iter : int, default -1
        Maximum number of iterations of libsvm for each SVC; -1 for no limit.
    cache_size : float, default 200
        Megabytes of kernel cache of each SVC; a location trains one SVC per partition at the
        same time.
    decision_function_shape : {"ovr", "ovo"}, default "ovr"
        As for SVC: one decision value per class, or one per pair of classes.
    break_ties : bool, default False
        As for SVC: whether ties between more than two classes are broken by decision
        values.
    materialize : bool or "auto", default "auto"
        Whether the blocks of each partition are concatenated once and kept during :meth:`fit`,
        or concatenated in every pass. Training needs one array, so "auto" keeps it. For a
        Split, its own setting applies.
    cascade : bool or "auto", default "auto"
        ``True`` trains a cascade, ``False`` one SVC on all points, at one location. "auto"
        estimates from a sample of 2,048 points how many kernel evaluations a cascade saves, and
        trains one if that is worth its additional tasks. Data no larger than the sample: one SVC.
    probability : False
        For compatibility with scikit-learn. For probabilities, wrap the estimator in
        :class:`sklearn.calibration.CalibratedClassifierCV`.
    random_state : int, RandomState or None, default None
        For compatibility with scikit-learn, without effect: training is deterministic.

    Attributes
    ----------
    estimator_ : SVC
        The last SVC trained, which makes all predictions: an ordinary SVC with the classes of
        all data and a number for gamma.
    classes_ : ndarray, shape (n_classes,)
        The labels, sorted.
    support_ : ndarray of int64, shape (n_support,)
        Row numbers of the support vectors in the whole collection, by class.
    support_vectors_ : ndarray or CSR matrix of float64, shape (n_support, n_features)
        The support vectors.
    n_support_ : ndarray of int32, shape (n_classes,)
        Number of support vectors of each class.
    dual_coef_ : ndarray or CSR matrix of float64, shape (n_classes - 1, n_support)
        Coefficients of the support vectors, in the layout of SVC.
    intercept_ : ndarray of float64, shape (n_classes * (n_classes - 1) / 2,)
        Constants of the decision functions.
    coef_ : ndarray or CSR matrix of float64, shape (n_pairs, n_features)
        Weights of the features; only with the linear kernel.
    n_iter_ : int
        Iterations of the cascade; 1 if one SVC was trained on all points.
    converged_ : bool
        Whether the optimum was reached within `tol`: neither `max_iter` nor `svc_max_iter` ended
        the training.
    objective_ : ndarray of float64, shape (n_iter_,)
        The dual objective after each iteration, summed over pairs of classes. (Repeated if no
        partition had points to add to the last solution.)
    n_features_in_ : int
        Number of columns of the points.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Column names of DataFrames, if all of them are strings.

    See Also
    --------
    sklearn.svm.SVC : The model trained in each step, for data on one machine.

    Notes
    -----
    *Several classes.* Like libsvm, each SVC trains one machine per pair of classes; a point
    needed by any of them is kept.

    *One SVC.* With one partition, or if `cascade` selects it, the result equals that of SVC on all
    points. A long array in memory is cut, and its cascade is trained by one thread per core.

    *Convergence.* By duality the objective of all data is at most that of a solution plus `C`
    times the slack of each point that is not a support vector. A partition whose slack is within
    its share of `tol` does not train again; when none does, the solution is within `tol` of the
    optimum. (For "sigmoid", and callables that are not positive semidefinite, this is a heuristic.)

    *Reproducibility.* The optimum does not depend on the locations of blocks. Within the
    tolerances results do: objectives differ by `tol` at most, decision values slightly, and a few
    points at the margin may or may not be support vectors. Equal partitions give equal results,
    in any order of tasks.

    *Points close to the margins.* An SVM trained on few points has approximately the margins of
    one trained on all; the error shrinks with the number of points. In the first iteration a
    partition therefore also passes on points outside its margins by less than the expected error,
    ``min(0.5, 25 / sqrt(points))`` of their width. The second iteration then mostly adds nothing.

    *Blocks sorted by class.* A partition with much less than its share of a class trains with a
    sample of all data (at most 2,048 points), weighted to make up for the missing points. The
    sample is sent once to the partitions that need it.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps.svm import CascadeSVM
    >>> X = [np.array([[0.0], [1.0]]), np.array([[4.0]]), np.array([[5.0]])]
    >>> y = [np.array(["low", "low"]), np.array(["high"]), np.array(["high"])]
    >>> model = CascadeSVM(kernel="linear").fit(X, y)
    >>> model.support_vectors_
    array([[4.],
           [1.]])
    >>> model.support_
    array([2, 1])
    >>> model.predict([[2.4], [2.6]])
    array(['low', 'high'], dtype='<U4')
    >>> model.predict([np.array([[2.0]]), np.array([[7.0], [8.0]])])
    [array(['low'], dtype='<U4'), array(['high', 'high'], dtype='<U4')]
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: Literal["linear", "poly", "rbf", "sigmoid"] | Callable[..., Array] = "rbf",
        degree: int = 3,
        gamma: Literal["scale", "auto"] | float = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        cascade_arity: int = 2,
        max_iter: int = 5,
        tol: float = 1e-3,
        svc_tol: float = 1e-3,
        svc_max_iter: int = -1,
        cache_size: float = 200,
        decision_function_shape: Literal["ovr", "ovo"] = "ovr",
        break_ties: bool = False,
        materialize: Materialize = "auto",
        cascade: bool | Literal["auto"] = "auto",
        probability: Literal[False] = False,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.class_weight = class_weight
        self.cascade_arity = cascade_arity
        self.max_iter = max_iter
        self.tol = tol
        self.svc_tol = svc_tol
        self.svc_max_iter = svc_max_iter
        self.cache_size = cache_size
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.materialize = materialize
        self.cascade = cascade
        self.probability = probability
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: sparse points are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CascadeSVM:
        """Train on points and labels.

        Parameters
        ----------
        X : array_like, sparse matrix, blocked collection or Split, of shape (n, n_features)
            Points: in memory as accepted by scikit-learn, or in blocks as accepted by
            :func:`spliter.split`. A Split must include the labels, and the weights if there
            are any: ``split(X, y)``, ``split(X, y, sample_weight)``.
        y : array_like or blocked collection of shape (n,)
            Labels, in memory or blocked like the points; omitted for a Split.
        sample_weight : array_like or blocked collection of shape (n,), optional
            Factor of `C` for each item. Items whose weight is not positive are ignored, as in
            SVC.

        Returns
        -------
        CascadeSVM
            The fitted estimator.

        Raises
        ------
        InvalidArgumentError
            If a parameter, points, labels or weights are invalid: for example NaN and infinity,
            masked elements, columns that differ from block to block, a single class, a class
            without a positive weight, labels that are not classes.
            A ``ValueError``; for data in memory it may be scikit-learn's own.
        AlignmentError
            If labels or weights are not blocked like the points.
        UnsupportedCollectionError, LazyCollectionError, BlockLostError
            As for :func:`spliter.split`.

        Warns
        -----
        ConvergenceWarning
            If training stopped at `max_iter`, or the last SVC at `svc_max_iter`.
        """
        svc = unfitted_svc(self)
        with self._open(X, y, sample_weight) as data:
            data.parts.resolve_item_indexes()
            summary = inspect_data(data.parts, needs_variance(svc))
            if not data.in_memory:
                keep_schema(self, summary.schema)
            svc = scale_svc(svc, summary)
            cascade = Cascade(svc, summary, self.cascade_arity, self.tol, self.cascade)
            solution = cascade.run(data.parts, self.max_iter)
        self._keep(solution, summary)
        return self

    def _open(self, X: Any, y: Any, sample_weight: Any) -> Data:
        if not is_blocked(X):
            X, y = validated(
                self,
                X,
                y,
                dtype=np.float64,
                order="C",
                accept_sparse="csr",
                accept_large_sparse=False,
            )
            if sample_weight is not None:
                refuse_masked(sample_weight, "sample_weight")
                sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        materialize = True if self.materialize == "auto" else self.materialize
        rows = X.shape[0] if not is_blocked(X) else 0
        # Uncut, small data get moments that are bitwise equal to those of SVC.
        one_piece = not self.cascade or rows <= SAMPLE_ROWS
        data = open_data(
            X,
            y,
            sample_weight,
            materialize=materialize,
            block_rows=max(rows, 1) if one_piece else BLOCK_ROWS,
        )
        check_labelled(data)
        return data

    def _keep(self, solution: SupportSet, summary: DataSummary) -> None:
        """Set the fitted attributes."""
        model = solution.model
        assert model is not None
        kept = support(solution)
        # The model was trained on class numbers.
        model.classes_ = self.classes_ = summary.classes
        if self.class_weight is not None:
            by_label = zip(summary.classes.tolist(), model.class_weight_.tolist(), strict=True)
            model.set_params(class_weight=dict(by_label))
        self.estimator_ = model
        self.support_ = kept.indexes
        self.support_vectors_ = kept.points
        self.n_support_ = model.n_support_
        self.dual_coef_ = model.dual_coef_
        self.intercept_ = model.intercept_
        self.objective_ = np.array(solution.objectives)
        self.n_iter_ = len(solution.objectives)
        self.converged_ = solution.converged and not model.fit_status_
        if not solution.converged:
            warnings.warn(
                f"the cascade did not converge in {self.n_iter_} iterations (objectives "
                f"{self.objective_}); increase max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        if model.fit_status_:
            warnings.warn(
                f"the last SVC did not converge in svc_max_iter={self.svc_max_iter} iterations; "
                "increase it, or scale the points",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def coef_(self) -> Any:
        """Weights of the features; raises ``AttributeError`` unless the kernel is linear."""
        return self.estimator_.coef_

    def predict(self, X: Any) -> Any:
        """Return the label of each point.

        Parameters
        ----------
        X : array_like, sparse matrix, blocked collection or Split, of shape (n, n_features)
            Points; the first collection of a Split.

        Returns
        -------
        ndarray of shape (n,), or collection
            Labels; for blocked points a collection of the same engine with the same blocks.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If the columns of the points differ from those of the fit, or values are invalid.
        """
        check_is_fitted(self)
        if is_blocked(X):
            return predict_blocks(self, "predict", X, dtype=self.classes_.dtype)
        return self.estimator_.predict(self._validate(X))

    def decision_function(self, X: Any) -> Any:
        """Return the decision values of each point.

        Parameters
        ----------
        X : array_like, sparse matrix, blocked collection or Split, of shape (n, n_features)
            Points; the first collection of a Split.

        Returns
        -------
        ndarray of float64, or collection
            Shape (n,) for two classes, positive for the second one; else (n, n_classes),
            or (n, n_classes * (n_classes - 1) / 2) for ``decision_function_shape="ovo"``. For
            blocked points a collection with the same blocks.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If the columns of the points differ from those of the fit, or values are invalid.
        """
        check_is_fitted(self)
        if not is_blocked(X):
            return self.estimator_.decision_function(self._validate(X))
        nclasses = len(self.classes_)
        if nclasses == 2:
            return predict_blocks(self, "decision_function", X, dtype=float)
        ovr = self.estimator_.decision_function_shape == "ovr"
        width = nclasses if ovr else nclasses * (nclasses - 1) // 2
        return predict_blocks(self, "decision_function", X, dtype=float, width=width)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy: the (weighted) share of correctly classified points.

        Parameters
        ----------
        X : array_like, sparse matrix, blocked collection or Split, of shape (n, n_features)
            Points; a Split must include the labels, and the weights if there are any.
        y : array_like or blocked collection of shape (n,)
            True labels, in memory or blocked like the points; omitted for a Split.
        sample_weight : array_like or blocked collection of shape (n,), optional
            Weights of the points.

        Returns
        -------
        float

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If points, labels or weights are invalid.
        """
        check_is_fitted(self)
        if is_blocked(X):
            return score_blocks(self, X, y, sample_weight)
        refuse_masked(y, "y")
        refuse_masked(sample_weight, "sample_weight")
        return float(super().score(X, y, sample_weight))

    def _validate(self, X: Any) -> Any:
        return validated(
            self,
            X,
            reset=False,
            dtype=np.float64,
            order="C",
            accept_sparse="csr",
            accept_large_sparse=False,
        )
