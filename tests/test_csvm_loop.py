"""Summaries of all blocks, and the loop of the Cascade SVM."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.svm import SVC

from spliter import InvalidArgumentError, Location, Partition, split
from spliter_apps._blocks import Schema
from spliter_apps._labels import label_column
from spliter_apps._moments import Moments
from spliter_apps._row_values import as_weights
from spliter_apps.svm import CascadeSVM
from spliter_apps.svm.inspection import DataSummary, PartitionSummary, moments_of
from spliter_apps.svm.kernel import (
    Rows,
    train,
)
from spliter_apps.svm.loop import in_order
from spliter_backends.local.executor import LocalExecutor
from tests.csvm_suite import cascading, dataset
from tests.engine_collections import cut
from tests.test_csvm_kernel import Array


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


def test_findings_do_not_depend_on_the_order_of_summaries() -> None:
    summaries = [summary(0, ["a", "b", "b"]), summary(3, ["longer"]), summary(5, ["b"])]
    for order in (summaries, summaries[::-1]):
        found = DataSummary.of(order)
        assert found.classes.tolist() == ["a", "b", "longer"]
        assert found.counts.tolist() == [1, 3, 1]
        assert {first: n.tolist() for first, n in found.positive_of.items()} == {
            (0,): [1, 2, 0],
            (3,): [0, 0, 1],
            (5,): [0, 1, 0],
        }


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


class _Placed:
    """As much of a partition as its order depends on."""

    def __init__(self, location: str, first: int) -> None:
        self.location = Location(location)
        self.first = first

    def get_indexes(self) -> list[tuple[int, ...]]:
        return [(self.first,)]


@given(st.permutations([("x", 4), ("x", 0), ("y", 1), ("z", 2), ("y", 3)]))
def test_partitions_are_merged_by_location_and_position(drawn: list[tuple[str, int]]) -> None:
    placed: list[Any] = [_Placed(*each) for each in drawn]
    ordered: list[Partition] = in_order(placed)
    assert [each.get_indexes()[0][0] for each in ordered] == [0, 4, 1, 3, 2]


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
