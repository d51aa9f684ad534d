"""Choose first centres for k-means among distributed points.

The *mass* of a point is its weight; once there are centres, its weight times its squared distance
to the nearest one. Sampling follows the global row order: the client draws a level between zero and
the total mass and finds the block where the cumulative mass reaches it; a task finds the row in
that block. Thus the centres depend on the seed, not on blocks or locations, and for
``"k-means++"`` and ``"random"`` they equal those of scikit-learn.

``"k-means++"`` (greedy, as in scikit-learn) takes two passes per centre: a few candidates are read
from their blocks, then every partition computes the mass that would remain with each candidate.
``"k-means||"`` (Bahmani et al., "Scalable k-means++", 2012) takes twelve passes: in five rounds
about twice as many points as centres become candidates, and the client clusters these.

Between passes, each point's distance to its nearest centre stays at its location.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from spliter import InvalidArgumentError, Partition, batches, gather, task
from spliter_apps._blocks import Schema, dense
from spliter_apps._differences import refuse_masked
from spliter_apps.kmeans.kernel import (
    SCRATCH_BYTES,
    Block,
    FloatArray,
    concatenated,
    points_and_weights,
    rows_of,
    rows_within_scratch,
    squared_lengths,
)
from spliter_apps.kmeans.lloyd import add_up
from spliter_apps.kmeans.points import BlockReader, IntArray, Points, block_numbers, block_starts

MAX_ONE_BY_ONE = 16
"""Clusters up to which the default is k-means++, with the draws of scikit-learn. On 16 workers, 16
clusters take it 35 round trips and 1.9 times the CPU time of k-means||, which makes 15 round trips
whatever the number of clusters; 64 clusters 131 and 7.4 times, 8 clusters 19 and 0.8 times."""

ROUNDS = 5
"""Rounds of k-means||; Bahmani et al. find no gain from more."""

OVERSAMPLING = 2.0
"""Candidates of a round of k-means|| per centre, as in Bahmani et al. and in dask-ml."""

RECLUSTERINGS = 10
"""Starts of the k-means that clusters the candidates; the best is kept. With 1, 3, 10 and 30
starts, fits of 20 clusters of very different size end at inertias of 12,240, 12,180, 11,990 and
11,880; ten starts take 13 ms longer than one, thirty 41 ms."""

NO_ROWS: IntArray = np.empty(0, np.int64)


def first_centers(
    points: Points, how: str, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Choose first centres of shape (n_clusters, n_features) with one of the four methods.

    ``"auto"`` depends on the number of clusters, not of partitions, so that results do not
    depend on the locations of the blocks.
    """
    if how == "auto":
        how = "k-means++" if n_clusters <= MAX_ONE_BY_ONE else "k-means||"
    seeder = Seeder(points, n_clusters, random_state)
    ways = {"k-means++": seeder.plus_plus, "k-means||": seeder.parallel, "random": seeder.random}
    return ways[how]()


def check_centers(given: Any, schema: Schema, n_clusters: int) -> FloatArray:
    """Return a copy of the caller's centres, cast to the dtype of the points."""
    refuse_masked(given, "init")
    centers = dense(check_array(given, accept_sparse="csr", dtype=schema.dtype, input_name="init"))
    expected = {"clusters": n_clusters, "features of the data": schema.n_features}
    for (what, size), found in zip(expected.items(), centers.shape, strict=True):
        if found != size:
            raise InvalidArgumentError(
                f"The shape of the initial centers {centers.shape} does not match the number of "
                f"{what} {size}."
            )
    return np.array(centers, dtype=np.float64)


