"""The Cascade SVM on lists of blocks in this process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from spliter import split
from spliter_apps import _csvm_loop
from spliter_apps._csvm_kernel import Rows, merge, train
from spliter_apps._csvm_loop import begin, in_order
from spliter_apps._csvm_settings import unfitted_svc
from spliter_apps.cascade_svm import PIECE_ROWS, CascadeSVM
from tests.csvm_suite import CascadeSVMTests, dataset, labelled
from tests.histogram_suite import cut

Array = npt.NDArray[Any]


class TestListsOfBlocks(CascadeSVMTests):
    """Lists of arrays."""

    def collection(self, array: Array, rows: Sequence[int]) -> Any:
        return cut(array, rows)

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return list(blocks)

    def gathered(self, collection: Any) -> Array:
        return np.concatenate(collection)


# In memory


def test_a_small_array_is_svc_itself() -> None:
    X, X_test, y, _ = dataset("digits")
    ours, theirs = CascadeSVM().fit(X, y), SVC().fit(X, y)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_array_equal(ours.dual_coef_, theirs.dual_coef_)
    np.testing.assert_array_equal(ours.predict(X_test), theirs.predict(X_test))
    assert (ours.n_iter_, ours.converged_) == (1, True)


def test_a_long_array_is_trained_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PIECE_ROWS > 1000
    monkeypatch.setattr("spliter_apps.cascade_svm.PIECE_ROWS", 100)
    X, X_test, y, y_test = dataset("breast cancer")
    ours, theirs = CascadeSVM().fit(X, y), SVC().fit(X, y)
    assert ours.n_iter_ > 1
    assert abs(ours.score(X_test, y_test) - theirs.score(X_test, y_test)) <= 0.005
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])


def test_pickled() -> None:
    X, X_test, y, _ = dataset("iris")
    ours = CascadeSVM().fit(cut(X, [50, len(X) - 50]), cut(y, [50, len(y) - 50]))
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.predict(X_test), ours.predict(X_test))


def rbf(left: Array, right: Array) -> Array:
    squares = ((left[:, None] - right[None]) ** 2).sum(axis=2)
    return np.asarray(np.exp(-0.25 * squares))


def test_kernel_of_ones_own() -> None:
    X, X_test, y, _ = dataset("iris")
    blocks = cut(X, [30, 0, len(X) - 30]), cut(y, [30, 0, len(X) - 30])
    ours = CascadeSVM(kernel=rbf).fit(*blocks)
    theirs = SVC(gamma=0.25).fit(X, y)
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


# --- before it is known what is in the data -----------------------------------------------------


def begun_of(which: str, **parameters: Any) -> tuple[list[npt.NDArray[np.int64]], list[bool]]:
    """How many of each class two partitions have, and which were trained on at once."""
    X, y = labelled(which)
    half = len(X) // 2
    svc = unfitted_svc(CascadeSVM(**parameters))
    with split([X[:half], X[half:]], [y[:half], y[half:]], partitions_per_location=2) as parts:
        findings, begun = begin(parts, svc)
        first = [each.get_indexes()[0] for each in in_order(list(parts))]
        used = [each in begun for each in in_order(list(parts))]
        for future in begun.values():
            assert future.result() is not None
    return [findings.positive_of[index] for index in first], used


@pytest.mark.parametrize(
    "parameters", [{"gamma": 0.05}, {"gamma": "scale"}, {"gamma": 0.05, "class_weight": "balanced"}]
)
def test_even_parts_are_begun_whether_they_wait_for_each_other_or_not(
    parameters: dict[str, Any],
) -> None:
    assert begun_of("even", **parameters)[1] == [True, True]


def test_what_was_trained_without_a_class_is_not_used() -> None:
    (lacking, having), used = begun_of("rare", gamma=0.05)
    assert lacking[0] == 0
    assert having.all()
    assert used == [False, True]


def test_large_parts_and_what_depends_on_all_data_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # Having waited, a part knows of the class that it lacks.
    assert begun_of("rare", gamma="scale")[1] == [True, True]
    assert begun_of("rare", gamma=0.05, class_weight="balanced")[1] == [True, True]
    monkeypatch.setattr(_csvm_loop, "SMALL_ROWS", 211)
    assert begun_of("rare", gamma=0.05)[1] == [True, True]
    monkeypatch.setattr(_csvm_loop, "SMALL_ROWS", 212)
    assert begun_of("rare", gamma=0.05)[1] == [False, True]
