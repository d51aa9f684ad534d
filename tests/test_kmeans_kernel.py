"""The numerics of k-means against formulas that are right by their looks."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
import sklearn.cluster._k_means_lloyd
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from spliter_apps._data import BLOCK_ROWS
from spliter_apps.kmeans import kernel
from spliter_apps.kmeans.kernel import (
    SCRATCH_BYTES,
    assign,
    farthest_points,
    partial_sums,
    points_and_weights,
)
from spliter_apps.kmeans.points import moments_of
from spliter_apps.kmeans.seeding import rows_at, uniforms, update_distances

Array = npt.NDArray[Any]
Blocks = list[Any]


def cut(points: Array, weights: Array | None, heights: list[int]) -> Blocks:
    bounds = np.cumsum([0, *heights])
    return [
        points[start:stop] if weights is None else (points[start:stop], weights[start:stop])
        for start, stop in pairwise(bounds)
    ]


def as_csr(blocks: Blocks) -> Blocks:
    pairs = map(points_and_weights, blocks)
    return [
        scipy.sparse.csr_array(points) if own is None else (scipy.sparse.csr_array(points), own)
        for points, own in pairs
    ]


def naive(points: Array, weights: Array | None, centers: Array) -> dict[str, Any]:
    """Every distance at once, one cluster after the other."""
    squares = cdist(points.astype(float), centers, "sqeuclidean")
    labels = squares.argmin(axis=1) if len(points) else np.empty(0, int)
    own = np.ones(len(points)) if weights is None else weights
    members = [labels == cluster for cluster in range(len(centers))]
    return {
        "labels": labels,
        "sums": np.array([(points[mine] * own[mine][:, None]).sum(axis=0) for mine in members]),
        "weights": np.array([own[mine].sum() for mine in members]),
        "distances": squares.min(axis=1) if len(points) else np.empty(0),
        "inertia": (squares.min(axis=1) * own).sum() if len(points) else np.float64(0),
    }


@st.composite
def cases(draw: st.DrawFn) -> tuple[Array, Array | None, Array, list[int]]:
    """Points on a lattice, where sums are exact and ties are not rare, or anywhere."""
    heights = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows, n_features = sum(heights), draw(st.integers(1, 5))
    if draw(st.booleans()):
        points = rng.integers(-4, 5, (n_rows, n_features)).astype(float)
        # Powers of two, so that the mean of the centres and all products are exact.
        centers = rng.integers(-4, 5, (draw(st.sampled_from([1, 2, 4, 32])), n_features)).astype(
            float
        )
    else:
        points = rng.normal(size=(n_rows, n_features))
        centers = rng.normal(size=(draw(st.integers(1, 40)), n_features))
    weights = rng.integers(0, 4, n_rows).astype(float) if draw(st.booleans()) else None
    return points, weights, centers, heights


@given(
    with_numpy=st.booleans(),
    case=cases(),
    rows=st.sampled_from([1, 3, 16, 10_000]),
    as_sparse=st.booleans(),
)
def test_against_the_naive_formulas(
    with_numpy: bool, case: tuple[Array, Array | None, Array, list[int]], rows: int, as_sparse: bool
) -> None:
    points, weights, centers, heights = case
    expected = naive(points, weights, centers)
    blocks = cut(points, weights, heights)
    origin = None
    if as_sparse:
        blocks = as_csr(blocks)
        origin = np.zeros(centers.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "SCRATCH_BYTES", kernel.ROW_BYTES * rows)
        if with_numpy:
            patch.setattr(kernel, "scikit_learn_kernel", lambda: None)
        sums = partial_sums(blocks, centers, origin=origin)
        found = assign(blocks, centers, origin=origin)
        farthest = farthest_points(blocks, centers, 3, origin=origin)
    np.testing.assert_allclose(sums.sums, expected["sums"], atol=1e-9)
    np.testing.assert_allclose(sums.weights, expected["weights"], atol=1e-9)
    np.testing.assert_array_equal(found.labels, expected["labels"])
    assert found.inertia == pytest.approx(float(expected["inertia"]), abs=1e-9)
    used = np.isin(np.arange(len(centers)), expected["labels"])
    np.testing.assert_array_equal(found.used, used)
    order = np.argsort(-expected["distances"], kind="stable")[:3]
    expected_distances = expected["distances"][order]
    np.testing.assert_allclose(farthest.squared_distances, expected_distances, atol=1e-9)
    np.testing.assert_allclose(farthest.points, points[farthest.rows])
    np.testing.assert_array_equal(farthest.labels, found.labels[farthest.rows])


def test_the_kernel_of_scikit_learn_is_used_if_it_does_what_is_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert kernel.scikit_learn_kernel() is not None

    def others(*args: Any, **kwargs: Any) -> None:
        """Take what is expected, and label nothing."""

    def fewer_arguments(points: Array) -> None:
        """Take something else."""

    for changed in (others, fewer_arguments):
        monkeypatch.setattr(sklearn.cluster._k_means_lloyd, "lloyd_iter_chunked_dense", changed)
        assert kernel.scikit_learn_kernel.__wrapped__() is None
    monkeypatch.delattr(sklearn.cluster._k_means_lloyd, "lloyd_iter_chunked_dense")
    assert kernel.scikit_learn_kernel.__wrapped__() is None


def test_points_at_their_centres_have_no_inertia() -> None:
    points = np.random.default_rng(0).normal(size=(50, 3)) + 1e5
    for dtype in (np.float64, np.float32):
        own = points.astype(dtype)
        assert assign([own], own.astype(float), dtype=np.float64).inertia == 0.0


def test_adding_up_changes_nothing() -> None:
    one = partial_sums([np.ones((3, 2))], np.zeros((1, 2)))
    other = partial_sums([np.ones((2, 2))], np.zeros((1, 2)))
    for partial in (one, other):
        partial.sums.flags.writeable = partial.weights.flags.writeable = False
    both = one + other
    assert both.weights.tolist() == [5] and (other + one).sums.tolist() == both.sums.tolist()


@pytest.mark.parametrize("run", [partial_sums, assign])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scratch_memory_is_bounded(run: Any, dtype: Any) -> None:
    centers = np.random.default_rng(0).normal(size=(8, 20))
    peaks = []
    for n_rows in (20_000, 200_000):
        points = np.zeros((n_rows, 20), dtype)
        run([points], centers, dtype=dtype)
        tracemalloc.start()
        run([points], centers, dtype=dtype)
        labels = 0 if run is partial_sums else 2 * 4 * n_rows
        peaks.append(tracemalloc.get_traced_memory()[1] - labels)
        tracemalloc.stop()
    assert max(peaks) < 4 * SCRATCH_BYTES


def test_threads_take_the_gil_a_few_times_for_a_large_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that come back to Python for every few thousand rows wait for each other."""
    label = kernel.scikit_learn_kernel()
    assert label is not None
    heights = []

    def counting(points: Array, *args: Any) -> None:
        heights.append(len(points))
        label(points, *args)

    monkeypatch.setattr(kernel, "scikit_learn_kernel", lambda: counting)
    points = np.random.default_rng(0).normal(size=(BLOCK_ROWS, 20))
    partial_sums([points], points[:8])
    assert sum(heights) == BLOCK_ROWS
    assert max(heights) * points[0].nbytes <= SCRATCH_BYTES
    assert len(heights) <= 6