class Seeder:
    """Draws first centres; tracks the masses of blocks and, at the locations, the distances."""

    def __init__(
        self, points: Points, n_clusters: int, random_state: np.random.RandomState
    ) -> None:
        self.points = points
        self.n_clusters = n_clusters
        self.random_state = random_state
        # One list for all passes: the states belong to these partitions.
        self.partitions = list(points.parts)
        self.numbers = [block_numbers(partition) for partition in self.partitions]
        self.states: list[Any] = [None] * len(self.partitions)
        self.masses = points.masses
        self.none = np.empty((0, points.schema.n_features))
        self.chosen = self.none
        self.reader = points.reader(np.zeros(points.schema.n_features))

    def random(self) -> FloatArray:
        """Draw distinct points by weight, in the order of ``numpy.random.choice``."""
        drawn = self.none
        taken = NO_ROWS
        while len(drawn) < self.n_clusters:
            # Rounding may leave a small remainder of the mass of points already drawn.
            if self.masses.sum() <= 1e-12 * self.points.masses.sum():
                raise InvalidArgumentError(
                    f"n_clusters={self.n_clusters} needs as many points of positive weight, got "
                    f"{len(drawn)}"
                )
            uniform = self.random_state.random_sample(self.n_clusters - len(drawn))
            blocks, found = self._draw(uniform, "right", taken)
            first = np.sort(np.unique(found.rows, return_index=True)[1])
            drawn = np.concatenate([drawn, found.points[first]])
            taken = np.concatenate([taken, found.rows[first]])
            left = self.masses.copy()
            np.subtract.at(left, blocks[first], found.weights[first])
            self.masses = np.maximum(left, 0.0)
        return drawn

    def plus_plus(self) -> FloatArray:
        """Draw centres one by one, favouring points far from the previous ones."""
        return self._extend_centers(self._first())

    def parallel(self) -> FloatArray:
        """Draw many candidates in a few passes, and cluster them."""
        candidates = self._first()
        seed = int(self.random_state.randint(2**31))
        for number in range(ROUNDS):
            more = self._sample_points(seed, number)
            candidates = np.concatenate([candidates, more])
            if number < ROUNDS - 1 or len(candidates) < self.n_clusters:
                self._choose(more)
            if not self.masses.any():
                break
        if len(candidates) < self.n_clusters:
            return self._extend_centers(candidates)
        weights = add_up(self.points, self.reader, candidates).weights
        return self._recluster(candidates, weights)

    def _first(self) -> FloatArray:
        """Draw the first centre by weight, and compute the distances to it."""
        _, found = self._draw(self.random_state.random_sample(1), "right")
        self.reader = self.points.reader(found.points[0])
        self._choose(found.points)
        return found.points

    def _extend_centers(self, centers: FloatArray) -> FloatArray:
        """Add the best of a few candidates until there are enough centres."""
        n_tried = 2 + int(np.log(self.n_clusters))
        while len(centers) < self.n_clusters:
            _, candidates = self._draw(self.random_state.uniform(size=n_tried), "left")
            masses = self._measure(candidates.points)
            best = int(masses.sum(axis=1).argmin())
            self.masses = masses[best]
            self.chosen = candidates.points[best : best + 1]
            centers = np.concatenate([centers, self.chosen])
        return centers

    def _choose(self, centers: FloatArray) -> None:
        """Add centres, and compute the remaining mass."""
        self.chosen = centers
        self.masses = self._measure(self.none)[0]

    def _recluster(self, candidates: FloatArray, weights: FloatArray) -> FloatArray:
        """Cluster weighted candidates at the client; candidates of weight zero are ignored."""
        kmeans = KMeans(self.n_clusters, n_init=RECLUSTERINGS, random_state=self.random_state)
        # One thread clusters so few points faster.
        with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
            # Fewer distinct candidates than clusters: the fit itself warns about it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(candidates, sample_weight=weights)
        return np.asarray(kmeans.cluster_centers_, np.float64)

    # --- passes -----------------------------------------------------------------------------

    def _draw(
        self, uniform: FloatArray, side: str, taken: IntArray = NO_ROWS
    ) -> tuple[IntArray, DrawnPoints]:
        """Find the points at these fractions of the total mass, and the blocks they are in."""
        sums = np.cumsum(self.masses)
        levels = uniform * sums[-1]
        blocks = rows_at(self.masses, levels, side)
        heights = self.points.parts.grid.row_counts
        if not heights[blocks].all():
            # The total mass is zero: use a block that has rows.
            blocks = np.full(len(blocks), np.flatnonzero(heights)[0])
        levels = levels - (sums - self.masses)[blocks]
        futures, orders = [], []
        for partition, numbers, state in zip(
            self.partitions, self.numbers, self.states, strict=True
        ):
            order = np.flatnonzero(np.isin(blocks, numbers))
            if len(order):
                wanted = (blocks[order], levels[order], side, taken)
                futures.append(find(partition, self.reader, state, self.chosen, *wanted))
                orders.append(order)
        found = concatenated(gather(futures))
        return blocks, rows_of(found, np.argsort(np.concatenate(orders)))

    def _measure(self, candidates: FloatArray) -> FloatArray:
        """Return the mass of each block for each candidate; shape (max(m, 1), n_blocks)."""
        self.states = [
            measure(partition, self.reader, state, self.chosen, candidates)
            for partition, state in zip(self.partitions, self.states, strict=True)
        ]
        self.chosen = self.none
        found = gather(map(masses_of, self.partitions, self.states))
        masses = np.empty((len(found[0]), len(self.masses)))
        for numbers, of_partition in zip(self.numbers, found, strict=True):
            masses[:, numbers] = of_partition
        return masses

    def _sample_points(self, seed: int, number: int) -> FloatArray:
        """Draw each point independently, with a probability proportional to its mass."""
        total = float(self.masses.sum())
        if not total:
            return self.none
        args = (OVERSAMPLING * self.n_clusters / total, seed, number)
        futures = [
            sample(partition, self.reader, state, *args)
            for partition, state in zip(self.partitions, self.states, strict=True)
        ]
        drawn: DrawnPoints = concatenated(gather(futures))
        return rows_of(drawn, np.argsort(drawn.rows)).points


