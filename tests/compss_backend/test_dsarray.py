"""dislib ds-arrays as collections: dense and sparse, several columns of blocks, irregular ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tests.compss_backend.conftest  # noqa: F401 -- before dislib, which imports PyCOMPSs
from spliter import AlignmentError, InvalidArgumentError, is_collection, split
from spliter_apps import histogramdd
from spliter_apps.kmeans import KMeans
from tests.compss_backend.dsarrays import check_rows, formats, numbers
from tests.compss_backend.placing import made
from tests.engine_collections import cut

dislib = pytest.importorskip("dislib")

pytestmark = [pytest.mark.backend("compss"), pytest.mark.standin]


@pytest.fixture(params=["without a runtime", "on nodes"], autouse=True)
def _mode(request: pytest.FixtureRequest) -> None:
    if request.param == "on nodes":
        request.getfixturevalue("runtime")


@pytest.mark.parametrize("size", [(5, 7), (5, 3), (23, 7), (1, 1), (4, 4)])
def test_any_block_size(size: tuple[int, int]) -> None:
    check_rows(dislib.array(numbers(), size), numbers())


@pytest.mark.parametrize("size", [(5, 7), (6, 2)])
def test_sparse(size: tuple[int, int]) -> None:
    values = np.where(numbers() % 3 == 0, numbers(), 0.0)
    array = dislib.array(scipy.sparse.csr_matrix(values), size)
    check_rows(array, values)
    kinds = [kind for future in split(array).map(formats) for kind in future.result()]
    assert set(kinds) == {"csr"}


def test_blocks_that_tasks_have_made() -> None:
    array = dislib.array(numbers(), (5, 3))
    check_rows(array.transpose(), numbers().T)
    # A slice that starts inside a block has a first block of its own size.
    check_rows(array[3:20, 2:6], numbers()[3:20, 2:6])


def test_points_and_labels() -> None:
    x, y = dislib.array(numbers(), (5, 3)), dislib.array(numbers()[:, :1], (5, 1))
    with split(x, y) as parts:
        sums = parts.map(lambda part: sum(float((a[:, :1] - b).sum()) for a, b in part))
        assert sum(future.result() for future in sums) == 0
    with pytest.raises(AlignmentError):
        split(x, dislib.array(numbers(), (6, 3)))


def test_with_a_collection_of_another_kind() -> None:
    x, y = dislib.array(numbers(), (9, 3)), made(cut(numbers(), [9, 9, 5]))
    same = split(x, y).map(lambda part: all(np.array_equal(a, b) for a, b in part))
    assert all(future.result() for future in same)


def test_estimators() -> None:
    points = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    array = dislib.array(points, (7, 3))
    ours = KMeans(2, random_state=0).fit(array)
    expected = KMeans(2, random_state=0).fit(points)
    np.testing.assert_allclose(ours.cluster_centers_, expected.cluster_centers_)
    labels = np.concatenate(ours.labels_.gather())
    np.testing.assert_array_equal(labels, expected.labels_)
    found, _ = histogramdd(array, 3)
    np.testing.assert_array_equal(found, np.histogramdd(points, 3)[0])


def test_made_of_a_collection() -> None:
    rows = [[4, 9, 9, 1], [7]]
    array = made(cut(numbers(), rows[0]), rows).dsarray()
    check_rows(array, numbers())
    np.testing.assert_array_equal(array.collect(), numbers())
    with pytest.raises(InvalidArgumentError, match="of one size"):
        made(cut(numbers(), [9, 4, 9, 1]), [[9, 4, 9, 1], [7]]).dsarray()


def test_is_a_collection() -> None:
    array: Any = dislib.array(numbers(), (5, 3))
    assert is_collection(array)
    assert not is_collection(array.shape)
