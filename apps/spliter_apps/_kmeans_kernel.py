"""The numerics of k-means on blocks: which centre is nearest, and sums of the points there.

Nothing here knows of partitions or tasks. A kernel runs over blocks of any height in one go (see
:mod:`spliter_apps._kmeans_pieces`), with scratch memory that does not depend on them, and spends
its time in NumPy and BLAS calls that release the GIL.

*Nearest centre.* Of ``|x - c|^2`` only what depends on the centre ``c`` is computed. With any point
``s`` near the data (the shift)::

    |x - c|^2 = |x - s|^2 - 2 x.(c - s) + (c - s).(c + s)
                ---------   -----------------------------
                same for all c       the score: one matrix product

Rounding errors of the score grow with ``|x| |c - s|``, which for data of spread 1 around 1e6
is as small as the error with which such data is stored, and needs no centred copy of it. In
float32 that is not small; there the points are centred as they are copied, piece by piece.

*Sums.* For few centres, the places where the score equals its minimum are the one-hot matrix of
the labels, and its product with the points is the sums: nothing but vector instructions. Its
cost grows with the number of centres; for many a sparse matrix of the labels takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from spliter_apps._kmeans_pieces import Block, FloatArray, Piece, piece_rows, pieces

MOST_ONE_HOT = 16
"""Centres up to which the product with a dense one-hot matrix is the faster one."""


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
    """Centres made ready to score points, in the type and about the origin of the pieces."""

    def __init__(self, centers: FloatArray, shift: FloatArray | None, dtype: npt.DTypeLike) -> None:
        dtype = np.dtype(dtype)
        near = centers.mean(axis=0) if shift is None else shift
        self.origin: npt.NDArray[Any] | None = None
        origin = np.zeros_like(near)
        # Points about zero are at their place already; sparse ones have to stay where they are.
        if dtype.itemsize < 8 and near.any():
            # Rounded, so that points and centres are about the very same origin.
            self.origin = near.astype(dtype)
            near = origin = self.origin.astype(np.float64)
        apart = centers - near
        self.factors = (-2 * apart).astype(dtype)
        self.offsets = np.einsum("ij,ij->i", apart, centers + near - 2 * origin).astype(dtype)
        self.centers = (centers - origin).astype(dtype)
        self.dtype = dtype
        n_clusters, n_features = centers.shape
        self.rows = piece_rows(n_features + 2 * n_clusters, dtype.itemsize)

    def pieces(self, blocks: Iterable[Block]) -> Iterator[Piece]:
        return pieces(blocks, self.rows, self.dtype, self.origin)


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
    labelled = _Labelled(frame)
    one_hot = _OneHot(frame) if len(centers) <= MOST_ONE_HOT else labelled
    sums = np.zeros(centers.shape)
    weights = np.zeros(len(centers))
    for piece in frame.pieces(blocks):
        # Multiplying a dense one-hot matrix with a sparse one is slow.
        way = labelled if sparse.issparse(piece.points) else one_hot
        more_sums, more_weights = way.add_up(piece)
        sums += more_sums
        weights += more_weights
    if frame.origin is not None:
        sums += np.multiply.outer(weights, frame.origin.astype(np.float64))
    return Partial(sums, weights)


class _OneHot:
    """Sums by a matrix that is 1 where the score of a centre is the least of a point's."""

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame
        # Flat, as a piece of fewer rows needs rows next to each other as well.
        self.scores, self.matrix = np.empty((2, len(frame.factors) * frame.rows), frame.dtype)
        self.least = np.empty(frame.rows, frame.dtype)
        self.ones = np.ones(frame.rows, frame.dtype)

    def add_up(self, piece: Piece) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        points = piece.points
        height, n_clusters = len(points), len(self.frame.factors)
        # Centres by rows: the minimum is then taken of whole rows at once.
        scores = self.scores[: n_clusters * height].reshape(n_clusters, height)
        matrix = self.matrix[: n_clusters * height].reshape(n_clusters, height)
        least, ones = self.least[:height], self.ones[:height]
        np.matmul(self.frame.factors, points.T, out=scores)
        scores += self.frame.offsets[:, None]
        np.minimum.reduce(scores, axis=0, out=least)
        np.equal(scores, least, out=matrix, casting="unsafe")
        weights = matrix @ ones
        if weights.sum() != height:
            # Centres equally near: the first one gets the point.
            labels = matrix.argmax(axis=0)
            matrix[...] = 0
            matrix[labels, np.arange(height)] = 1
            weights = matrix @ ones
        if piece.weights is not None:
            matrix *= piece.weights
            weights = matrix @ ones
        return matrix @ points, weights


class _Labelled:
    """Sums by a sparse matrix with one entry per point; also the labels alone."""

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame
        self.factors = np.ascontiguousarray(frame.factors.T)
        self.ones = np.ones(frame.rows, frame.dtype)
        self.pointers = np.arange(frame.rows + 1, dtype=np.int32)
        # Used for every piece: where memory goes back to the system when it is freed (as in Dask's
        # workers) new pages take longer to come than the products to be computed.
        self.scores = np.empty((frame.rows, len(frame.factors)), frame.dtype)
        self.apart = np.empty((frame.rows, frame.factors.shape[1]), frame.dtype)

    def labels(self, points: Any) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
        """Return the nearest centre of each point, and all the scores, until the next call."""
        if sparse.issparse(points):
            scores = points @ self.factors
        else:
            scores = np.matmul(points, self.factors, out=self.scores[: len(points)])
        scores += self.frame.offsets
        return scores.argmin(axis=1), scores

    def squared_distances(
        self, points: Any, labels: npt.NDArray[np.intp], scores: npt.NDArray[Any]
    ) -> FloatArray:
        """Return the squared distance of each point to its centre."""
        if sparse.issparse(points):
            # The points are not shifted: what the score leaves out is their squared length.
            nearest = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
            squares: FloatArray = np.maximum(squared_lengths(points) + nearest, 0.0)
            return squares
        apart = self.apart[: len(points)]
        # All labels are in range; the mode spares a second buffer.
        np.take(self.frame.centers, labels, axis=0, out=apart, mode="clip")
        np.subtract(points, apart, out=apart)
        return squared_lengths(apart)

    def add_up(self, piece: Piece) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        height, n_clusters = piece.points.shape[0], len(self.frame.factors)
        labels, _ = self.labels(piece.points)
        if piece.weights is None:
            entries = self.ones[:height]
        else:
            entries = piece.weights.astype(self.frame.dtype, copy=False)
        matrix = sparse.csc_array(
            (entries, labels.astype(np.int32), self.pointers[: height + 1]),
            shape=(n_clusters, height),
        )
        sums: Any = matrix @ piece.points
        weights = np.bincount(labels, piece.weights, n_clusters)
        return _dense(sums), weights


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
    labelled = _Labelled(frame)
    found = np.empty(n_rows or 0, np.int32)
    far = [_no_points(centers.shape[1])]
    inertia, rows = 0.0, 0
    used = np.zeros(len(centers), np.bool_)
    for piece in frame.pieces(blocks):
        labels, scores = labelled.labels(piece.points)
        # Of all labels at once it would take a copy of them, twice their size.
        used |= np.bincount(labels, minlength=len(centers)) > 0
        if distances or farthest:
            squares = labelled.squared_distances(piece.points, labels, scores)
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
    labels: npt.NDArray[np.intp],
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
        labels[chosen].astype(np.int32),
    )


def _no_points(n_features: int) -> Farthest:
    none = np.empty(0)
    rows = np.empty(0, np.int64)
    return Farthest(none, rows, np.empty((0, n_features)), none, np.empty(0, np.int32))