# --- numerics ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distances:
    """Distances of the points of some blocks to the centres chosen so far."""

    closest: FloatArray
    """Squared distance of each point to the nearest centre; infinite without centres."""
    masses: FloatArray
    """Mass of each block if each of m candidates were chosen too; shape (max(m, 1), n_blocks)."""


def update_distances(
    blocks: Iterable[Block],
    counts: IntArray,
    closest: FloatArray | None,
    chosen: FloatArray,
    candidates: FloatArray,
    origin: FloatArray,
) -> Distances:
    """Update the distances for chosen centres, and evaluate candidates for the next one.

    `counts` are the rows of each block, `closest` the distances without the chosen centres,
    ``None`` if there were no centres; it is not modified. The origin is a point near the data, or
    zero.

    Examples
    --------
    >>> blocks, counts = [np.array([[0.0], [1.0]]), np.array([[3.0]])], np.array([2, 1])
    >>> zero, none = np.zeros(1), np.empty((0, 1))
    >>> found = update_distances(blocks, counts, None, np.array([[0.0]]), none, zero)
    >>> found.closest, found.masses
    (array([0., 1., 9.]), array([[1., 9.]]))
    """
    n_tried = len(candidates)
    rows = rows_within_scratch(3 * (n_tried + len(chosen)) + 2)
    chosen, candidates = chosen - origin, candidates - origin
    masses = np.zeros((max(n_tried, 1), len(counts)))
    numbers = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[numbers]
    updated = [np.empty(0)]
    at = 0
    for batch in batches(blocks, SCRATCH_BYTES, rows=rows):
        points, weights = points_and_weights(batch)
        if not issparse(points):
            points = points - origin
        height = points.shape[0]
        nearest = np.full(height, np.inf) if closest is None else closest[at : at + height]
        if len(chosen):
            nearest = np.minimum(nearest, squared_distances(points, chosen).min(axis=0))
        updated.append(nearest)
        tried = nearest[None, :]
        if n_tried:
            tried = np.minimum(tried, squared_distances(points, candidates))
        if weights is not None:
            tried = tried * weights
        first, last = starts.searchsorted(at, "right") - 1, starts.searchsorted(at + height)
        cuts = np.maximum(starts[first:last] - at, 0)
        masses[:, numbers[first:last]] += np.add.reduceat(tried, cuts, axis=1)
        at += height
    return Distances(np.concatenate(updated), masses)


def squared_distances(points: Any, centers: FloatArray) -> FloatArray:
    """Return the squared distances of n points to m centres; shape (m, n).

    Values below the rounding error are exactly zero, so that points at a centre have no mass.
    """
    lengths = squared_lengths(points) + squared_lengths(centers)[:, None]
    squares: FloatArray = lengths - 2 * (points @ centers.T).T
    squares[squares < 8 * np.finfo(np.float64).eps * lengths] = 0.0
    return squares


