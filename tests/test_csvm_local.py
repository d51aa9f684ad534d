"""The Cascade SVM on lists of blocks in this process, its summaries of them, and its loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from spliter import InvalidArgumentError, split
from spliter_apps._blocks import Schema
from spliter_apps._labels import label_column
from spliter_apps._moments import Moments
from spliter_apps._row_values import as_weights
from spliter_apps.svm import CascadeSVM
from spliter_apps.svm.choice import evaluations_saved
from spliter_apps.svm.estimator import BLOCK_ROWS
from spliter_apps.svm.inspection import DataSummary, PartitionSummary, moments_of
from spliter_apps.svm.kernel import (
    Rows,
    train,
)
from spliter_backends.local.executor import LocalExecutor
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


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_moments_of_parts_are_those_of_the_whole(sizes: list[int], seed: int) -> None:
    X = np.random.default_rng(seed).normal(1e6, 1e-2, (sum(sizes), 3))
    total = Moments(0, 0.0, 0.0)
    for block in cut(X, sizes):
        total = total.merged(moments_of(block))
    if len(X):
        assert total.count == X.size
        assert total.mean == pytest.approx(X.mean(), rel=1e-14)
        assert total.variance == pytest.approx(X.var(), rel=1e-6)
    else:
        assert (total.count, total.mean, total.variance) == (0, 0.0, 0.0)


@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_one_part_are_those_of_svc_to_the_last_bit(sparse: bool) -> None:
    X, _, y, _ = dataset("digits")
    points = scipy.sparse.csr_array(X) if sparse else X
    ours, theirs = CascadeSVM().fit(points, y), SVC().fit(points, y)
    assert ours.estimator_.gamma == theirs._gamma


def summary(first: int, labels: Any, positive: Any = None) -> PartitionSummary:
    classes, counts = np.unique(labels, return_counts=True)
    schema = Schema(len(labels), 2, None, np.dtype(float))
    kept = counts if positive is None else np.asarray(positive)
    return PartitionSummary((first,), schema, classes, counts, kept, None)


def test_what_only_all_summaries_tell_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="got 1 class"):
        DataSummary.of([summary(0, [1, 1]), summary(1, [1])])
    with pytest.raises(InvalidArgumentError, match=r"class .*2.* positive weight"):
        DataSummary.of([summary(0, [1, 2], positive=[1, 0])])
    with pytest.raises(InvalidArgumentError, match="strings and numbers"):
        DataSummary.of([summary(0, [1, 2]), summary(1, ["a"])])
    with pytest.raises(InvalidArgumentError, match="0 sample"):
        DataSummary.of([summary(0, [])])


@pytest.mark.parametrize(
    "block", [np.array([1.0, np.nan]), np.array(["a", None], object), np.zeros(3), np.zeros((2, 2))]
)
def test_labels_that_cannot_be_used(block: Array) -> None:
    with pytest.raises(InvalidArgumentError, match="block 7"):
        label_column(block, 2, "block 7")


@pytest.mark.parametrize("block", [np.array([1, np.inf]), np.array(["a", "b"]), np.zeros(3)])
def test_weights_that_cannot_be_used(block: Array) -> None:
    with pytest.raises(InvalidArgumentError, match="block 7"):
        as_weights("block 7", block, 2)


@pytest.mark.parametrize("n_blocks", [8, 199])
def test_tasks_are_by_partition_whatever_the_number_of_blocks(
    n_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []
    submit = LocalExecutor.submit

    def counting(self: LocalExecutor, fn: Any, *args: Any, **kwargs: Any) -> Any:
        submitted.append(fn.__name__)
        return submit(self, fn, *args, **kwargs)

    monkeypatch.setattr(LocalExecutor, "submit", counting)
    X, _, y, _ = dataset("breast cancer")
    blocks = [len(block) for block in np.array_split(y, n_blocks)]
    with split(
        cut(X, blocks), cut(y, blocks), partitions_per_location=4, materialize=True
    ) as parts:
        ours = cascading().fit(parts)
        assert len(parts) == 4
    assert ours.n_iter_ == 2
    assert Counter(submitted) == {
        "inspect_partition": 4,
        "_train": 4,
        "_merge": 2,
        "_find_violations": 4,
        "_finish": 1,
        "_improve": 1,
        "_has_converged": 1,
    }


def test_any_arity_will_do() -> None:
    X, X_test, y, y_test = dataset("digits")
    blocks = [len(block) for block in np.array_split(y, 9)]
    scores = []
    for arity in (2, 3, 9):
        with split(cut(X, blocks), cut(y, blocks), partitions_per_location=9) as parts:
            scores.append(cascading(cascade_arity=arity).fit(parts).score(X_test, y_test))
    assert max(scores) - min(scores) <= 0.005


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_size_for_engines_that_keep_account(kind: Any) -> None:
    """Dask asks an object for its size before it decides what to spill and where to run."""
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    X, _, y, _ = dataset("digits")
    points = kind(X)
    rows = Rows(points, y.astype(np.intp), None, np.arange(len(y)))
    buffers = [points] if kind is np.asarray else [points.data, points.indices, points.indptr]
    own = sum(buffer.nbytes for buffer in buffers) + 16 * len(y)
    assert sizeof(rows) == pytest.approx(own, abs=100)
    found = train(rows, SVC(gamma=0.05))
    assert found is not None
    assert sizeof(found) >= sizeof(found.rows) > 0.1 * own
