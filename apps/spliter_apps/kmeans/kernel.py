"""The numerics of k-means on blocks: which centre is nearest, and sums of the points there.

Nothing here knows of partitions or tasks. A kernel runs over blocks of any height in one go (see
:mod:`spliter_apps.kmeans.pieces`), with scratch memory that does not depend on them, and spends
its time in calls that release the GIL.

*Nearest centre.* scikit-learn's own kernel labels dense points. NumPy labels sparse ones, and all
where that kernel is not as expected: of ``|x - c|^2`` it computes what depends on the centre ``c``,
``|c|^2 - 2 x.c``, with one matrix product.

*Precision.* Both lose digits where the points are far from zero compared with the distances between
centres, and in float32. There the points are centred about an origin as they are copied, batch by
batch.

*Sums.* A sparse matrix with one entry per point, in the row of its label, times the points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter_apps.kmeans.pieces import (
    SCRATCH_BYTES,
    Block,
    FloatArray,
    Piece,
    piece_rows,
    pieces,
)

FAR = 100.0
"""Distance of the data from zero, relative to the distances between centres, from which points are
centred. Up to there, labels are right to 12 digits without."""

ROW_BYTES = 24
"""Scratch bytes per point that is labelled and added up in place: label, weight and pointer."""


@dataclass(frozen=True)
class Partial:
    """What a pass over some points contributes to new centres.

    Parameters
    ----------
    sums : ndarray of float64, shape (n_clusters, n_features)
        Weighted sum of the points of each cluster.
    weights : ndarray of float64, shape (n_clusters,)
        Sum of their weights.
    """

    sums: FloatArray
    weights: FloatArray

    def __add__(self, other: Partial) -> Partial:
        """Return the contribution of both; neither is changed."""
        return Partial(self.sums + other.sums, self.weights + other.weights)

    def __sizeof__(self) -> int:
        """Return the bytes of it, which is what engines go by."""
        return object.__sizeof__(self) + self.sums.nbytes + self.weights.nbytes


@dataclass(frozen=True)
class Farthest:
    """The points farthest from their centre, the farthest first.

    Parameters
    ----------
    distances : ndarray of float64, shape (m,)
        Squared distances to the nearest centre.
    rows : ndarray of int64, shape (m,)
        Which rows they are, counted from the first row of the first block. Of points equally
        far the first ones are taken.
    points : ndarray of float64, shape (m, n_features)
        The points.
    weights : ndarray of float64, shape (m,)
        Their weights.
    labels : ndarray of int32, shape (m,)
        Their clusters.
    """

    distances: FloatArray
    rows: npt.NDArray[np.int64]
    points: FloatArray
    weights: FloatArray
    labels: npt.NDArray[np.int32]

    def counted(self, rows: npt.NDArray[np.int64]) -> Farthest:
        """Return the same points with rows counted from elsewhere."""
        return replace(self, rows=rows)

    @classmethod
    def of(cls, several: list[Farthest], most: int) -> Farthest:
        """Return the farthest points of several such lists.

        Parameters
        ----------
        several : list of Farthest
            At least one; `rows` counted from the same row.
        most : int
            How many to keep.

        Returns
        -------
        Farthest
            Of up to `most` points.
        """
        fields = ("distances", "rows", "points", "weights", "labels")
        joined = {name: np.concatenate([getattr(one, name) for one in several]) for name in fields}
        order = np.lexsort((joined["rows"], -joined["distances"]))[:most]
        return cls(**{name: values[order] for name, values in joined.items()})


@dataclass(frozen=True)
class Assignment:
    """The nearest centre of each point, and what the distances add up to.

    Parameters
    ----------
    labels : ndarray of int32, shape (n,)
        Number of the nearest centre; of centres equally near the first one.
    inertia : float
        Weighted sum of the squared distances to it.
    used : ndarray of bool, shape (n_clusters,)
        Which centres are nearest to some point.
    farthest : Farthest
        As many points as were asked for.
    """

    labels: npt.NDArray[np.int32]
    inertia: float
    used: npt.NDArray[np.bool_]
    farthest: Farthest


class _Frame:
    """Centres made ready to label points, in the type and about the origin of the pieces."""

    def __init__(self, centers: FloatArray, shift: FloatArray | None, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        near = centers.mean(axis=0) if shift is None else shift
        apart = ((centers - near) ** 2).sum(axis=1).max()
        is_far = near @ near > FAR**2 * apart
        self.origin: npt.NDArray[Any] | None = None
        # Points about zero are at their place already; sparse ones have to stay where they are.
        if near.any() and (is_far or self.dtype.itemsize < 8):
            # Rounded, so that points and centres are about the very same origin.
            self.origin = near.astype(self.dtype)
            centers = centers - self.origin.astype(np.float64)
        self.centers = np.ascontiguousarray(centers, self.dtype)
        self.factors = np.ascontiguousarray(-2 * centers.T, self.dtype)
        self.offsets = np.einsum("ij,ij->i", centers, centers).astype(self.dtype)
        n_clusters, n_features = centers.shape
        self.rows = piece_rows(n_features + 2 * n_clusters, self.dtype.itemsize)

    def pieces(self, blocks: Iterable[Block], rows_in_place: int | None = None) -> Iterator[Piece]:
        return pieces(blocks, self.rows, self.dtype, self.origin, rows_in_place)


def partial_sums(
    blocks: Iterable[Block],
    centers: FloatArray,
    *,
    shift: FloatArray | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> Partial:
    """Add up the points nearest to each centre: one pass of Lloyd's algorithm.

    Parameters
    ----------
    blocks : iterable of (points, weights)
        Points of shape (n, n_features), dense or CSR, and their weights or ``None`` (for
        all blocks, or for none).
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    shift : ndarray of float64, shape (n_features,), optional
        A point near the data, by default the mean of the centres; zeros for sparse points.
    dtype : dtype
        Type to compute in, float64 or float32. Sums over pieces are of float64 in both.

    Returns
    -------
    Partial
        Sums and weights of the clusters.

    Examples
    --------
    >>> blocks = [(np.array([[0.0], [1.0]]), None), (np.array([[9.0]]), None)]
    >>> found = partial_sums(blocks, np.array([[0.0], [8.0]]))
    >>> found.sums.ravel(), found.weights
    (array([1., 9.]), array([2., 1.]))
    """
    frame = _Frame(centers, shift, dtype)
    labeller = _Labeller(frame)
    sums = np.zeros(centers.shape)
    weights = np.zeros(len(centers))
    for piece in frame.pieces(blocks, labeller.rows_in_place):
        labels, _ = labeller.label(piece.points)
        matrix = labeller.one_hot(labels, piece.weights)
        sums += _dense(matrix @ piece.points)
        weights += np.bincount(labels, piece.weights, len(centers))
    if frame.origin is not None:
        sums += np.multiply.outer(weights, frame.origin.astype(np.float64))
    return Partial(sums, weights)


class _Labeller:
    """Finds the nearest centre of each point of a piece.

    Arrays are used for every piece: where memory goes back to the system when it is freed (as in
    Dask's workers) new pages take longer to come than the products to be computed.
    """

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame
        self.kernel = scikit_learn_kernel()
        self.rows_in_place = frame.rows if self.kernel is None else SCRATCH_BYTES // ROW_BYTES
        rows = max(frame.rows, self.rows_in_place)
        self.labels = np.empty(rows, np.int32)
        self.ones = np.ones(rows, frame.dtype)
        self.pointers = np.arange(rows + 1, dtype=np.int32)
        self.scores = np.empty((frame.rows, len(frame.centers)), frame.dtype)
        self.apart = np.empty((frame.rows, frame.centers.shape[1]), frame.dtype)

    def label(self, points: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any] | None]:
        """Return the label of each point until the next call, and the scores if they are known."""
        labels = self.labels[: points.shape[0]]
        if self.kernel is not None and not sparse.issparse(points):
            self.kernel(points, self.ones[: len(points)], self.frame.centers, labels)
            return labels, None
        if sparse.issparse(points):
            scores = points @ self.frame.factors
        else:
            scores = np.matmul(points, self.frame.factors, out=self.scores[: len(points)])
        scores += self.frame.offsets
        labels[:] = scores.argmin(axis=1)
        return labels, scores

    def one_hot(self, labels: npt.NDArray[np.int32], weights: FloatArray | None) -> Any:
        """Return the matrix of shape (n_clusters, n) with the weight of each point at its label."""
        height = len(labels)
        if weights is None:
            entries = self.ones[:height]
        else:
            entries = weights.astype(self.frame.dtype, copy=False)
        shape = (len(self.frame.centers), height)
        return sparse.csc_array((entries, labels, self.pointers[: height + 1]), shape=shape)

    def squared_distances(
        self, points: Any, labels: npt.NDArray[np.int32], scores: npt.NDArray[Any] | None
    ) -> FloatArray:
        """Return the squared distance of each point to its centre."""
        if sparse.issparse(points):
            assert scores is not None, "sparse points are labelled by their scores"
            # The points are not shifted: what the score leaves out is their squared length.
            nearest = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
            squares: FloatArray = np.maximum(squared_lengths(points) + nearest, 0.0)
            return squares
        apart = self.apart[: len(points)]
        # All labels are in range; the mode spares a second buffer.
        np.take(self.frame.centers, labels, axis=0, out=apart, mode="clip")
        np.subtract(points, apart, out=apart)
        return squared_lengths(apart)


Kernel = Callable[
    [npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int32]], None
]


@functools.cache
def scikit_learn_kernel() -> Kernel | None:
    """Return scikit-learn's function that labels dense points, if it does what is expected.

    It is not part of scikit-learn's public interface, so it is tried out first. It releases the GIL
    from its first point to its last, so that threads do not wait for each other.

    Returns
    -------
    callable or None
        Takes points, their weights, centres, all of one floating type, and an array that it
        writes labels to.

    Examples
    --------
    >>> label = scikit_learn_kernel()
    >>> labels = np.empty(2, np.int32)
    >>> if label is not None:
    ...     label(np.array([[1.0], [9.0]]), np.ones(2), np.array([[8.0], [0.0]]), labels)
    """
    try:
        from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
    except ImportError:
        return None

    def label(
        points: npt.NDArray[Any],
        weights: npt.NDArray[Any],
        centers: npt.NDArray[Any],
        labels: npt.NDArray[np.int32],
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


def assign(
    blocks: Iterable[Block],
    centers: FloatArray,
    *,
    shift: FloatArray | None = None,
    dtype: npt.DTypeLike = np.float64,
    distances: bool = True,
    farthest: int = 0,
    n_rows: int | None = None,
) -> Assignment:
    """Find the nearest centre of each point, and how far it is.

    Parameters
    ----------
    blocks, centers, shift, dtype
        As for :func:`partial_sums`.
    distances : bool
        Whether to compute distances. Without them the inertia is NaN.
    farthest : int
        How many of the farthest points to return.
    n_rows : int, optional
        How many points there are, if that is known: their labels then have memory at once.

    Returns
    -------
    Assignment
        Labels, inertia and farthest points. Distances of dense points are those of the
        points, not differences of large squares: the inertia of points at their centres
        is zero.

    Examples
    --------
    >>> blocks = [(np.array([[0.0], [1.0]]), None), (np.array([[9.0]]), None)]
    >>> found = assign(blocks, np.array([[0.0], [8.0]]), farthest=1)
    >>> found.labels, found.inertia, found.farthest.rows
    (array([0, 0, 1], dtype=int32), 2.0, array([1]))
    """
    frame = _Frame(centers, shift, dtype)
    labeller = _Labeller(frame)
    found = np.empty(n_rows or 0, np.int32)
    far = [_no_points(centers.shape[1])]
    inertia, rows = 0.0, 0
    used = np.zeros(len(centers), np.bool_)
    for piece in frame.pieces(blocks):
        labels, scores = labeller.label(piece.points)
        # Of all labels at once it would take a copy of them, twice their size.
        used |= np.bincount(labels, minlength=len(centers)) > 0
        if distances or farthest:
            squares = labeller.squared_distances(piece.points, labels, scores)
            inertia += float(squares.sum() if piece.weights is None else squares @ piece.weights)
            if farthest:
                far.append(_farthest(piece, squares, labels, frame, rows, farthest))
                far = [Farthest.of(far, farthest)]
        stop = rows + len(labels)
        if stop > len(found):
            found = _grown(found, stop)
        found[rows:stop] = labels
        rows = stop
    if rows < len(found):
        found = found[:rows].copy()  # a view would keep all of it
    return Assignment(found, inertia if distances else np.nan, used, far[0])


def _grown(labels: npt.NDArray[np.int32], least: int) -> npt.NDArray[np.int32]:
    grown = np.empty(max(least, 2 * len(labels)), np.int32)
    grown[: len(labels)] = labels
    return grown


def squared_lengths(points: Any) -> FloatArray:
    """Return the squared length of each point.

    Parameters
    ----------
    points : ndarray or CSR matrix of shape (n, n_features)
        Points.

    Returns
    -------
    ndarray of float64, shape (n,)
        Sums of squares.
    """
    if sparse.issparse(points):
        matrix: Any = points
        return np.asarray(matrix.multiply(matrix).sum(axis=1), np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", points, points), np.float64)


def _dense(points: Any) -> Any:
    # Asked like this, as the type that issparse() tells has no method toarray().
    return points.toarray() if hasattr(points, "toarray") else points


def _farthest(
    piece: Piece,
    squares: FloatArray,
    labels: npt.NDArray[np.int32],
    frame: _Frame,
    first_row: int,
    most: int,
) -> Farthest:
    chosen = np.argsort(-squares, kind="stable")[:most]
    dense = _dense(piece.points[chosen]).astype(np.float64)
    return Farthest(
        squares[chosen],
        first_row + chosen.astype(np.int64),
        dense if frame.origin is None else dense + frame.origin,
        np.ones(len(chosen)) if piece.weights is None else piece.weights[chosen],
        labels[chosen],
    )


def _no_points(n_features: int) -> Farthest:
    none = np.empty(0)
    rows = np.empty(0, np.int64)
    return Farthest(none, rows, np.empty((0, n_features)), none, np.empty(0, np.int32))
