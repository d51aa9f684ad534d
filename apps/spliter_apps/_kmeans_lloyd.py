"""Lloyd's algorithm on partitions: one task per partition and iteration, or for several.

A task returns the sums of its partition, a few kilobytes; whoever makes the next iteration makes
the new centres of them (:mod:`spliter_apps._kmeans_steps`); several are under way at once
(:mod:`spliter_apps._kmeans_passes`). What the iteration does is what scikit-learn's does, in the
same order: relocate empty clusters, average, compare the shift of the centres with the tolerance;
at the end assign the points once more, so that labels and centres belong together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spliter import Partition, gather, task
from spliter_apps._kmeans_kernel import Farthest, Partial, assign
from spliter_apps._kmeans_look import Reading
from spliter_apps._kmeans_passes import Begun, Run, Sent, iterations_ahead
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import Points
from spliter_apps._kmeans_steps import Rule, State, Step


@task
def _find_farthest(
    partition: Partition, reading: Reading, centers: FloatArray, shift: FloatArray, most: int
) -> Farthest:
    """Find the points of a partition that are farthest from their centre."""
    found = assign(
        reading.blocks(partition), centers, shift=shift, dtype=reading.dtype, farthest=most
    )
    return found.farthest


def _send(points: Points, step: Step, left: int, ahead: int, *, to_exchange: bool = True) -> Sent:
    """Send the next passes; labels with the last ones, where these are added up by tasks."""
    partitions = list(points.parts)  # before any message is begun: this may plan them anew
    to_label = not left or (left <= ahead and ahead > 1)
    some = min(left, ahead)
    # The first step goes by itself, and is under way while the message with the others is written.
    first = Sent.to(points.parts, partitions, [[step]], min(some, 1), to_label=False)
    return Sent.to(
        points.parts,
        partitions,
        first.passes,
        some - min(some, 1),
        to_label=to_label,
        is_last=not left,
        to_exchange=to_exchange,
    )


def lloyd(
    points: Points,
    centers: FloatArray,
    rule: Rule,
    *,
    begun: Begun | None = None,
    report: Callable[[str], None] | None = None,
) -> Run:
    """Move centres to the means of their points until they stay.

    Parameters
    ----------
    points : Points
        The points.
    centers : ndarray of float64, shape (n_clusters, n_features)
        Where to start.
    rule : Rule
        How to go on.
    begun : Begun, optional
        What has been done from these centres, not knowing the points.
    report : callable, optional
        Gets a line for each iteration; costs a further pass in each.

    Returns
    -------
    Run
        The centres, and what belongs to them.
    """

    def settled(before: State, state: State) -> State:
        if state.lost is not None:
            state = rule.moved(state, _relocated(points, state, state.lost))
        if report is not None:
            _report(points, rule, before, state, report)
        return state

    state = rule.start(centers)
    sent = None
    first = None if begun is None else begun.opening.first(points.found)
    if begun is not None and first is not None:
        after = first.after()
        # Where clusters have lost their points the tasks sent have found that too, and do nothing.
        sent = begun.sent if after.lost is None else None
        state = settled(state, after)
    ahead = 1 if report is not None else iterations_ahead(len(points.parts), centers)
    to_exchange = True
    run = None
    while run is None:
        left = rule.left(state)
        if sent is None:
            step = Step(rule, state, None)
            sent = _send(points, step, left, ahead, to_exchange=to_exchange)
        before = state
        state, run = sent.outcome(rule, centers.nbytes)
        sent = None
        if run is None:
            # Where a task has waited for the others in vain, the next one might as well.
            fell_short = state.n_iter - before.n_iter < min(left, ahead)
            to_exchange = to_exchange and not (fell_short and state.lost is None)
            state = settled(before, state)
    return run


def _report(
    points: Points, rule: Rule, before: State, state: State, report: Callable[[str], None]
) -> None:
    """Say what an iteration has come to, in scikit-learn's words."""
    sent = _send(points, Step(rule, before, None), left=0, ahead=1)
    _, labelled = sent.outcome(rule, before.centers.nbytes)
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
