"""Numerical kernels of k-means: label points with their nearest centre, and sum them by label.

They do not depend on partitions or tasks, run over :func:`spliter.batches` of blocks,
and spend their time in calls that release the GIL.

*Nearest centre.* scikit-learn's own kernel labels dense points. NumPy labels sparse ones, and all
points if that kernel is missing or behaves differently: of ``|x - c|^2`` it computes the part that
depends on the centre ``c``, ``|c|^2 - 2 x.c``, with one matrix product.

*Precision.* Both lose digits if the points are far from zero compared with the distances between
centres, and in float32. An origin near the data is then subtracted from points and centres.

*Sums.* A sparse matrix with one entry per point, in the row of its label, times the points.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.extmath import row_norms
from threadpoolctl import ThreadpoolController

from spliter import batches
from spliter_apps._blocks import dense

FloatArray: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = Any
"""Points, an ndarray or CSR matrix of shape (n, n_features), or a tuple of these and weights."""

Columns = TypeVar("Columns", bound=tuple[npt.NDArray[Any], ...])
"""A named tuple of arrays with one entry per row."""

SCRATCH_BYTES = 2**21
"""Maximum bytes of a batch, and of each scratch array of its size. With 2**17, 2**19, 2**21 and
2**23 bytes `partial_sums` takes 74, 54, 51 and 50 ms for blocks of ten rows, 18, 16, 11 and 10 ms
for blocks of 1,000 (200,000 points of 20 columns, 8 centres)."""

FAR = 100.0
"""Ratio of the distance of the data from zero to the distances between centres above which the
origin is subtracted. Squares then cancel at most four of the 16 digits of float64."""

ROW_BYTES = 24
"""Scratch bytes per point that is labelled and summed in place: label, weight and pointer."""

Labels: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PartialSums:
    """Contribution of some points to new centres: weighted sums, and weights of the clusters.

    sums (ndarray of float64, shape (n_clusters, n_features))
    weights (ndarray of float64, shape (n_clusters,))
    """

    sums: FloatArray
    weights: FloatArray

    def __add__(self, other: PartialSums) -> PartialSums:
        """Return the sum of both contributions; neither is changed."""
        return PartialSums(self.sums + other.sums, self.weights + other.weights)

    def __sizeof__(self) -> int:
        """Return the size in bytes, which engines use to place and spill results."""
        return object.__sizeof__(self) + self.sums.nbytes + self.weights.nbytes


@dataclass(frozen=True)
class Assignment:
    """The nearest centre of each point; the first of centres equally near.

    labels (ndarray of int32, shape (n,))
    inertia: Weighted sum of the squared distances; NaN if not computed.
    used (ndarray of bool, shape (n_clusters,)): Which centres are nearest to some point.
    """

    labels: Labels
    inertia: float
    used: npt.NDArray[np.bool_]


class FarthestPoints(NamedTuple):
    """The points farthest from their nearest centre, the farthest first."""

    squared_distances: FloatArray
    rows: npt.NDArray[np.int64]
    points: FloatArray
    weights: FloatArray
    labels: npt.NDArray[np.int64]


# --- passes over blocks -----------------------------------------------------------------------


def partial_sums(
    blocks: Iterable[Block],
    centers: FloatArray,
    *,
    origin: FloatArray | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> PartialSums:
    """Sum the points nearest to each centre: one pass of Lloyd's algorithm.

    The origin is a point near the data, by default the mean of the centres; it has to be zero if
    a block is sparse. Sums within a batch are of `dtype`, float64 or float32, those over batches
    float64.

    Examples
    --------
    >>> blocks = [np.array([[0.0], [1.0]]), np.array([[9.0]])]
    >>> found = partial_sums(blocks, np.array([[0.0], [8.0]]))
    >>> found.sums.ravel(), found.weights
    (array([1., 9.]), array([2., 1.]))
    """
    labeller = _Labeller(centers, origin, dtype)
    sums = np.zeros(centers.shape)
    weights = np.zeros(len(centers))
    for points, own in labeller.batches(blocks):
        labels, _ = labeller.label(points)
        sums += dense(labeller.one_hot(labels, own) @ points)
        weights += np.bincount(labels, own, len(centers))
    if labeller.origin is not None:
        sums += np.multiply.outer(weights, labeller.origin.astype(np.float64))
    return PartialSums(sums, weights)


def assign(
    blocks: Iterable[Block],
    centers: FloatArray,
    *,
    origin: FloatArray | None = None,
    dtype: npt.DTypeLike = np.float64,
    distances: bool = True,
) -> Assignment:
    """Label points with their nearest centre; compute the inertia if `distances` is true.

    Distances of dense points are those of the points, not differences of large squares: the
    inertia of points at their centres is zero. See :func:`partial_sums` for the parameters.

    Examples
    --------
    >>> blocks = [np.array([[0.0], [1.0]]), np.array([[9.0]])]
    >>> found = assign(blocks, np.array([[0.0], [8.0]]))
    >>> found.labels, found.inertia
    (array([0, 0, 1], dtype=int32), 2.0)
    """
    labeller = _Labeller(centers, origin, dtype)
    found = [np.empty(0, np.int32)]
    inertia = 0.0 if distances else np.nan
    used = np.zeros(len(centers), np.bool_)
    for points, weights in labeller.batches(blocks):
        labels, scores = labeller.label(points)
        found.append(labels.copy())
        used[labels] = True
        if distances:
            squares = labeller.squared_distances(points, labels, scores)
            inertia += float(squares.sum() if weights is None else squares @ weights)
    return Assignment(np.concatenate(found), inertia, used)


def farthest_points(
    blocks: Iterable[Block],
    centers: FloatArray,
    most: int,
    *,
    origin: FloatArray | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> FarthestPoints:
    """Return the `most` points farthest from their nearest centre; among equals, the first.

    Rows are counted from the first row of the first block.

    Examples
    --------
    >>> blocks = [np.array([[0.0], [1.0]]), np.array([[9.0]])]
    >>> farthest_points(blocks, np.array([[0.0], [8.0]]), 1).rows
    array([1])
    """
    labeller = _Labeller(centers, origin, dtype)
    none, no_rows = np.empty(0), np.empty(0, np.int64)
    found = FarthestPoints(none, no_rows, np.empty((0, centers.shape[1])), none, no_rows)
    first_row = 0
    for points, weights in labeller.batches(blocks):
        labels, scores = labeller.label(points)
        squares = labeller.squared_distances(points, labels, scores)
        chosen = np.argsort(-squares, kind="stable")[:most]
        far = dense(points[chosen]).astype(np.float64)
        in_batch = FarthestPoints(
            squares[chosen],
            first_row + chosen,
            far if labeller.origin is None else far + labeller.origin,
            np.ones(len(chosen)) if weights is None else weights[chosen],
            labels[chosen].astype(np.int64),
        )
        found = farthest_of([found, in_batch], most)
        first_row += len(labels)
    return found


def farthest_of(several: list[FarthestPoints], most: int) -> FarthestPoints:
    """Return the farthest `most` points of several such lists."""
    joined = concatenated(several)
    return rows_of(joined, np.lexsort((joined.rows, -joined.squared_distances))[:most])


def concatenated(several: Sequence[Columns]) -> Columns:
    """Concatenate one or more tuples of arrays, field by field."""
    return type(several[0])(*map(np.concatenate, zip(*several, strict=True)))


def rows_of(columns: Columns, at: npt.NDArray[Any]) -> Columns:
    """Return some rows of a tuple of arrays."""
    return type(columns)(*(values[at] for values in columns))


def points_and_weights(block: Block) -> tuple[Any, FloatArray | None]:
    """Return the points of a block and their weights, None if it has none."""
    return block if isinstance(block, tuple) else (block, None)


def rows_within_scratch(values_per_row: int) -> int:
    """Return the maximum number of rows of so many temporary floats each; at least one."""
    return max(SCRATCH_BYTES // (8 * values_per_row), 1)


def squared_lengths(points: Any) -> FloatArray:
    """Return the squared length of each row of an array or CSR matrix."""
    return np.asarray(row_norms(points, squared=True), np.float64)


class _Labeller:
    """Centres prepared for batches: cast, shifted by the origin, with scratch arrays.

    Every batch uses the same arrays: where freed memory returns to the system (as in Dask's
    workers), getting new pages takes longer than the matrix products.
    """

    def __init__(
        self, centers: FloatArray, origin: FloatArray | None, dtype: npt.DTypeLike
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.origin = self._origin_to_subtract(centers, origin)
        if self.origin is not None:
            centers = centers - self.origin.astype(np.float64)
        n_clusters = len(centers)
        self.centers = np.ascontiguousarray(centers, self.dtype)
        self.factors = np.ascontiguousarray(-2 * centers.T, self.dtype)
        self.offsets = np.einsum("ij,ij->i", centers, centers).astype(self.dtype)
        self.kernel = scikit_learn_kernel()
        # NumPy holds the scores twice; scikit-learn's kernel has none.
        self.rows = (
            rows_within_scratch(2 * n_clusters)
            if self.kernel is None
            else SCRATCH_BYTES // ROW_BYTES
        )
        self.labels = np.empty(self.rows, np.int32)
        self.ones = np.ones(self.rows, self.dtype)
        self.pointers = np.arange(self.rows + 1, dtype=np.int32)
        self.scratch: dict[str, npt.NDArray[Any]] = {}

    def _origin_to_subtract(
        self, centers: FloatArray, origin: FloatArray | None
    ) -> npt.NDArray[Any] | None:
        near = centers.mean(axis=0) if origin is None else origin
        apart = ((centers - near) ** 2).sum(axis=1).max()
        is_far = near @ near > FAR**2 * apart
        # Cast before it is subtracted, so that points and centres use exactly the same origin.
        return (
            near.astype(self.dtype) if near.any() and (is_far or self.dtype.itemsize < 8) else None
        )

    def batches(self, blocks: Iterable[Block]) -> Iterator[tuple[Any, FloatArray | None]]:
        """Yield points, minus the origin, and weights in batches."""
        for batch in batches(blocks, SCRATCH_BYTES, rows=self.rows):
            points, weights = points_and_weights(batch)
            yield self._prepared(points), weights

    def _prepared(self, points: Any) -> Any:
        """Return points that scikit-learn's kernel takes: of the dtype, in C order, aligned.

        Arrays that Dask received over the network may be unaligned. NumPy copies unaligned arrays
        in each operation, which takes twice as long as the rest of the kernel.
        """
        if sparse.issparse(points):
            return points
        flags = points.flags
        if self.origin is not None:
            out = self._array("points", points.shape)
            return np.subtract(points, self.origin, out=out, casting="same_kind")
        if points.dtype == self.dtype and flags.c_contiguous and flags.aligned:
            return points
        out = self._array("points", points.shape)
        out[:] = points
        return out

    def _array(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return a scratch array, the same memory for each batch."""
        if name not in self.scratch or len(self.scratch[name]) < shape[0]:
            self.scratch[name] = np.empty(shape, self.dtype)
        return self.scratch[name][: shape[0]]

    def label(self, points: Any) -> tuple[Labels, npt.NDArray[Any] | None]:
        """Return the labels of a batch, valid until the next call, and the scores if computed."""
        labels = self.labels[: points.shape[0]]
        if self.kernel is not None and not sparse.issparse(points):
            self.kernel(points, self.ones[: len(points)], self.centers, labels)
            return labels, None
        if sparse.issparse(points):
            scores = points @ self.factors
        else:
            scores = np.matmul(
                points, self.factors, out=self._array("scores", (len(points), len(self.offsets)))
            )
        scores += self.offsets
        labels[:] = scores.argmin(axis=1)
        return labels, scores

    def one_hot(self, labels: Labels, weights: FloatArray | None) -> Any:
        """Return the matrix of shape (n_clusters, n) with the weight of each point at its label."""
        entries = self.ones[: len(labels)] if weights is None else weights.astype(self.dtype)
        shape = (len(self.centers), len(labels))
        return sparse.csc_array((entries, labels, self.pointers[: len(labels) + 1]), shape=shape)

    def squared_distances(
        self, points: Any, labels: Labels, scores: npt.NDArray[Any] | None
    ) -> FloatArray:
        """Return the squared distance of each point to its centre."""
        if sparse.issparse(points):
            assert scores is not None, "sparse points are labelled by their scores"
            # The origin is zero: the score lacks only the squared length of the point.
            nearest = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
            squares: FloatArray = np.maximum(squared_lengths(points) + nearest, 0.0)
            return squares
        differences = self._array("differences", points.shape)
        # All labels are in range; mode="clip" avoids a second buffer.
        np.take(self.centers, labels, axis=0, out=differences, mode="clip")
        np.subtract(points, differences, out=differences)
        return squared_lengths(differences)