def test_points_that_are_not_aligned() -> None:
    points = np.random.default_rng(0).normal(size=(20_000, 30))
    message = bytearray(points.nbytes + 3)  # as Dask has arrays that came over the network
    block = np.ndarray(points.shape, points.dtype, message, 3)
    block[...] = points
    assert not block.flags.aligned
    centers = points[:4].copy()
    np.testing.assert_array_equal(assign([block], centers).labels, assign([points], centers).labels)


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_dense_and_sparse_blocks(rows: int) -> None:
    points = np.random.default_rng(0).normal(size=(300, 3))
    centers, zero = points[:4].copy(), np.zeros(3)
    blocks = cut(points, None, [5, 6, 100, 4, 5, 180])
    mixed = [*blocks[:2], *as_csr(blocks[2:4]), *blocks[4:]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "SCRATCH_BYTES", kernel.ROW_BYTES * rows)
        found = assign(mixed, centers, origin=zero)
        sums = partial_sums(mixed, centers, origin=zero)
    np.testing.assert_array_equal(found.labels, naive(points, None, centers)["labels"])
    np.testing.assert_allclose(sums.sums, naive(points, None, centers)["sums"])


# --- first centres ---------------------------------------------------------------------------


@given(case=cases(), n_tried=st.integers(0, 4), as_sparse=st.booleans())
def test_distances_against_the_naive_formulas(
    case: tuple[Array, Array | None, Array, list[int]], n_tried: int, as_sparse: bool
) -> None:
    points, weights, centers, heights = case
    blocks = cut(points, weights, heights)
    if as_sparse:
        blocks = as_csr(blocks)
    origin = np.zeros(centers.shape[1]) if as_sparse else centers[0]
    tried, nothing = centers[:n_tried] + 0.5, centers[:0]
    n_tried = len(tried)
    squares = cdist(points, centers, "sqeuclidean").min(axis=1) if len(points) else np.empty(0)
    first = update_distances(blocks, np.array(heights), None, centers, nothing, origin)
    np.testing.assert_allclose(first.closest, squares, atol=1e-9)
    own = np.ones(len(points)) if weights is None else weights
    expected = [
        (squares * own)[at].sum()
        for at in np.split(np.arange(len(points)), np.cumsum(heights)[:-1])
    ]
    np.testing.assert_allclose(first.masses, [expected], atol=1e-8)
    further = update_distances(blocks, np.array(heights), first.closest, nothing, tried, origin)
    np.testing.assert_array_equal(further.closest, first.closest)
    for at in range(n_tried):
        lower = (
            np.minimum(squares, cdist(points, tried[at : at + 1], "sqeuclidean")[:, 0])
            if len(points)
            else squares
        )
        assert further.masses[at].sum() == pytest.approx((lower * own).sum(), abs=1e-8)


