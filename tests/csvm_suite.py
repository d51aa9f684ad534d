"""What the Cascade SVM must do on every engine; each engine's test module subclasses it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from spliter import AlignmentError, InvalidArgumentError, split
from spliter_apps.svm import CascadeSVM
from tests.engine_collections import EngineCollections, cut
from tests.kmeans_data import heights

Array = npt.NDArray[Any]

DATASETS = ["digits", "breast cancer", "iris", "blobs"]
NBLOCKS = [1, 7, 200]
MOST_APART = 0.005
"""Difference of accuracies that does not count: half a point."""


@cache
def dataset(name: str) -> tuple[Array, Array, Array, Array]:
    """Points to train on and to test with, and their labels: ``X, X_test, y, y_test``."""
    if name == "blobs":
        X, y = make_blobs(1200, n_features=4, centers=4, cluster_std=3.0, random_state=2)[:2]
    else:
        load = {"digits": load_digits, "breast cancer": load_breast_cancer, "iris": load_iris}
        X, y = load[name](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    parts: list[Array] = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    return parts[0], parts[1], parts[2], parts[3]


def dual_objective(model: SVC) -> float:
    """The dual objective of a two-class SVC, computed as it is written in textbooks."""
    gamma = model._gamma
    support = model.support_vectors_
    squares = ((support[:, None] - support[None]) ** 2).sum(axis=2)
    signed = model.dual_coef_[0]
    return float(np.abs(signed).sum() - 0.5 * signed @ np.exp(-gamma * squares) @ signed)


def rbf(left: Array, right: Array) -> Array:
    """A kernel as users write one."""
    return np.asarray(np.exp(-0.02 * cdist(left, right, "sqeuclidean")))


cascading = partial(CascadeSVM, cascade=True)
"""Makes an estimator that trains a cascade, however few points there are."""


class CascadeSVMTests(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    def both(self, X: Array, y: Array, n_blocks: int) -> tuple[Any, Any]:
        """Return points and labels as collections of the same blocks."""
        rows = heights(len(X), n_blocks)
        return self.collection(X, rows), self.collection(y, rows)

    # --- as good as SVC ---------------------------------------------------------------------

    @pytest.mark.parametrize("n_blocks", NBLOCKS)
    @pytest.mark.parametrize("name", DATASETS)
    def test_accuracy_of_svc(self, name: str, n_blocks: int) -> None:
        X, X_test, y, y_test = dataset(name)
        ours = cascading().fit(*self.both(X, y, n_blocks))
        theirs = SVC().fit(X, y)
        assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= MOST_APART
        np.testing.assert_array_equal(ours.classes_, theirs.classes_)
        # The gamma of all data, not of a partition's.
        assert ours.estimator_.gamma == pytest.approx(theirs._gamma)

    @pytest.mark.parametrize("settings", [{"C": 0.3}, {"C": 10.0}, {"class_weight": "balanced"}])
    def test_objective_of_svc(self, settings: dict[str, Any]) -> None:
        X, _, y, _ = dataset("breast cancer")
        ours = cascading(max_iter=20, tol=1e-6, svc_tol=1e-5, **settings)
        ours.fit(*self.both(X, y, 7))
        theirs = SVC(tol=1e-5, **settings).fit(X, y)
        assert ours.converged_
        assert ours.objective_[-1] == pytest.approx(dual_objective(theirs), rel=1e-3)
        assert len(ours.objective_) == ours.n_iter_

    @pytest.mark.parametrize("kernel", ["linear", "poly", "sigmoid"])
    def test_kernels(self, kernel: Any) -> None:
        X, X_test, y, y_test = dataset("iris")
        ours = cascading(kernel=kernel).fit(*self.both(X, y, 7))
        theirs = SVC(kernel=kernel).fit(X, y)
        assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= 0.05

    @pytest.mark.parametrize("n_blocks", [2, 7])
    @pytest.mark.parametrize("name", ["breast cancer", "iris"])
    @pytest.mark.parametrize("gamma", ["scale", 0.05])
    def test_blocks_sorted_by_class(self, name: str, n_blocks: int, gamma: Any) -> None:
        X, X_test, y, y_test = dataset(name)
        order = np.argsort(y, kind="stable")
        ours = cascading(gamma=gamma).fit(*self.both(X[order], y[order], n_blocks))
        theirs = SVC(gamma=gamma).fit(X, y)
        assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= 0.01

    # --- one SVC, or a cascade --------------------------------------------------------------

    @pytest.mark.parametrize("kernel", ["rbf", rbf])
    def test_few_points_are_left_to_one_svc(self, kernel: Any) -> None:
        X, X_test, y, _ = dataset("breast cancer")
        x, labels = self.both(X, y, 7)
        gamma = 1 / (X.shape[1] * X.var())
        ours = CascadeSVM(kernel=kernel, gamma=gamma).fit(x, labels)
        theirs = SVC(kernel=kernel, gamma=gamma).fit(X, y)
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_array_equal(ours.dual_coef_, theirs.dual_coef_)
        np.testing.assert_array_equal(ours.support_vectors_, X[theirs.support_])
        np.testing.assert_array_equal(ours.predict(X_test), theirs.predict(X_test))
        assert (ours.n_iter_, ours.converged_) == (1, True)

    # --- what it keeps ----------------------------------------------------------------------

    def test_support_is_numbered_in_the_whole_collection(self) -> None:
        X, _, y, _ = dataset("digits")
        ours = cascading().fit(*self.both(X, y, 200))
        np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])
        assert len(np.unique(ours.support_)) == len(ours.support_), "no point twice"
        assert ours.n_support_.sum() == len(ours.support_)
        by_class = np.repeat(ours.classes_, ours.n_support_)
        np.testing.assert_array_equal(y[ours.support_], by_class)

    def test_labels_of_any_kind(self) -> None:
        X, X_test, y, _ = dataset("iris")
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        ours = cascading().fit(*self.both(X, names, 7))
        assert ours.classes_.tolist() == ["setosa", "versicolor", "virginica"]
        numbered = cascading().fit(*self.both(X, y, 7))
        np.testing.assert_array_equal(ours.predict(X_test), ours.classes_[numbered.predict(X_test)])

    def test_predictions_are_blocked_like_the_points(self) -> None:
        X, _, y, _ = dataset("iris")
        x, labels = self.both(X, y, 7)
        ours = cascading(decision_function_shape="ovo").fit(x, labels)
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), ours.predict(X))
        decided = self.gathered(ours.decision_function(x))
        assert decided.shape == (len(X), 3)
        np.testing.assert_allclose(decided, ours.estimator_.decision_function(X))
        assert ours.score(x, labels) == pytest.approx(ours.score(X, y))

    def test_weights_multiply_c(self) -> None:
        X, _, y, _ = dataset("breast cancer")
        rows = heights(len(X), 7)
        weights = np.random.default_rng(0).uniform(0.1, 3, len(X))
        weights[::7] = 0
        x, labels, w = (self.collection(array, rows) for array in (X, y, weights))
        ours = cascading(max_iter=20, tol=1e-6, svc_tol=1e-5).fit(x, labels, w)
        theirs = SVC(tol=1e-5).fit(X, y, weights)
        assert ours.objective_[-1] == pytest.approx(dual_objective(theirs), rel=1e-3)
        assert not np.isin(np.arange(0, len(X), 7), ours.support_).any()
        with split(x, labels, w) as parts:
            again = cascading(max_iter=20, tol=1e-6, svc_tol=1e-5).fit(parts)
        np.testing.assert_array_equal(again.support_, ours.support_)

    def test_labels_and_weights_in_memory(self) -> None:
        X, X_test, y, y_test = dataset("breast cancer")
        weights = np.random.default_rng(0).uniform(0.1, 3, len(X))
        x, labels = self.both(X, y, 7)
        w = self.collection(weights, heights(len(X), 7))
        ours = CascadeSVM().fit(x, y.tolist(), weights)
        same = CascadeSVM().fit(x, labels, w)
        np.testing.assert_array_equal(ours.support_, same.support_)
        np.testing.assert_array_equal(ours.dual_coef_, same.dual_coef_)
        held = self.collection(X_test, heights(len(X_test), 3))
        others = np.linspace(0, 2, len(y_test))
        theirs = SVC().fit(X, y, weights).score(X_test, y_test, others)
        assert ours.score(held, y_test, others) == pytest.approx(theirs)

    def test_the_same_partitions_give_the_same_result(self) -> None:
        X, _, y, _ = dataset("digits")
        with split(*self.both(X, y, 7)) as parts:
            first, second = cascading().fit(parts), cascading().fit(parts)
        np.testing.assert_array_equal(first.support_, second.support_)
        np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)

    def test_sparse_points(self) -> None:
        X, X_test, y, y_test = dataset("iris")
        rows = heights(len(X), 7)
        x = self.blocks([scipy.sparse.csr_array(block) for block in cut(X, rows)])
        ours = cascading().fit(x, self.blocks(cut(y, rows)))
        theirs = SVC().fit(scipy.sparse.csr_array(X), y)
        assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= 0.05
        assert scipy.sparse.issparse(ours.support_vectors_)

    def test_frames(self) -> None:
        X, _, y, _ = dataset("iris")
        rows = heights(len(X), 7)
        frame = pd.DataFrame(X, columns=list("abcd"))
        ours = cascading().fit(self.blocks(cut(frame, rows)), self.blocks(cut(y, rows)))
        assert ours.feature_names_in_.tolist() == list("abcd")
        assert ours.score(frame, y) > 0.9
        with pytest.raises(ValueError, match="feature names should match"):
            ours.predict(frame.rename(columns={"a": "z"}))

    def test_iterations_are_bounded(self) -> None:
        X, _, y, _ = dataset("digits")
        x, labels = self.both(X, y, 7)
        with (
            split(x, labels, partitions_per_location=2) as parts,
            pytest.warns(ConvergenceWarning, match="max_iter"),
        ):
            ours = cascading(max_iter=1).fit(parts)
        assert ours.n_iter_ == 1
        assert not ours.converged_

    @pytest.mark.parametrize("cascade", [True, False])
    def test_svcs_stopped_early_have_not_converged(self, cascade: bool) -> None:
        X, _, y, _ = dataset("breast cancer")
        with pytest.warns(ConvergenceWarning) as caught:
            ours = CascadeSVM(cascade=cascade, svc_max_iter=2).fit(*self.both(X, y, 7))
        # In this process SVC's own are there as well.
        assert any("increase it, or scale" in str(each.message) for each in caught)
        assert not ours.converged_
        assert ours.objective_[-1] < 0.9 * dual_objective(SVC().fit(X, y))

    def test_what_svc_has_that_means_nothing_here_is_accepted(self) -> None:
        X, _, y, _ = dataset("iris")
        settings: dict[str, Any] = {"probability": False, "random_state": 0, "max_iter": -1}
        ours = cascading(**settings).fit(*self.both(X, y, 7))
        assert ours.converged_

    # --- bad input --------------------------------------------------------------------------

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_values_that_are_no_numbers(self, bad: float) -> None:
        X, _, y, _ = dataset("iris")
        X = X.copy()
        X[50, 1] = bad
        with pytest.raises(InvalidArgumentError, match=r"block \(\d"):
            cascading().fit(*self.both(X, y, 7))

    @pytest.mark.parametrize("settings", [{}, {"gamma": 0.1}, {"kernel": "linear"}], ids=str)
    def test_values_too_large_for_their_squares(self, settings: dict[str, Any]) -> None:
        X, _, y, _ = dataset("iris")
        X = np.where(X > 0, 1e200, -1e200)
        with pytest.raises(InvalidArgumentError, match=r"scale the points|large values"):
            cascading(**settings).fit(*self.both(X, y, 7))

    def test_one_class_only(self) -> None:
        X, _, y, _ = dataset("iris")
        with pytest.raises(InvalidArgumentError, match="class"):
            cascading().fit(*self.both(X, np.zeros_like(y), 7))

    def test_numbers_for_labels(self) -> None:
        X, _, y, _ = dataset("iris")
        with pytest.raises(InvalidArgumentError, match=r"[Uu]nknown label type|continuous"):
            cascading().fit(*self.both(X, y + 0.25 * X[:, 0], 7))

    def test_missing_labels(self) -> None:
        X, _, y, _ = dataset("iris")
        x, _ = self.both(X, y, 7)
        with pytest.raises(InvalidArgumentError, match="requires y"):
            cascading().fit(x)
        with pytest.raises(
            InvalidArgumentError, match=r"y has \d+ entries and the points have \d+ rows"
        ):
            cascading().fit(x, y[1:])

    def test_other_blocks_of_labels(self) -> None:
        X, _, y, _ = dataset("iris")
        x, _ = self.both(X, y, 7)
        _, labels = self.both(X, y, 3)
        with pytest.raises(AlignmentError):
            cascading().fit(x, labels)

    def test_other_columns_to_predict_for(self) -> None:
        X, _, y, _ = dataset("iris")
        ours = cascading().fit(*self.both(X, y, 7))
        narrow = self.collection(X[:, :3].copy(), [len(X)])
        with pytest.raises(ValueError, match="X has 3 features, but CascadeSVM is expecting 4"):
            self.gathered(ours.predict(narrow))
        with pytest.raises(ValueError, match="X has 3 features, but CascadeSVM is expecting 4"):
            ours.predict(X[:, :3])

    @pytest.mark.parametrize(
        "settings",
        [
            {"C": 0},
            {"C": -1.0},
            {"kernel": "precomputed"},
            {"kernel": "unknown"},
            {"gamma": "unknown"},
            {"cascade_arity": 1},
            {"max_iter": 0},
            {"max_iter": -2},
            {"cascade": "never"},
            {"probability": True},
            {"tol": -1.0},
        ],
        ids=str,
    )
    def test_parameters(self, settings: dict[str, Any]) -> None:
        X, _, y, _ = dataset("iris")
        with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
            cascading(**settings).fit(*self.both(X, y, 7))