# --- scikit-learn's kernel and BLAS -------------------------------------------------------------


Kernel: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], Labels], None]


@functools.cache
def scikit_learn_kernel() -> Kernel | None:
    """Return scikit-learn's function that labels dense points, if it behaves as expected.

    It takes points, their weights, centres, all of one floating type, and an output array of
    labels. It is private to scikit-learn, so it is tested before use. It releases the GIL during
    the whole call, so that threads do not wait for each other.
    """
    try:
        from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
    except ImportError:
        return None

    def label(
        points: npt.NDArray[Any],
        weights: npt.NDArray[Any],
        centers: npt.NDArray[Any],
        labels: Labels,
    ) -> None:
        lloyd_iter_chunked_dense(
            points, weights, centers, None, None, labels, None, n_threads=1, update_centers=False
        )

    points = np.array([[0.0, 1.0], [9.0, 9.0], [4.0, 4.0]])
    labels = np.full(3, -1, np.int32)
    try:
        for dtype in (np.float32, np.float64):
            tried = points.astype(dtype)
            label(tried, np.ones(3, dtype), tried[::-1].copy(), labels)
            if labels.tolist() != [2, 1, 0]:
                return None
    except (TypeError, ValueError):
        return None
    return label


_lock = threading.Lock()
_entries: list[Any] = []


@functools.cache
def _blas() -> Any:
    # Finding the libraries takes milliseconds; the relevant ones are already loaded.
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS in this process to one thread, as tasks already run on all cores.

    Reentrant across threads: the first one sets the limit, the last one to leave lifts it.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_blas_thread():
    ...     {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
    {1}
    """
    with _lock:
        _entries.append(None if _entries else _blas().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            # The first entry is the limiter; it is the last one to be popped.
            limiter = _entries[0]
            _entries.pop()
            if not _entries:
                limiter.restore_original_limits()
