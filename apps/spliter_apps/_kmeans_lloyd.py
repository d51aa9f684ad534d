"""Lloyd's algorithm on partitions: one task per partition and iteration.

A task returns the sums of its partition, a few kilobytes, and the tasks of the next iteration make
the new centres of them (:mod:`spliter_apps._kmeans_steps`). Several iterations are sent at once, so
that they do not wait for this program between them. What the iteration does is what
scikit-learn's does, in the same order: relocate empty clusters, average, compare the shift of the
centres with the tolerance; at the end assign the points once more, so that labels and centres
belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Partition, gather, task
from spliter_apps._kmeans_kernel import Farthest, Partial, assign
from spliter_apps._kmeans_look import Reading, near
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import Points
from spliter_apps._kmeans_steps import Rule, State, Step, advance
from spliter_apps._results import FEW, combine

MOST_AHEAD = 10
"""Iterations that are sent at once. When one ends the iteration, the tasks of those after it find
nothing to do; there may be nine of them for nothing, each as long as a way through a scheduler."""

MOST_SENT_NBYTES = 4 * 2**20
"""Bytes in one iteration of what every task gets from all."""

Summary: TypeAlias = tuple[State, tuple[float, npt.NDArray[np.bool_]] | None]
"""What of labelling has to travel: what the points were labelled by, and if they were, the inertia
and which clusters have points."""


@dataclass(frozen=True)
class Run:
    """Where Lloyd's algorithm has ended.

    Parameters
    ----------
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.
    inertia : float
        Weighted sum of the squared distances to them.
    n_iter : int
        Iterations made.
    n_used : int
        How many of the clusters have points.
    labels : list of (partition, future)
        Each future's result is a tuple whose first element is a list of arrays of labels,
        one per block.
    """

    centers: FloatArray
    inertia: float
    n_iter: int
    n_used: int
    labels: list[tuple[Partition, Any]]


@task
def _find_farthest(
    partition: Partition, reading: Reading, centers: FloatArray, shift: FloatArray, most: int
) -> Farthest:
    """Find the points of a partition that are farthest from their centre."""
    found = assign(
        reading.blocks(partition), centers, shift=shift, dtype=reading.dtype, farthest=most
    )
    return found.farthest


@task
def _label(
    partition: Partition, rule: Rule, *before: Step
) -> tuple[list[npt.NDArray[np.int32]], Summary]:
    """Label the points of a partition, unless the iteration has to go on; labels stay there."""
    state = rule.after(before)
    if state.lost is not None:
        return [], (state, None)
    # Rounded as they will be kept, so that predicting gives the same labels.
    centers = rule.rounded(state.centers)
    shift = near(centers, rule.is_sparse)
    found = assign(rule.reading.blocks(partition), centers, shift=shift, dtype=rule.reading.dtype)
    return partition.cut(found.labels), (state, (found.inertia, found.used))


@task
def _summary(partition: Partition, labelled: tuple[Any, Summary]) -> Summary:
    """Return the small part of what labelling has found, where that is."""
    return labelled[1]


def steps(points: Points, rule: Rule, state: State, ahead: int = 1) -> Step:
    """Make passes over all points.

    Parameters
    ----------
    points : Points
        The points.
    rule : Rule
        How the iteration goes on.
    state : State
        Where it is.
    ahead : int
        Most passes.

    Returns
    -------
    Step
        The last one, over all points; without sums if the iteration ended before.
    """
    made = _submitted(points, list(points.parts), rule, state, ahead)
    step: Step = combine(add, made[-1], state.centers.nbytes)
    return step


def _submitted(
    points: Points, partitions: Sequence[Partition], rule: Rule, state: State, ahead: int
) -> list[list[Any]]:
    """Submit the tasks of some steps; return what the first one starts from, and their futures.

    All are to be held until the last is there: should a worker die, what the others have found is
    not to be found again.
    """
    made: list[list[Any]] = [[Step(state, None)]]
    # The first step goes by itself, and is under way while the message with the others is written.
    for some in (1, ahead - 1) if ahead else ():
        with points.parts.together():
            for _ in range(some):
                made.append([advance(partition, rule, *made[-1]) for partition in partitions])
    return made


def _ended(points: Points, rule: Rule, state: State, left: int) -> tuple[State, Run | None]:
    """Make the last passes and label the points, unless clusters lose all of theirs before."""
    partitions = list(points.parts)  # before any message is begun: this may plan them anew
    made = _submitted(points, partitions, rule, state, left)
    with points.parts.together():
        labels = [_label(partition, rule, *made[-1]) for partition in partitions]
        summaries = [_summary(*pair) for pair in zip(partitions, labels, strict=True)]
    found: list[Summary] = gather(summaries)
    state = found[0][0]
    parts = [part for _, part in found if part is not None]
    if len(parts) < len(found):
        return state, None
    inertia = sum(inertia for inertia, _ in parts)
    used = np.any([used for _, used in parts], axis=0)
    centers = rule.rounded(state.centers)
    labelled = list(zip(partitions, labels, strict=True))
    return state, Run(centers, inertia, state.n_iter, int(used.sum()), labelled)


def lloyd(
    points: Points,
    centers: FloatArray,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] | None = None,
) -> Run:
    """Move centres to the means of their points until they stay.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Where to start.
    max_iter : int
        Most iterations.
    tol : float
        Sum of the squared shifts of the centres up to which they count as staying.
    report : callable, optional
        Gets a line for each iteration; costs a further pass in each.

    Returns
    -------
    Run
        The centres, and what belongs to them.
    """
    rule = Rule(points.reading, points.schema.is_sparse, max_iter, tol)

    def settled(before: State, step: Step) -> State:
        state = rule.after([step])
        if state.lost is not None:
            state = rule.moved(state, _relocated(points, state, state.lost))
        if report is not None:
            _report(points, rule, before, state, report)
        return state

    state = rule.start(centers)
    if points.begun is not None and np.array_equal(points.begun[0], centers):
        state = settled(state, Step(state, points.begun[1]))
    ahead = 1 if report is not None else _ahead(points, state)
    run = None
    while run is None:
        left = rule.left(state)
        # Labels of many partitions, like their steps, start from what the client has added up.
        if left > ahead or (left and ahead == 1):
            state = settled(state, steps(points, rule, state, ahead))
            continue
        state, run = _ended(points, rule, state, left)
        if run is None:
            state = settled(state, Step(state, None))
    return run


def _ahead(points: Points, state: State) -> int:
    """Return how many iterations to send at once.

    Every task gets what all of the step before have found, which is for few partitions only.
    """
    partitions = len(points.parts)
    found = partitions**2 * state.centers.nbytes
    return MOST_AHEAD if partitions <= FEW and found <= MOST_SENT_NBYTES else 1


def _report(
    points: Points, rule: Rule, before: State, state: State, report: Callable[[str], None]
) -> None:
    """Say what an iteration has come to, in scikit-learn's words."""
    _, labelled = _ended(points, rule, before, 0)
    assert labelled is not None, "no step is left in which clusters could lose their points"
    report(f"Iteration {before.n_iter}, inertia {labelled.inertia}.")
    if state.moved <= rule.tol:
        why = (
            "strict convergence."
            if state.moved == 0
            else f"center shift {state.moved} within tolerance {rule.tol}."
        )
        report(f"Converged at iteration {before.n_iter}: {why}")


def _relocated(points: Points, state: State, sums: Partial) -> Partial:
    """Give empty clusters the points that are farthest from their centres."""
    empty = np.flatnonzero(sums.weights == 0)
    # One look at the partitions: starting an iteration may plan them anew.
    partitions = list(points.parts)
    args = (points.reading, state.centers, state.shift, len(empty))
    with points.parts.together():
        futures = [_find_farthest(partition, *args) for partition in partitions]
    found = gather(futures)
    farthest = Farthest.of(
        [
            one.counted(points.global_rows(partition, one.rows))
            for partition, one in zip(partitions, found, strict=True)
        ],
        len(empty),
    )
    new = Partial(sums.sums.copy(), sums.weights.copy())
    if not farthest.distances.any():
        # More clusters than different points.
        return new
    for at, cluster in enumerate(empty[: len(farthest.rows)]):
        old, weight = farthest.labels[at], farthest.weights[at]
        new.sums[old] -= weight * farthest.points[at]
        new.sums[cluster] = weight * farthest.points[at]
        new.weights[old] -= weight
        new.weights[cluster] = weight
    return new
