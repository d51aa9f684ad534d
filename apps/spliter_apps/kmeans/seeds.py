"""First centres at the partitions: draw points by their mass, and measure what is left of it.

The mass of a point is its weight, times its squared distance to the nearest centre once there
are centres. These distances are the only state between two passes: one number per point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import Partition, task
from spliter_apps.kmeans.kernel import squared_lengths
from spliter_apps.kmeans.pieces import Block, FloatArray, Piece, piece_rows, pieces
from spliter_apps.kmeans.points import IntArray, Reading


@dataclass(frozen=True)
class Centers:
    """Centres to measure distances to.

    Parameters
    ----------
    points : ndarray of float64, shape (m, n_features)
        The centres; m may be 0.
    origin : ndarray of float64, shape (n_features,), or None
        A point near the data; ``None`` if some of the data is sparse, which stays in place.
    """

    points: FloatArray
    origin: FloatArray | None

    def squared_distances(self, points: Any) -> FloatArray:
        """Return the squared distances of points (less the origin) to all centres.

        Parameters
        ----------
        points : ndarray or CSR matrix of shape (n, n_features)
            Less the origin.

        Returns
        -------
        ndarray of float64, shape (m, n)
            What is below the rounding error is exactly zero, so that points at a centre have
            no mass.
        """
        centers = self.points if self.origin is None else self.points - self.origin
        lengths = squared_lengths(points) + squared_lengths(centers)[:, None]
        squares: FloatArray = lengths - 2 * (points @ centers.T).T
        squares[squares < 8 * np.finfo(np.float64).eps * lengths] = 0.0
        return squares


@dataclass(frozen=True)
class Reach:
    """How far the points of some blocks are from the centres.

    Parameters
    ----------
    closest : ndarray of float64, shape (n,)
        Squared distance of each point to the nearest of the centres chosen so far.
    masses : ndarray of float64, shape (max(m, 1), n_blocks)
        Mass of each block: if each of the m candidates were chosen as well, or, without
        candidates, as it is.
    """

    closest: FloatArray
    masses: FloatArray


def reach(
    blocks: Iterable[Block],
    n_blocks: int,
    closest: FloatArray | None,
    chosen: Centers,
    candidates: Centers,
) -> Reach:
    """Bring the distances up to date, and try candidates for the next centre.

    Parameters
    ----------
    blocks : iterable of (points, weights)
        As for :func:`spliter_apps.kmeans.kernel.partial_sums`.
    n_blocks : int
        How many there are.
    closest : ndarray of float64, shape (n,), or None
        Distances from the last pass; it is not changed. ``None`` at the beginning.
    chosen : Centers
        Centres chosen since then.
    candidates : Centers
        Candidates for the next one; about the same origin.

    Returns
    -------
    Reach
        The new distances, and masses of blocks.

    Examples
    --------
    >>> blocks = [(np.array([[0.0], [1.0]]), None), (np.array([[3.0]]), None)]
    >>> first, none = Centers(np.array([[0.0]]), None), Centers(np.empty((0, 1)), None)
    >>> found = reach(blocks, 2, None, first, none)
    >>> found.closest, found.masses
    (array([0., 1., 9.]), array([[1., 9.]]))
    """
    n_features = candidates.points.shape[1]
    n_tried = len(candidates.points)
    rows = piece_rows(n_features + 3 * (n_tried + len(chosen.points)) + 2)
    masses = np.zeros((max(n_tried, 1), n_blocks))
    updated = [np.empty(0)]
    at = 0
    for piece in pieces(blocks, rows, np.float64, chosen.origin):
        height = piece.points.shape[0]
        nearest = _lowered(None if closest is None else closest[at : at + height], piece, chosen)
        updated.append(nearest)
        tried = nearest[None, :]
        if n_tried:
            tried = np.minimum(tried, candidates.squared_distances(piece.points))
        if piece.weights is not None:
            tried = tried * piece.weights
        masses[:, piece.blocks] += np.add.reduceat(tried, piece.starts, axis=1)
        at += height
    return Reach(np.concatenate(updated), masses)


def _lowered(before: FloatArray | None, piece: Piece, chosen: Centers) -> FloatArray:
    height = piece.points.shape[0]
    nearest = np.full(height, np.inf) if before is None else before
    if not len(chosen.points):
        return nearest
    lowered: FloatArray = np.minimum(nearest, chosen.squared_distances(piece.points).min(axis=0))
    return lowered


def row_masses(
    points: Any, weights: FloatArray | None, closest: FloatArray | None, chosen: Centers
) -> FloatArray:
    """Return the mass of each point of one block.

    Parameters
    ----------
    points : ndarray or CSR matrix of shape (n, n_features)
        The points.
    weights : ndarray of float64, shape (n,), or None
        Their weights.
    closest : ndarray of float64, shape (n,), or None
        Their distances from the last pass; ``None`` while there are no centres.
    chosen : Centers
        Centres chosen since then.

    Returns
    -------
    ndarray of float64, shape (n,)
        The weights as long as there are no centres at all.
    """
    own = np.ones(points.shape[0]) if weights is None else weights
    if closest is None and not len(chosen.points):
        return own
    masses = np.empty(points.shape[0])
    at = 0
    for piece in pieces(
        [(points, own)], piece_rows(points.shape[1] + 4), np.float64, chosen.origin
    ):
        cut = slice(at, at + piece.points.shape[0])
        nearest = _lowered(None if closest is None else closest[cut], piece, chosen)
        masses[cut] = nearest * own[cut]
        at = cut.stop
    return masses


def rows_at(masses: FloatArray, levels: FloatArray, side: Any = "left") -> npt.NDArray[np.int64]:
    """Find where the running sum of masses reaches some levels.

    Parameters
    ----------
    masses : ndarray of float64, shape (n,)
        At least one.
    levels : ndarray of float64, shape (m,)
        From 0 to the total.
    side : {"left", "right"}
        Whether a level is reached at the sum that equals it, or after.

    Returns
    -------
    ndarray of int64, shape (m,)
        Numbers of rows. Where rounding carries a level past the total, or the total is 0,
        the last row that has a mass, or the first row.

    Examples
    --------
    >>> rows_at(np.array([0.0, 2.0, 0.0, 1.0, 0.0]), np.array([1.0, 2.5, 3.5]))
    array([1, 3, 3])
    """
    found = np.searchsorted(np.cumsum(masses), levels, side=side)
    with_mass = np.flatnonzero(masses)
    return np.minimum(found, with_mass[-1] if len(with_mass) else 0)


def uniforms(seed: int, sequence: int, start: int, height: int) -> FloatArray:
    """Return random numbers that belong to rows, however these are cut into blocks.

    Parameters
    ----------
    seed : int
        Which numbers.
    sequence : int
        Different ones for each pass.
    start : int
        Global index of the first row.
    height : int
        Number of rows.

    Returns
    -------
    ndarray of float64, shape (height,)
        In [0, 1).

    Examples
    --------
    >>> whole = uniforms(7, 0, 0, 10)
    >>> bool((uniforms(7, 0, 5, 3) == whole[5:8]).all())
    True
    """
    # One count of the generator makes four numbers.
    count, skipped = divmod(start, 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[count, sequence, 0, 0]))
    return generator.random(skipped + height)[skipped:]


# --- tasks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    """Points to find in one block of a partition.

    Parameters
    ----------
    block : int
        Which block of the partition, in its order.
    rows : slice
        Its rows, among the partition's.
    levels : ndarray of float64, shape (m,)
        Running sums of masses to look for.
    order : ndarray of int64, shape (m,)
        Which draws they are; for the client.
    without : tuple of int
        Rows of the block that have been drawn before and are not to be found again.
    """

    block: int
    rows: slice
    levels: FloatArray
    order: IntArray
    without: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """Points found at levels.

    Parameters
    ----------
    points : ndarray of float64, shape (m, n_features)
        The points.
    rows : ndarray of int64, shape (m,)
        Their rows in the block; of the whole collection, where the client has them.
    weights : ndarray of float64, shape (m,)
        Their weights.
    """

    points: FloatArray
    rows: IntArray
    weights: FloatArray


@task
def find(
    partition: Partition,
    reading: Reading,
    reached: Reach | None,
    chosen: Centers,
    wanted: list[Levels],
    side: str,
) -> list[Found]:
    """Find points of a partition by their mass."""
    by_block = {levels.block: levels for levels in wanted}
    found: dict[int, Found] = {}
    for number, (_, block) in enumerate(partition.items()):
        if len(found) == len(by_block):
            break
        if number not in by_block:
            continue
        levels = by_block[number]
        points, weights = reading.block(block)
        closest = None if reached is None else reached.closest[levels.rows]
        masses = row_masses(points, weights, closest, chosen)
        if levels.without:
            masses = masses.copy()
            masses[list(levels.without)] = 0.0
        rows = rows_at(masses, levels.levels, side)
        own = np.ones(len(rows)) if weights is None else weights[rows]
        found[number] = Found(_dense(points[rows]), rows, own)
    return [found[levels.block] for levels in wanted]


@task
def measure(
    partition: Partition,
    reading: Reading,
    reached: Reach | None,
    chosen: Centers,
    candidates: Centers,
) -> Reach:
    """Bring the distances of a partition up to date; they stay where they are."""
    closest = None if reached is None else reached.closest
    blocks = reading.original_blocks(partition)
    return reach(blocks, len(partition), closest, chosen, candidates)


@task
def masses_of(partition: Partition, reached: Reach) -> FloatArray:
    """Return what of a partition's reach has to travel."""
    return reached.masses


@task
def sample(
    partition: Partition,
    reading: Reading,
    reached: Reach,
    factor: float,
    seed: int,
    sequence: int,
    starts: list[int],
) -> tuple[FloatArray, IntArray]:
    """Draw each point of a partition by itself; return those drawn and their global rows."""
    points_drawn, rows_drawn, at = [], [], 0
    for start, (points, weights) in zip(starts, reading.original_blocks(partition), strict=True):
        height = points.shape[0]
        masses = reached.closest[at : at + height]
        if weights is not None:
            masses = masses * weights
        rows = np.flatnonzero(uniforms(seed, sequence, start, height) < factor * masses)
        if len(rows):
            points_drawn.append(_dense(points[rows]))
            rows_drawn.append(start + rows)
        at += height
    if not rows_drawn:
        return np.empty((0, 0)), np.empty(0, np.int64)
    return np.concatenate(points_drawn), np.concatenate(rows_drawn)


def _dense(points: Any) -> FloatArray:
    return np.asarray(points.toarray() if hasattr(points, "toarray") else points, np.float64)
