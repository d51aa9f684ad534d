"""The Cascade SVM on a Dask cluster of real worker processes, points shuffled over the workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("distributed")

import dask.array as da
from sklearn.svm import SVC

from spliter import split
from tests.csvm_suite import CascadeSVMTests, cascading, dataset
from tests.dask_backend.placing import ShuffledCollections, shuffled
from tests.engine_cases import CASCADE_SVM, one_case_of
from tests.histogram_suite import cut
from tests.kmeans_data import heights

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


@one_case_of(*CASCADE_SVM)
class TestDask(ShuffledCollections, CascadeSVMTests):
    """Arrays, each chunk of which is at a worker drawn at random."""


def test_list_of_futures() -> None:
    X, X_test, y, y_test = dataset("digits")
    rows = heights(len(X), 200)
    # Labels are at other workers than their points, and brought to them.
    points, labels = shuffled(cut(X, rows)), shuffled(cut(y, rows)[::-1])[::-1]
    with split(points, labels) as parts:
        ours = cascading().fit(parts)
        assert parts.moved.aligned_blocks > 0
        assert parts.moved.fetched_blocks == 0
    assert abs(ours.score(X_test, y_test) - SVC().fit(X, y).score(X_test, y_test)) <= 0.005


def test_unknown_chunk_sizes() -> None:
    X, _, y, _ = dataset("breast cancer")
    x, labels = da.from_array(X, chunks=(40, -1)), da.from_array(y, chunks=40)
    kept = da.from_array(X[:, 0], chunks=40) < 1
    x, labels = x[kept].persist(), labels[kept].persist()
    assert np.isnan(x.chunks[0]).all()
    ours = cascading().fit(x, labels)
    mine = X[X[:, 0] < 1]
    np.testing.assert_array_equal(ours.support_vectors_, mine[ours.support_])
