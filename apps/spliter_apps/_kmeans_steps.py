"""One step of Lloyd's algorithm, as its tasks and the client make it alike: sums to new centres.

Every task gets what the tasks of the step before have found, adds that up, and so knows the new
centres without asking anyone. All add in the same order and come to the same numbers. Nothing has
to return to the client between two steps, and a task that finds that the iteration has ended does
no work.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spliter import Exchange, InvalidArgumentError, Partition, task
from spliter_apps._kmeans_kernel import Partial, partial_sums
from spliter_apps._kmeans_look import Findings, Looked, Reading, near
from spliter_apps._kmeans_pieces import FloatArray


@dataclass(frozen=True)
class State:
    """Where an iteration is.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    shift : ndarray of float64, shape (n_features,)
        A point near the data, from which sums are taken.
    n_iter : int
        How often the centres have been moved.
    moved : float
        Sum of the squared shifts of the centres in the last step.
    lost : Partial or None
        Sums of a step in which clusters have lost all their points. The client has to give them
        others before the iteration can go on.
    """

    centers: FloatArray
    shift: FloatArray
    n_iter: int = 0
    moved: float = np.inf
    lost: Partial | None = None

    def __sizeof__(self) -> int:
        """Return the bytes of it, which is what engines go by."""
        return object.__sizeof__(self) + self.centers.nbytes + self.shift.nbytes


@dataclass(frozen=True)
class Rule:
    """How an iteration goes on; small, and goes with every step.

    Parameters
    ----------
    reading : Reading
        How tasks read the points.
    is_sparse : bool
        Whether some of them are sparse.
    max_iter : int
        Most steps.
    tol : float
        Sum of the squared shifts of the centres up to which they count as staying.
    """

    reading: Reading
    is_sparse: bool
    max_iter: int
    tol: float

    @classmethod
    def of(cls, found: Findings, weighted: bool, max_iter: int, tol: float) -> Rule:
        """Return the rule for points of which everything is known.

        Parameters
        ----------
        found : Findings
            Of all points.
        weighted : bool
            Whether there are weights.
        max_iter : int
            Most steps.
        tol : float
            The tolerance relative to the mean variance of the features, as scikit-learn has it.

        Returns
        -------
        Rule
            For these points.
        """
        schema = found.schema
        spread = 0.0 if found.moments is None else found.moments.spread
        variance = spread / max(schema.n_items * schema.n_features, 1)
        return cls(Reading(schema.dtype, weighted), schema.is_sparse, max_iter, tol * variance)

    def start(self, centers: FloatArray) -> State:
        """Return the state of an iteration that has just begun."""
        return State(centers, near(centers, self.is_sparse))

    def left(self, state: State) -> int:
        """Return how many steps there may be still.

        Labels that stay the same give the very same sums, so this is the strict convergence of
        scikit-learn as well, without comparing labels.
        """
        return 0 if state.moved <= self.tol else max(self.max_iter - state.n_iter, 0)

    def rounded(self, centers: FloatArray) -> FloatArray:
        """Return centres as they will be kept: in the type of the points."""
        return centers.astype(self.reading.dtype).astype(np.float64)

    def moved(self, before: State, sums: Partial) -> State:
        """Move the centres to the means of their points."""
        centers = averages(sums)
        away = float(((centers - before.centers) ** 2).sum())
        return State(centers, self._shift(before.shift, centers), before.n_iter + 1, away)

    def _shift(self, shift: FloatArray, centers: FloatArray) -> FloatArray:
        """Return the same shift as long as it is near the centres.

        In float32 it decides how sums are rounded, and unless it stays, centres never quite do.
        """
        now = near(centers, self.is_sparse)
        away = float(((now - shift) ** 2).sum())
        return shift if away <= float(((centers - now) ** 2).sum()) else now


@dataclass(frozen=True)
class Step:
    """What a task has added up.

    Parameters
    ----------
    rule : Rule
        How the iteration goes on.
    state : State
        The centres it was done with.
    sums : Partial or None
        Of the points by their nearest centre; None if nothing was to be done, or is done yet.
    """

    rule: Rule
    state: State
    sums: Partial | None

    def __add__(self, other: Step) -> Step:
        """Return the step over the points of both."""
        if self.sums is None or other.sums is None:
            return self if self.sums is None else other
        return Step(self.rule, self.state, self.sums + other.sums)

    def __sizeof__(self) -> int:
        """Return the bytes of it, which is what engines go by."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, (self.state, self.sums)))

    def after(self) -> State:
        """Return where the iteration is after a step over all points.

        Returns
        -------
        State
            The new centres, unless clusters have lost all their points.
        """
        if self.sums is None:
            return self.state
        if not self.sums.weights.all():
            before = self.state
            return State(before.centers, before.shift, before.n_iter, before.moved, self.sums)
        return self.rule.moved(self.state, self.sums)


