"""First centres for k-means among points in partitions.

Draws are made by the global order of the points: the client draws a level between zero and the
mass of all points, finds the block where the running sum of masses reaches it, and the task
there finds the row. So a seed leads to the same centres however the points are cut and
wherever they are, and for ``"k-means++"`` and ``"random"`` to those of scikit-learn.

``"k-means++"`` (greedy, as scikit-learn does it) takes two passes for each centre: the candidates
are read at the few blocks they are in, then every partition tells what mass each would leave.
``"k-means||"`` (Bahmani et al., "Scalable k-means++", 2012) takes twelve passes whatever the number
of centres: in five rounds about twice as many points as centres are wanted join the candidates, and
the weighted candidates are clustered here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from spliter import InvalidArgumentError, gather
from spliter_apps._blocks import Schema
from spliter_apps.kmeans.lloyd import add_up
from spliter_apps.kmeans.pieces import FloatArray
from spliter_apps.kmeans.points import IntArray, Points, block_numbers
from spliter_apps.kmeans.seeds import (
    Centers,
    Found,
    Levels,
    find,
    masses_of,
    measure,
    rows_at,
    sample,
)

MOST_ONE_BY_ONE = 16
"""Clusters up to which the default is k-means++, with the draws of scikit-learn. On 16 workers, 16
clusters take it 35 round trips and 1.9 times the CPU time of k-means||, which makes 15 round trips
whatever the number of clusters; 64 clusters 131 and 7.4 times, 8 clusters 19 and 0.8 times."""

ROUNDS = 5
"""Rounds of k-means||; Bahmani et al. find no gain beyond."""

RECLUSTERINGS = 10
"""Starts of the k-means that clusters the candidates, of which the best is kept."""

OVERSAMPLING = 2.0
"""Points that join the candidates in a round, for each centre wanted."""


class Seeder:
    """Draws first centres.

    Parameters
    ----------
    points : Points
        To draw from.
    n_clusters : int
        Centres wanted.
    random_state : RandomState
        Where the random numbers come from.
    """

    def __init__(
        self, points: Points, n_clusters: int, random_state: np.random.RandomState
    ) -> None:
        self.points = points
        self.n_clusters = n_clusters
        self.random_state = random_state
        # The same partitions in every pass, as state is kept for each.
        self.partitions = list(points.parts)
        self.numbers = [block_numbers(partition) for partition in self.partitions]
        self.reached: list[Any] = [None] * len(self.partitions)
        self.origin: FloatArray | None = None
        self.chosen = self._centers(np.empty((0, points.schema.n_features)))
        self.masses = points.masses

    def _centers(self, points: FloatArray) -> Centers:
        return Centers(points, self.origin)

    # --- random -----------------------------------------------------------------------------

    def random(self) -> FloatArray:
        """Draw different points by their weight.

        Returns
        -------
        ndarray of float64, shape (n_clusters, n_features)
            The points.

        Raises
        ------
        InvalidArgumentError
            If fewer points have a weight.
        """
        drawn: list[FloatArray] = []
        without: dict[int, list[int]] = {}
        starts = self.points.starts
        while len(drawn) < self.n_clusters:
            if drawn and not self._has_more(without):
                raise InvalidArgumentError(
                    f"only {len(drawn)} points have a weight above 0, and there are to be "
                    f"{self.n_clusters} clusters"
                )
            uniform = self.random_state.random_sample(self.n_clusters - len(drawn))
            blocks, found = self._draw(uniform, "right", without)
            masses = self.masses.copy()
            for at, row in enumerate(found.rows.tolist()):
                block = int(blocks[at])
                taken = without.setdefault(block, [])
                if row - starts[block] not in taken:
                    taken.append(int(row - starts[block]))
                    drawn.append(found.points[at])
                    masses[block] -= found.weights[at]
            self.masses = np.maximum(masses, 0.0)
        return np.array(drawn)

    def _has_more(self, without: dict[int, list[int]]) -> bool:
        """Whether there is mass left, more than rounding has left over."""
        return bool(self.masses.sum() > 1e-12 * self.points.masses.sum())

    def _draw(
        self, uniform: FloatArray, side: str, without: dict[int, list[int]] | None = None
    ) -> tuple[IntArray, Found]:
        """Find the points at these shares of the mass of all points, in this order."""
        without = without or {}
        sums = np.cumsum(self.masses)
        levels = uniform * sums[-1]
        blocks = rows_at(self.masses, levels, side)
        # A block without rows has no point to give, even if no block has any mass.
        if not self.points.heights[blocks].all():
            blocks = np.full(len(blocks), np.flatnonzero(self.points.heights)[0])
        within = levels - (sums - self.masses)[blocks]
        futures, wanted = [], []
        for at, partition in enumerate(self.partitions):
            asked = list(self._levels(self.numbers[at], blocks, within, without))
            if asked:
                wanted += asked
                futures.append(
                    find(partition, self.points.reading, self.reached[at], self.chosen, asked, side)
                )
        answers = [found for answer in gather(futures) for found in answer]
        order = np.argsort(np.concatenate([levels.order for levels in wanted]))
        found = Found(
            np.concatenate([found.points for found in answers])[order],
            np.concatenate([found.rows for found in answers])[order] + self.points.starts[blocks],
            np.concatenate([found.weights for found in answers])[order],
        )
        return blocks, found

    def _levels(
        self,
        numbers: IntArray,
        blocks: IntArray,
        within: FloatArray,
        without: dict[int, list[int]],
    ) -> Iterable[Levels]:
        """Yield what to look for in the blocks of one partition."""
        heights = self.points.heights[numbers]
        stops = np.cumsum(heights)
        for at in np.flatnonzero(np.isin(numbers, blocks)).tolist():
            order = np.flatnonzero(blocks == numbers[at])
            rows = slice(int(stops[at] - heights[at]), int(stops[at]))
            taken = tuple(without.get(int(numbers[at]), ()))
            yield Levels(at, rows, within[order], order, taken)

    # --- k-means++ --------------------------------------------------------------------------

    def plus_plus(self) -> FloatArray:
        """Draw centres one after the other, far from those before.

        Returns
        -------
        ndarray of float64, shape (n_clusters, n_features)
            Points of the data.
        """
        return self._grown(self._first())

    def _first(self) -> FloatArray:
        """Draw the first centre by weight, and measure the distances to it."""
        _, found = self._draw(self.random_state.random_sample(1), "right")
        if not self.points.schema.is_sparse:
            self.origin = found.points[0]
        self._choose(found.points)
        return found.points

    def _choose(self, centers: FloatArray) -> None:
        """Measure the distances to centres that are new."""
        self.chosen = self._centers(centers)
        self.masses = self._try(self._centers(centers[:0]))[0]

    def _try(self, candidates: Centers) -> FloatArray:
        """Return the mass of each block for each candidate; shape (max(m, 1), n_blocks)."""
        reading = self.points.reading
        self.reached = [
            measure(partition, reading, reached, self.chosen, candidates)
            for partition, reached in zip(self.partitions, self.reached, strict=True)
        ]
        self.chosen = self._centers(self.chosen.points[:0])
        found = gather(map(masses_of, self.partitions, self.reached))
        masses = np.empty((len(found[0]), len(self.masses)))
        for numbers, of_partition in zip(self.numbers, found, strict=True):
            masses[:, numbers] = of_partition
        return masses

    def _grown(self, centers: FloatArray) -> FloatArray:
        """Add the best of a few candidates, until there are enough centres."""
        n_tried = 2 + int(np.log(self.n_clusters))
        while len(centers) < self.n_clusters:
            _, candidates = self._draw(self.random_state.uniform(size=n_tried), "left")
            masses = self._try(self._centers(candidates.points))
            best = int(masses.sum(axis=1).argmin())
            self.masses = masses[best]
            self.chosen = self._centers(candidates.points[best : best + 1])
            centers = np.concatenate([centers, self.chosen.points])
        return centers

    # --- k-means|| --------------------------------------------------------------------------

    def parallel(self) -> FloatArray:
        """Draw many candidates in a few passes, and cluster them.

        Returns
        -------
        ndarray of float64, shape (n_clusters, n_features)
            Points of the data.
        """
        candidates = self._first()
        seed = int(self.random_state.randint(2**31))
        for number in range(ROUNDS):
            more = self._sampled(seed, number)
            candidates = np.concatenate([candidates, more])
            if number < ROUNDS - 1 or len(candidates) < self.n_clusters:
                self._choose(more)
            if not self.masses.any():
                break
        if len(candidates) < self.n_clusters:
            return self._grown(candidates)
        return self._reclustered(candidates, self._weights(candidates))

    def _reclustered(self, candidates: FloatArray, weights: FloatArray) -> FloatArray:
        """Cluster weighted candidates at the client; candidates without weight play no part."""
        kmeans = KMeans(self.n_clusters, n_init=RECLUSTERINGS, random_state=self.random_state)
        # So few points are clustered faster by one thread.
        with threadpool_limits(1, user_api="openmp"), warnings.catch_warnings():
            # Fewer different points than clusters: the fit says so itself.
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(candidates, sample_weight=weights)
        return np.asarray(kmeans.cluster_centers_, np.float64)

    def _weights(self, candidates: FloatArray) -> FloatArray:
        """Return the weight of the points that are nearest to each candidate."""
        return add_up(self.points, candidates, self.points.origin_near(candidates)).weights

    def _sampled(self, seed: int, number: int) -> FloatArray:
        """Draw points of all partitions, in their global order."""
        if not self.masses.any():
            return self.chosen.points[:0]
        factor = OVERSAMPLING * self.n_clusters / float(self.masses.sum())
        starts = self.points.starts
        drawn = gather(
            sample(
                partition,
                self.points.reading,
                reached,
                factor,
                seed,
                number,
                starts[numbers].tolist(),
            )
            for partition, reached, numbers in zip(
                self.partitions, self.reached, self.numbers, strict=True
            )
        )
        drawn = [one for one in drawn if len(one[1])]
        if not drawn:
            return self.chosen.points[:0]
        rows = np.concatenate([rows for _, rows in drawn])
        found: npt.NDArray[np.float64] = np.concatenate([points for points, _ in drawn])
        return found[np.argsort(rows)]


def checked_centers(given: Any, schema: Schema, n_clusters: int) -> FloatArray:
    """Check first centres that the caller gave, in scikit-learn's words.

    Parameters
    ----------
    given : array-like or sparse matrix of shape (n_clusters, n_features)
        The centres.
    schema : Schema
        Of the points.
    n_clusters : int
        Number of clusters to form.

    Returns
    -------
    ndarray of float64, shape (n_clusters, n_features)
        A copy, rounded to the type of the points.

    Raises
    ------
    InvalidArgumentError
        If the shape is another one.
    """
    centers = check_array(given, accept_sparse="csr", dtype=schema.dtype, input_name="init")
    centers = centers.toarray() if hasattr(centers, "toarray") else centers
    wanted = {"clusters": n_clusters, "features of the data": schema.n_features}
    for (what, size), found in zip(wanted.items(), centers.shape, strict=True):
        if found != size:
            raise InvalidArgumentError(
                f"The shape of the initial centers {centers.shape} does not match the number of "
                f"{what} {size}."
            )
    return np.array(centers, dtype=np.float64)


def seeds(
    points: Points, how: str, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Draw first centres.

    Parameters
    ----------
    points : Points
        To draw from.
    how : {"auto", "k-means++", "k-means||", "random"}
        In which way. ``"auto"`` goes by the number of clusters: by that of partitions, the
        result would depend on where the blocks are.
    n_clusters : int
        How many.
    random_state : RandomState
        Where the random numbers come from.

    Returns
    -------
    ndarray of float64, shape (n_clusters, n_features)
        Points of the data.
    """
    if how == "auto":
        how = "k-means++" if n_clusters <= MOST_ONE_BY_ONE else "k-means||"
    seeder = Seeder(points, n_clusters, random_state)
    ways = {
        "k-means++": seeder.plus_plus,
        "k-means||": seeder.parallel,
        "random": seeder.random,
    }
    return ways[how]()
