"""The tasks that choose first centres at the partitions, and what they are asked and answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter import Partition, task
from spliter_apps._kmeans_look import Reading
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import IntArray
from spliter_apps._kmeans_seeds import Centers, Reach, reach, row_masses, rows_at, uniforms


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
    found = {}
    for number, block in enumerate(reading.original_blocks(partition)):
        if number not in by_block:
            continue
        levels = by_block[number]
        points, weights = block
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