@dataclass(frozen=True)
class Opening:
    """What an iteration from given centres needs to begin, but for what is in the points.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        Where to start.
    weighted : bool
        Whether the points have weights.
    max_iter : int
        Most steps.
    tol : float
        The tolerance relative to the mean variance of the features.
    """

    centers: FloatArray
    weighted: bool
    max_iter: int
    tol: float

    def first(self, found: Findings) -> Step | None:
        """Return the first step, if it was made when the points were looked at.

        Parameters
        ----------
        found : Findings
            Of all points.

        Returns
        -------
        Step or None
            None where the centres have to be rounded first, or some points were read otherwise
            than all of them will be.
        """
        rule = Rule.of(found, self.weighted, self.max_iter, self.tol)
        if found.sums is None or not np.array_equal(rule.rounded(self.centers), self.centers):
            return None
        return Step(rule, rule.start(self.centers), found.sums)


def averages(sums: Partial) -> FloatArray:
    """Return the means of clusters; a cluster without weight gets that of the heaviest one.

    Parameters
    ----------
    sums : Partial
        Of all points.

    Returns
    -------
    ndarray of float64, shape (n_clusters, n_features)
        New centres.

    Examples
    --------
    >>> averages(Partial(np.array([[6.0], [0.0]]), np.array([3.0, 0.0])))
    array([[2.],
           [2.]])
    """
    has_weight = sums.weights > 0
    centers: FloatArray = sums.sums / np.where(has_weight, sums.weights, 1.0)[:, None]
    centers[~has_weight] = centers[sums.weights.argmax()]
    return centers


def total(before: Sequence[Step | None]) -> Step | None:
    """Add up a step of all partitions.

    Parameters
    ----------
    before : sequence of Step or None
        What the tasks have found, in the order of their partitions; or the sum of that.

    Returns
    -------
    Step or None
        Over all points; None if the iteration has not begun. Where some tasks have come further
        than others, the step that the furthest ones were at, without sums: it follows from what
        all had found before.

    Examples
    --------
    >>> total([None, None]) is None
    True
    """
    begun = [step for step in before if step is not None]
    if not begun:
        return None
    # Tasks that exchange what they find may come more or less far, one that is run again alone
    # least of all.
    furthest = max(begun, key=lambda step: (step.state.n_iter, step.sums is None))
    if furthest.sums is None or any(step.state.n_iter < furthest.state.n_iter for step in begun):
        return Step(furthest.rule, furthest.state, None)
    return functools.reduce(operator.add, begun)


@task
def open_up(
    partition: Partition, exchange: Exchange | None, most: int, opening: Opening, *looked: Looked
) -> Step | None:
    """Make the second step, after the first one that was made in looking at the points.

    Parameters
    ----------
    partition : Partition
        Of points, or of points and weights.
    exchange, most
        As those of :func:`advance`.
    opening : Opening
        What the looking tasks do not know.
    *looked : Looked
        What they have found, of all partitions.

    Returns
    -------
    Step or None
        As from :func:`advance`; None where the iteration cannot begin like this.
    """
    try:
        found = Findings.of(looked)
    except InvalidArgumentError:  # which the client refuses as well
        return None
    return _advanced(partition, exchange, most, opening.first(found))


@task
def advance(
    partition: Partition, exchange: Exchange | None, most: int, *before: Step | None
) -> Step | None:
    """Add up the points of a partition by the centres that the step before has led to.

    Parameters
    ----------
    partition : Partition
        Of points, or of points and weights.
    exchange : Exchange or None
        With the tasks on the other partitions, to make several steps for as long as they keep up.
    most : int
        Steps to make then.
    *before : Step or None
        The steps before, of all partitions, or their sum.

    Returns
    -------
    Step or None
        Of this partition, the last one made; None if the iteration has not begun.
    """
    return _advanced(partition, exchange, most, total(before))


def _advanced(
    partition: Partition, exchange: Exchange | None, most: int, step: Step | None
) -> Step | None:
    mine = _next(partition, step)
    for _ in range(1, most):
        # All tasks know alike that the iteration has ended; none of them waits then.
        if exchange is None or mine is None or mine.sums is None:
            break
        found = exchange.allgather(mine)
        if found is None:
            break
        mine = _next(partition, total(found))
    return mine


def _next(partition: Partition, step: Step | None) -> Step | None:
    """Make the step after another one, unless the iteration has ended, or never begun."""
    if step is None:
        return None
    rule, state = step.rule, step.after()
    if state.lost is not None or not rule.left(state):
        return Step(rule, state, None)
    blocks = rule.reading.blocks(partition)
    sums = partial_sums(blocks, state.centers, shift=state.shift, dtype=rule.reading.dtype)
    return Step(rule, state, sums)
