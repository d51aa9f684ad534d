"""Passes of Lloyd's algorithm that are under way: several, sent at once.

They do not wait for this program between them. Where tasks can exchange their sums while they run,
those passes are one task per partition; where they cannot, a task gets what all tasks of the pass
before have found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import Exchange, Partition, Split, exchanges, gather, task
from spliter_apps._kmeans_kernel import assign
from spliter_apps._kmeans_look import near
from spliter_apps._kmeans_pieces import FloatArray
from spliter_apps._kmeans_points import Looking, Points
from spliter_apps._kmeans_steps import Opening, Rule, State, Step, advance, open_up, total
from spliter_apps._results import FEW, MOST_GATHERED_NBYTES, combine

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
def _label(
    partition: Partition, is_last: bool, *before: Step | None
) -> tuple[list[npt.NDArray[np.int32]], Summary | None]:
    """Label the points of a partition; labels stay there.

    Not where the iteration has to go on, because clusters have lost their points, or because some
    steps before are missing and it is not to end here in any case.
    """
    step = total(before)
    if step is None:
        return [], None
    rule, state = step.rule, step.after()
    if state.lost is not None or (rule.left(state) and not is_last):
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
        What each pass finds at each partition, after what the first one starts from; the last
        may stand for several. All are held until the last is there: should a worker die, what the
        others have found is not to be found again.
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
        is_last: bool = False,
        to_exchange: bool = True,
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
        is_last : bool
            Whether that is to be done even if there are iterations left.
        to_exchange : bool
            Whether tasks may exchange what they find, where they can; some of the passes may be
            missing then.

        Returns
        -------
        Sent
            Those passes, and those before.
        """
        made = list(passes)
        labels, summaries = [], []
        at_once, pairs = _exchanges(partitions, more if to_exchange else 1)
        with parts.together():
            for _ in range(0, more, at_once):
                made.append([advance(*pair, at_once, *made[-1]) for pair in pairs])
            if to_label:
                labels = [_label(partition, is_last, *made[-1]) for partition in partitions]
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
            What belongs to it, if the points were labelled: not if clusters have lost theirs, or a
            task has waited for the others in vain.
        """
        if not self.summaries:
            return self._last(nbytes).after(), None
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

    def _last(self, nbytes: int) -> Step:
        """Return the last pass over all points."""
        if len(self.partitions) * nbytes > MOST_GATHERED_NBYTES:
            found: Step = combine(add, self.passes[-1], nbytes)
            return found
        step = total(gather(self.passes[-1]))
        assert step is not None, "this program has begun it"
        return step


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
    ahead = iterations_ahead(len(partitions), opening.centers)
    left = opening.max_iter - 1
    if with_report or ahead == 1 or not left:
        return Begun(opening, None)
    # One message for all: the tasks that it would keep waiting have the points to look at.
    some = min(left, ahead)
    at_once, pairs = _exchanges(partitions, some)
    with looking.parts.together():
        second = [open_up(*pair, at_once, opening, *looking.looked) for pair in pairs]
        more, to_label = some - at_once, left <= ahead
        sent = Sent.to(looking.parts, partitions, [second], more, to_label=to_label)
    return Begun(opening, sent)


def _exchanges(
    partitions: Sequence[Partition], passes: int
) -> tuple[int, list[tuple[Partition, Exchange | None]]]:
    """Return how many of some passes a task can make, and what it exchanges sums by."""
    met = exchanges(partitions) if passes > 1 else None
    if met is None:
        return 1, [(partition, None) for partition in partitions]
    return passes, list(zip(partitions, met, strict=True))


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


def iterations_ahead(partitions: int, centers: FloatArray) -> int:
    """Return how many iterations to send at once.

    Every task gets what all of the step before have found, which is for few partitions only.

    Parameters
    ----------
    partitions : int
        How many there are.
    centers : ndarray of float64, shape (n_clusters, n_features)
        The centres.

    Returns
    -------
    int
        One at least.
    """
    found = partitions**2 * centers.nbytes
    return MOST_AHEAD if partitions <= FEW and found <= MOST_SENT_NBYTES else 1
