"""Lloyd's algorithm on partitions: one task per partition and iteration.

A task returns the sums of its partition, a few kilobytes, and the tasks of the next iteration make
the new centres of them (:mod:`spliter_apps._kmeans_steps`). Several iterations are sent at once, so
that they do not wait for this program between them; where the first centres are given, the first
ones are sent with the tasks that look at the points. What the iteration does is what scikit-learn's
does, in the same order: relocate empty clusters, average, compare the shift of the centres with the
tolerance; at the end assign the points once more, so that labels and centres belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Partition, Split, gather, task
from spliter_apps._kmeans_kernel import Farthest, Partial, assign
from spliter_apps._kmeans_look import Reading, near
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import Looking, Points
from spliter_apps._kmeans_steps import Opening, Rule, State, Step, advance, open_up, total
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
    partition: Partition, *before: Step | None
) -> tuple[list[npt.NDArray[np.int32]], Summary | None]:
    """Label the points of a partition, unless the iteration has to go on; labels stay there."""
    step = total(before)
    if step is None:
        return [], None
    rule, state = step.rule, step.after()
    if state.lost is not None:
        return [], (state, None)
    # Rounded as they will be kept, so that predicting gives the same labels.
    centers = rule.rounded(state.centers)
    shift = near(centers, rule.is_sparse)
    found = assign(
        rule.reading.blocks(partition),
        centers,
        shift=shift,
        dtype=rule.reading.dtype,
        n_rows=partition.shape[0],
    )
    return partition.cut(found.labels), (state, (found.inertia, found.used))


@task
def _summary(partition: Partition, labelled: tuple[Any, Summary | None]) -> Summary | None:
    """Return the small part of what labelling has found, where that is."""
    return labelled[1]


@dataclass(frozen=True)
class Sent:
    """Passes that are under way.

    Parameters
    ----------
    partitions : sequence of Partition
        Over which.
    passes : sequence of sequence of future
        What each pass finds at each partition, after what the first one starts from. All are held
        until the last is there: should a worker die, what the others have found is not to be
        found again.
    labels, summaries : sequence of future
        Of the points once labelled; empty if they are not to be yet.
    """

    partitions: Sequence[Partition]
    passes: Sequence[Sequence[Any]]
    labels: Sequence[Any]
    summaries: Sequence[Any]

    @classmethod
    def to(
        cls,
        parts: Split,
        partitions: Sequence[Partition],
        passes: Sequence[Sequence[Any]],
        more: int,
        *,
        to_label: bool,
    ) -> Sent:
        """Send further passes in one message.

        Parameters
        ----------
        parts : Split
            Of which the partitions are.
        partitions : sequence of Partition
            Over which.
        passes : sequence of sequence
            What comes before, one element at least.
        more : int
            How many.
        to_label : bool
            Whether to label the points as well.

        Returns
        -------
        Sent
            Those passes, and those before.
        """
        made = list(passes)
        labels, summaries = [], []
        with parts.together():
            for _ in range(more):
                made.append([advance(partition, *made[-1]) for partition in partitions])
            if to_label:
                labels = [_label(partition, *made[-1]) for partition in partitions]
                summaries = [_summary(*pair) for pair in zip(partitions, labels, strict=True)]
        return cls(partitions, made, labels, summaries)

    def outcome(self, rule: Rule, nbytes: int) -> tuple[State, Run | None]:
        """Wait for the last pass.

        Parameters
        ----------
        rule : Rule
            How the iteration goes on.
        nbytes : int
            Size of the centres.

        Returns
        -------
        state : State
            Where the iteration is.
        run : Run or None
            What belongs to it, if the points were labelled: not if clusters have lost theirs.
        """
        if not self.summaries:
            step: Step = combine(add, self.passes[-1], nbytes)
            return step.after(), None
        found: list[Summary] = gather(self.summaries)
        state = found[0][0]
        parts = [part for _, part in found if part is not None]
        if len(parts) < len(found):
            return state, None
        inertia = sum(inertia for inertia, _ in parts)
        used = np.any([used for _, used in parts], axis=0)
        centers = rule.rounded(state.centers)
        labelled = list(zip(self.partitions, self.labels, strict=True))
        return state, Run(centers, inertia, state.n_iter, int(used.sum()), labelled)


@dataclass(frozen=True)
class Begun:
    """An iteration that has begun before anything was known of the points.

    Parameters
    ----------
    opening : Opening
        How.
    sent : Sent or None
        Passes after the first one that are under way.
    """

    opening: Opening
    sent: Sent | None


def begin(looking: Looking, opening: Opening, *, with_report: bool = False) -> Begun:
    """Begin an iteration from given centres; of few partitions, send the next passes already.

    Parameters
    ----------
    looking : Looking
        The tasks that look at the points, and make the first pass.
    opening : Opening
        How the iteration begins.
    with_report : bool
        Whether there is to be a report, for which each pass waits for the one before.

    Returns
    -------
    Begun
        For :func:`lloyd`, which sees whether it was right.
    """
    partitions = looking.partitions
    ahead = _ahead(len(partitions), opening.centers)
    left = opening.max_iter - 1
    if with_report or ahead == 1 or not left:
        return Begun(opening, None)
    # One message for all: the tasks that it would keep waiting have the points to look at.
    with looking.parts.together():
        second = [open_up(partition, opening, *looking.looked) for partition in partitions]
        more, to_label = min(left, ahead) - 1, left <= ahead
        sent = Sent.to(looking.parts, partitions, [second], more, to_label=to_label)
    return Begun(opening, sent)


def make_pass(points: Points, step: Step) -> Step:
    """Make one pass over all points.

    Parameters
    ----------
    points : Points
        The points.
    step : Step
        What it starts from.

    Returns
    -------
    Step
        Over all points; without sums if the iteration has ended.
    """
    sent = Sent.to(points.parts, list(points.parts), [[step]], 1, to_label=False)
    made: Step = combine(add, sent.passes[-1], step.state.centers.nbytes)
    return made


def _send(points: Points, step: Step, left: int, ahead: int) -> Sent:
    """Send the next passes; labels with the last ones, where these are added up by tasks."""
    partitions = list(points.parts)  # before any message is begun: this may plan them anew
    to_label = not left or (left <= ahead and ahead > 1)
    some = min(left, ahead)
    # The first step goes by itself, and is under way while the message with the others is written.
    first = Sent.to(points.parts, partitions, [[step]], min(some, 1), to_label=False)
    return Sent.to(points.parts, partitions, first.passes, some - min(some, 1), to_label=to_label)


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
    ahead = 1 if report is not None else _ahead(len(points.parts), centers)
    run = None
    while run is None:
        if sent is None:
            sent = _send(points, Step(rule, state, None), rule.left(state), ahead)
        before = state
        state, run = sent.outcome(rule, centers.nbytes)
        sent = None
        if run is None:
            state = settled(before, state)
    return run


def _ahead(partitions: int, centers: FloatArray) -> int:
    """Return how many iterations to send at once.

    Every task gets what all of the step before have found, which is for few partitions only.
    """
    found = partitions**2 * centers.nbytes
    return MOST_AHEAD if partitions <= FEW and found <= MOST_SENT_NBYTES else 1


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
