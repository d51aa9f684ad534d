"""The steps of the Cascade SVM against what they are on paper, and against SVC."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.svm import SVC

from spliter import split
from spliter_apps.svm import margins
from spliter_apps.svm.balance import (
    missing_counts,
    quotas,
    replacement_counts,
    replacements,
    sample,
)
from spliter_apps.svm.kernel import (
    Rows,
    SupportSet,
    find_violations,
    finish,
    improve,
    merge,
    support,
    train,
)
from tests.csvm_suite import cascading, dataset
from tests.engine_collections import cut

Array = npt.NDArray[Any]

SVCS = [
    SVC(gamma=0.05),
    SVC(kernel="linear", gamma=1.0),
    SVC(kernel="poly", gamma=0.02, coef0=1.5, degree=2),
    SVC(kernel="sigmoid", gamma=0.01, coef0=-0.2),
]


def rows_of(name: str, which: Any = slice(None), weights: Array | None = None) -> Rows:
    X, _, y, _ = dataset(name)
    indexes = np.arange(len(X))[which]
    return Rows(
        X[indexes],
        y[indexes].astype(np.intp),
        None if weights is None else weights[indexes],
        indexes,
    )


def overlapping(n: int) -> tuple[Array, Array]:
    """Two classes, a third of the points of which are support vectors, at their bounds."""
    X, y = make_classification(n, 10, flip_y=0.1, class_sep=0.8, random_state=1)
    return X, y


def found_by(rows: Rows, svc: SVC) -> SupportSet:
    found = train(rows, svc)
    assert found is not None
    return found


def model_of(found: SupportSet) -> SVC:
    assert found.model is not None
    return found.model


# Margins


@pytest.mark.parametrize("name", ["breast cancer", "iris", "digits"])
@pytest.mark.parametrize("svc", SVCS, ids=lambda svc: svc.kernel)
@pytest.mark.parametrize("sparse", [False, True])
def test_shortfalls_are_those_of_the_decision_function(
    name: str, svc: SVC, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(margins, "MAX_ELEMENTS", 3_000)  # several pieces
    X, X_test, y, y_test = dataset(name)
    convert = scipy.sparse.csr_array if sparse else np.asarray
    model = SVC(**svc.get_params()).set_params(decision_function_shape="ovo")
    model.fit(convert(X), y)
    decided = model.decision_function(X_test).reshape(len(X_test), -1)
    if len(model.classes_) == 2:
        decided = -decided
    expected = np.zeros(len(X_test))
    for at, (first, second) in enumerate(combinations(model.classes_, 2)):
        for label, sign in ((first, 1), (second, -1)):
            short = 1 - sign * decided[:, at]
            expected += np.where((y_test == label) & (short > model.tol), short, 0)
    found = margins.slacks(model, model.support_vectors_, convert(X_test), y_test)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["breast cancer", "iris"])
@pytest.mark.parametrize("svc", SVCS[:3], ids=lambda svc: svc.kernel)
def test_dual_objective_is_the_sum_over_pairs_of_classes(name: str, svc: SVC) -> None:
    X, _, y, _ = dataset(name)
    model = SVC(**svc.get_params()).fit(X, y)
    expected = 0.0
    for pair in combinations(np.unique(y), 2):
        which = np.isin(y, pair)
        # libsvm trains the same machine for two classes alone.
        alone = SVC(**svc.get_params()).fit(X[which], y[which])
        vectors, signed = alone.support_vectors_, alone.dual_coef_[0]
        matrix = margins.kernel_matrix(svc, vectors, vectors)
        expected += np.abs(signed).sum() - signed @ matrix @ signed / 2
    assert margins.dual_objective(model, model.support_vectors_) == pytest.approx(expected)


# Training


def test_doubt_keeps_points_outside_the_margins_too() -> None:
    rows = rows_of("digits")
    svc = SVC(gamma=0.01)
    plain, error = found_by(rows, svc), train(rows, svc, margin_error=0.2)
    assert error is not None and error.model is None
    assert set(plain.rows.indexes) < set(error.rows.indexes)
    assert len(error.rows) < len(rows)


def dot(left: Array, right: Array) -> Array:
    product: Array = left @ right.T
    return product


def test_a_model_with_a_kernel_of_ones_own_is_no_larger_than_its_support() -> None:
    rows = rows_of("breast cancer")
    found, same = found_by(rows, SVC(kernel=dot)), found_by(rows, SVC(kernel="linear", gamma=1.0))
    assert set(support(found).indexes) <= set(found.rows.indexes)
    assert len(found.rows) < len(rows) / 2
    assert model_of(found).shape_fit_[0] == len(found.rows)
    objectives = [
        margins.dual_objective(model_of(each), support(each).points) for each in (found, same)
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-3)


# The gap: what a part may add


@settings(max_examples=15)
@given(part=st.integers(50, 350), tol=st.sampled_from([0.0, 1e-3, 1e-1]), seed=st.integers(0, 99))
def test_what_is_not_improved_lacks_no_more_than_allowed(part: int, tol: float, seed: int) -> None:
    svc = SVC(gamma=0.05, tol=1e-5)
    order = np.random.default_rng(seed).permutation(398)
    whole = found_by(rows_of("breast cancer"), svc)
    best = margins.dual_objective(model_of(whole), whole.rows.points)
    solution = finish([found_by(rows_of("breast cancer", order[:part]), svc)], svc)
    lacks = best - solution.objectives[-1]
    assert lacks >= -1e-3
    found = find_violations(rows_of("breast cancer", order[part:]), solution)
    assert lacks <= found.gap + 1e-2
    better = improve([found], svc, tol, solution)
    if found.gap <= tol * solution.objectives[-1]:
        assert better.converged and better.model is solution.model
    else:
        assert better.objectives[-1] >= solution.objectives[-1] - 1e-2
        assert better.objectives[-1] <= best + 1e-2


def test_what_a_solution_has_is_not_missing() -> None:
    svc = SVC(gamma=0.05)
    solution = finish([train(rows_of("breast cancer", slice(0, 200)), svc)], svc)
    rows = rows_of("breast cancer")
    found = find_violations(rows, solution)
    assert found.gap > 0 and len(found.rows)
    assert not np.isin(found.rows.indexes, solution.rows.indexes).any()
    none = find_violations(solution.rows, solution)
    assert none.gap == 0 and not len(none.rows)
    nobody = find_violations(rows.taken(slice(0, 0)), solution)
    assert nobody.gap == 0 and not len(nobody.rows)


@settings(max_examples=10)
@given(st.data())
def test_the_order_of_sets_does_not_matter_to_the_last_bit(data: Any) -> None:
    svc = SVC(gamma=0.05)
    several = [
        found_by(rows_of("breast cancer", np.arange(at, 398, 3)), svc)
        for at in range(data.draw(st.integers(2, 3)))
    ]
    merged = merge(several, svc)
    turned = merge(data.draw(st.permutations(several)), svc)
    assert merged is not None and turned is not None
    np.testing.assert_array_equal(merged.rows.indexes, turned.rows.indexes)
    np.testing.assert_array_equal(model_of(merged).dual_coef_, model_of(turned).dual_coef_)


def test_no_items_come_to_nothing() -> None:
    assert train(rows_of("iris", slice(0, 0)), SVC(gamma=1.0)) is None


def test_a_set_without_a_model_is_trained_alone() -> None:
    svc = SVC(gamma=0.05)
    error = train(rows_of("breast cancer"), svc, margin_error=0.5)
    merged = merge([error, None], svc)
    assert merged is not None and merged.model is not None
    assert merge([merged, None], svc) is merged
    assert merge([None], svc) is None


# Balance


@pytest.mark.parametrize(
    ("counts", "lacks"),
    [
        ([500, 500], [False, False]),
        ([600, 400], [False, False]),
        ([700, 300], [False, True]),
        ([0, 300], [True, False]),
        ([3, 1], [False, False]),  # too few to tell
        ([0, 0], [False, False]),
    ],
)
def test_who_lacks_what(counts: list[int], lacks: list[bool]) -> None:
    mass = missing_counts(np.array(counts), np.array([5_000, 5_000]))
    assert ([False, False] if mass is None else (mass > 0).tolist()) == lacks


@given(st.lists(st.integers(0, 400), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_what_is_missing_makes_a_part_like_the_whole(counts: list[int], seed: int) -> None:
    totals = np.array(counts) + np.random.default_rng(seed).integers(1, 1000, len(counts))
    mass = missing_counts(np.array(counts), totals)
    if mass is not None:
        assert (mass >= 0).all() and mass.any()
        made_up = np.array(counts) + mass
        lacking = mass > 0
        # Classes that something was missing of are in proportion to each other.
        np.testing.assert_allclose(
            made_up[lacking] / totals[lacking], (made_up / totals)[lacking][0]
        )


def test_a_sample_has_all_classes_and_stands_in_by_weight() -> None:
    rows = rows_of("digits")
    totals = np.bincount(rows.labels)
    halves = [rows.taken(rows.labels < 5), rows.taken(rows.labels >= 5)]
    counts = [np.bincount(half.labels, minlength=10) for half in halves]
    wanted = replacement_counts(totals)
    drawn = Rows.concatenated(
        [
            sample(half, quota)
            for half, quota in zip(halves, quotas(counts, totals, wanted), strict=True)
        ]
    )
    assert len(np.unique(drawn.indexes)) == len(drawn)
    np.testing.assert_array_equal(
        np.bincount(drawn.labels), np.minimum(totals, 2_048 // len(totals))
    )
    mass = missing_counts(counts[0], totals)
    assert mass is not None
    others = replacements(drawn, halves[0], mass)
    assert others.labels.min() == 5
    assert others.weights is not None
    weights = np.bincount(others.labels, others.weights, minlength=10)
    np.testing.assert_allclose(weights, mass)


@pytest.mark.parametrize("n_partitions", [2, 4])
@pytest.mark.parametrize("shift", [0, 120])
def test_overlapping_classes_sorted_by_label(n_partitions: int, shift: int) -> None:
    X, y = overlapping(2_400)
    # Shifted, a partition has a few items of the other class.
    order = np.roll(np.argsort(y, kind="stable"), shift)
    X, y = X[order], y[order]
    blocks = [200] * 12
    with split(
        cut(X, blocks), cut(y, blocks), partitions_per_location=n_partitions, materialize=True
    ) as parts:
        ours = cascading().fit(parts)
    theirs = SVC(gamma=ours.estimator_.gamma).fit(X, y)
    best = margins.dual_objective(theirs, theirs.support_vectors_)
    assert ours.converged_ and ours.n_iter_ == 2
    assert ours.objective_[-1] == pytest.approx(best, rel=1e-3)
    # The first solution is near it already, as partitions were told of the class that they lack.
    assert ours.objective_[0] > 0.999 * best
