"""The Cascade SVM on lists of blocks in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from spliter import split
from spliter_apps.svm import CascadeSVM
from spliter_apps.svm.choice import evaluations_saved
from spliter_apps.svm.estimator import BLOCK_ROWS
from spliter_apps.svm.kernel import Rows, merge, train
from tests.csvm_suite import CascadeSVMTests, cascading, dataset, rbf
from tests.engine_collections import ListsOfBlocks, cut

Array = npt.NDArray[Any]


class TestListsOfBlocks(ListsOfBlocks, CascadeSVMTests):
    """Lists of arrays."""


# In memory


def test_a_long_array_is_trained_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BLOCK_ROWS > 1000
    monkeypatch.setattr("spliter_apps.svm.estimator.SAMPLE_ROWS", 300)
    monkeypatch.setattr("spliter_apps.svm.estimator.BLOCK_ROWS", 100)
    X, X_test, y, y_test = dataset("breast cancer")
    ours, theirs = cascading().fit(X, y), SVC().fit(X, y)
    assert ours.n_iter_ > 1
    assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= 0.005
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])


def overlapping(n: int, part: float) -> tuple[Array, Array]:
    """Points of two classes, and a part of their labels drawn at random."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = X[:, 0] > 0
    return X, np.where(rng.random(n) < part, rng.random(n) < 0.5, y).astype(int)


@pytest.mark.parametrize(
    ("n", "part", "n_iter"),
    [(12_000, 0.0, 2), (4_000, 0.0, 1), (1_500, 1.0, 1)],
    ids=["many separable", "few separable", "overlapping"],
)
@pytest.mark.thorough
def test_the_points_show_whether_a_cascade_is_worth_it(n: int, part: float, n_iter: int) -> None:
    X, y = overlapping(n, part)
    # Sorted by class: a sample of the first block would have one class alone.
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    blocks = cut(X, [n // 4] * 4), cut(y, [n // 4] * 4)
    gamma = 1 / (4 * X.var())
    with split(*blocks, partitions_per_location=2) as parts:
        ours = CascadeSVM(gamma=gamma).fit(parts)
        assert ours.n_iter_ == n_iter
        other = CascadeSVM(gamma=gamma, cascade=n_iter == 1).fit(parts)
        assert (other.n_iter_ == 1) == (n_iter != 1)
    theirs = SVC(gamma=gamma).fit(X, y)
    if n_iter == 1:
        np.testing.assert_array_equal(ours.dual_coef_, theirs.dual_coef_)
    assert abs(ours.score(X, y) - theirs.score(X, y)) <= 0.005


def test_a_sample_without_two_classes_tells_nothing() -> None:
    X = overlapping(100, 0.0)[0]
    rows = Rows(X, np.zeros(100, np.intp), None, np.arange(100))
    assert evaluations_saved(rows, SVC(gamma=1.0), 100) == np.inf
    # One item of a class is in one half only, that which is not trained on.
    labels = np.r_[np.zeros(51, np.intp), np.ones(48, np.intp), 2]
    rows = Rows(X, labels, None, np.arange(100))
    assert -2_000 <= evaluations_saved(rows, SVC(gamma=1.0), 100) < 8_000


@pytest.mark.parametrize("cascade", [True, False])
def test_a_kernel_of_ones_own_stopped_early_has_not_converged(cascade: bool) -> None:
    X, _, y, _ = dataset("breast cancer")
    blocks = cut(X, [200, len(X) - 200]), cut(y, [200, len(X) - 200])
    with (
        split(*blocks, partitions_per_location=2) as parts,
        pytest.warns(ConvergenceWarning) as caught,
    ):
        ours = CascadeSVM(kernel=rbf, svc_max_iter=2, cascade=cascade).fit(parts)
    assert any("increase it, or scale" in str(each.message) for each in caught)
    assert not ours.converged_


def test_kernel_of_ones_own() -> None:
    X, X_test, y, _ = dataset("iris")
    blocks = cut(X, [30, 0, len(X) - 30]), cut(y, [30, 0, len(X) - 30])
    ours = cascading(kernel=rbf).fit(*blocks)
    theirs = SVC(gamma=0.02).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X_test), theirs.predict(X_test))


# The steps


def rows_of(X: Array, y: Array, which: Sequence[int]) -> Rows:
    chosen = np.asarray(which, np.int64)
    return Rows(X[chosen], y[chosen].astype(np.intp), None, chosen)


@settings(max_examples=15)
@given(st.data())
def test_merging_keeps_each_point_once_and_forgets_no_order(data: Any) -> None:
    X, _, y, _ = dataset("breast cancer")
    several = [
        sorted(data.draw(st.sets(st.integers(0, 199), min_size=20, max_size=60)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    svc = SVC(gamma=0.05)
    sets = [train(rows_of(X, y, which), svc) for which in several]
    found = merge(sets, svc)
    assert found is not None
    indexes = found.rows.indexes
    assert len(np.unique(indexes)) == len(indexes)
    known = np.concatenate([one.rows.indexes for one in sets if one is not None])
    assert set(indexes) <= set(known)
    np.testing.assert_array_equal(found.rows.points, X[indexes])
    np.testing.assert_array_equal(found.rows.labels, y[indexes])
    turned = merge(sets[::-1], svc)
    assert turned is not None
    # Tolerances aside, merging is of sets, not of sequences.
    assert len(set(turned.rows.indexes) ^ set(indexes)) <= max(2, 0.1 * len(indexes))


def test_no_items_come_to_nothing() -> None:
    X, _, y, _ = dataset("iris")
    assert train(rows_of(X, y, []), SVC(gamma=1.0)) is None


def test_items_of_one_class_are_all_passed_on() -> None:
    X, _, y, _ = dataset("iris")
    which = np.flatnonzero(y == 1).tolist()
    found = train(rows_of(X, y, which), SVC(gamma=1.0))
    assert found is not None
    assert found.model is None
    assert found.rows.indexes.tolist() == which