def test_points_at_a_centre_have_no_mass() -> None:
    points = np.random.default_rng(0).normal(size=(40, 3)) + 1e4
    found = update_distances([points], np.array([40]), None, points, points[:0], points[0])
    assert not found.masses.any()


def test_levels_beyond_the_total_find_a_row_with_mass() -> None:
    assert rows_at(np.array([0.0, 1.0, 0.0]), np.array([0.5, 1.0, 1.5])).tolist() == [1, 1, 1]
    assert rows_at(np.array([0.0, 1.0, 2.0]), np.array([1.0]), "right").tolist() == [2]
    assert rows_at(np.zeros(3), np.array([0.0, 0.0])).tolist() == [0, 0]


@given(heights=st.lists(st.integers(0, 20), min_size=1, max_size=8), seed=st.integers(0, 2**31))
def test_random_numbers_belong_to_rows(heights: list[int], seed: int) -> None:
    starts = np.cumsum([0, *heights])
    whole = uniforms(seed, 2, 0, int(starts[-1]))
    parts = [
        uniforms(seed, 2, int(start), height)
        for start, height in zip(starts[:-1], heights, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    if len(whole) > 1:
        assert (whole != uniforms(seed, 3, 0, len(whole))).any()


@given(case=cases())
def test_moments(case: tuple[Array, Array | None, Array, list[int]]) -> None:
    points, _, _, heights = case
    if not len(points):
        return
    offset = 2.0**23  # squares of coordinates leave no digit for the variance
    found = moments_of(cut(points + offset, None, heights))
    assert found.count == len(points)
    as_sparse = [scipy.sparse.csr_matrix(block) for block in cut(points, None, heights)]
    np.testing.assert_allclose(found.mean, points.mean(axis=0) + offset)
    variance = np.var(points, axis=0)
    np.testing.assert_allclose(found.variance, variance, atol=1e-5)
    for near in (cut(points, None, heights), as_sparse):
        np.testing.assert_allclose(moments_of(near).variance, variance, atol=1e-9)