def rows_at(masses: FloatArray, levels: FloatArray, side: Any = "left") -> IntArray:
    """Find the rows at which the cumulative mass reaches the given levels.

    `side` is that of ``numpy.searchsorted``, for levels equal to a cumulative mass. If a level
    exceeds the total by rounding, or the total is 0, the result is the last row with mass, or
    the first row.

    Examples
    --------
    >>> rows_at(np.array([0.0, 2.0, 0.0, 1.0, 0.0]), np.array([1.0, 2.5, 3.5]))
    array([1, 3, 3])
    """
    found = np.searchsorted(np.cumsum(masses), levels, side=side)
    with_mass = np.flatnonzero(masses)
    return np.minimum(found, with_mass[-1] if len(with_mass) else 0)


def uniforms(seed: int, sequence: int, start: int, height: int) -> FloatArray:
    """Return random numbers in [0, 1) that depend on global rows, not on the blocks.

    One for each of `height` rows from the global index `start`; seed and sequence select a stream.

    Examples
    --------
    >>> whole = uniforms(7, 0, 0, 10)
    >>> bool((uniforms(7, 0, 5, 3) == whole[5:8]).all())
    True
    """
    # One step of the generator's counter yields four numbers.
    count, skipped = divmod(start, 4)
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[count, sequence, 0, 0]))
    return generator.random(skipped + height)[skipped:]


# --- tasks ------------------------------------------------------------------------------------


class DrawnPoints(NamedTuple):
    """Drawn points, their global rows, and their weights."""

    points: FloatArray
    rows: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, block: Block, at: IntArray, start: int) -> DrawnPoints:
        """Return the points at rows `at` of a block whose first global row is `start`."""
        points, weights = points_and_weights(block)
        own = np.ones(len(at)) if weights is None else weights[at]
        return cls(dense(points[at]).astype(np.float64), start + at, own)


@task
def find(
    partition: Partition,
    reader: BlockReader,
    state: Distances | None,
    chosen: FloatArray,
    blocks: IntArray,
    levels: FloatArray,
    side: str,
    taken: IntArray,
) -> DrawnPoints:
    """Find the point at each level of a block's cumulative mass; `taken` rows are excluded."""
    before = None if state is None else partition.cut(state.closest)
    found, orders = [], []
    for number, (start, (index, block)) in enumerate(
        zip(block_starts(partition), partition.items(), strict=True)
    ):
        order = np.flatnonzero(blocks == index[0])
        if len(order):
            points = reader.block(block)
            closest = None if before is None else before[number]
            masses = _row_masses(points, closest, chosen, reader.origin)
            rows = start + np.arange(len(masses))
            left = np.where(np.isin(rows, taken), 0.0, masses)
            found.append(DrawnPoints.of(points, rows_at(left, levels[order], side), start))
            orders.append(order)
    return rows_of(concatenated(found), np.argsort(np.concatenate(orders)))


def _row_masses(
    block: Block, closest: FloatArray | None, chosen: FloatArray, origin: FloatArray
) -> FloatArray:
    """Return the mass of each point of a block: its weight, if there are no centres."""
    points, weights = points_and_weights(block)
    own = np.ones(points.shape[0]) if weights is None else weights
    if closest is None:
        return own
    counts = np.array([len(own)])
    return own * update_distances([points], counts, closest, chosen, chosen[:0], origin).closest


@task
def measure(
    partition: Partition,
    reader: BlockReader,
    state: Distances | None,
    chosen: FloatArray,
    candidates: FloatArray,
) -> Distances:
    """Update the distances of a partition; they stay at its location."""
    closest = None if state is None else state.closest
    blocks = reader.blocks(partition)
    counts = partition.indexes.item_counts
    assert counts is not None, "the sizes of blocks are known after the first pass"
    return update_distances(blocks, counts, closest, chosen, candidates, reader.origin)


@task
def masses_of(partition: Partition, state: Distances) -> FloatArray:
    """Return the masses of a partition's blocks, without the distances."""
    return state.masses


@task
def sample(
    partition: Partition,
    reader: BlockReader,
    state: Distances,
    factor: float,
    seed: int,
    sequence: int,
) -> DrawnPoints:
    """Draw each point of a partition with probability `factor` times its mass."""
    blocks, distances = reader.blocks(partition), partition.cut(state.closest)
    found = []
    for block, start, closest in zip(blocks, block_starts(partition), distances, strict=True):
        weights = points_and_weights(block)[1]
        masses = closest if weights is None else closest * weights
        at = np.flatnonzero(uniforms(seed, sequence, start, len(masses)) < factor * masses)
        found.append(DrawnPoints.of(block, at, start))
    return concatenated(found)
