"""What the tasks of a Cascade SVM of our own do: train on a part of the data, and merge.

The numerics are those of :class:`spliter_apps.svm.CascadeSVM`; what a part is, and how many
sets are merged at once, is up to the caller. It runs in tasks of any engine and in plain processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.svm import SVC

from spliter_apps.svm.balance import doubt
from spliter_apps.svm.kernel import Rows, SupportSet, merge, support, train, united
from spliter_apps.svm.margins import bounds, dual_objective, slacks
from spliter_experiments.compare.data.sources import Codes, Floats


@dataclass(frozen=True)
class Scheme:
    """How a cascade goes about its parts.

    Parameters
    ----------
    arity : int
        Sets that one task merges.
    doubtful : bool
        Whether a part also passes on what is near its margins, as those of the whole are somewhat
        elsewhere. Far fewer rows then have to be looked for a second time.
    retrains : bool
        Whether further iterations train each part again, with the solution that is fed back to it;
        else parts hand over what the solution lacks.
    """

    arity: int
    doubtful: bool
    retrains: bool = False

    def doubt(self, rows: int) -> float:
        """Return how far the margins of a part of so many rows are trusted, in margins."""
        return doubt(rows) if self.doubtful else 0.0


FEW_PARTS = Scheme(arity=2, doubtful=True)
"""What CascadeSVM does."""

MANY_PARTS = Scheme(arity=8, doubtful=True)
"""What took the least time with a part for each block: of 2, 4, 8 and 16 sets merged at once, with
8,000 points in 8, 32, 96 and 384 blocks. Merging two by two took up to four times as long."""

PAPER = Scheme(arity=2, doubtful=False, retrains=True)
"""What the paper does: two by two, support vectors only, and training in every iteration."""


@dataclass(frozen=True)
class Training:
    """What all ways train.

    Parameters
    ----------
    svc : SVC
        Not trained, with a number for gamma.
    iterations : int
        Of the cascade, at most.
    tol : float
        Relative change of the dual objective that ends it.
    rows : int
        How many there are to train on.
    """

    svc: SVC
    iterations: int
    tol: float
    rows: int


def train_part(rows: Rows, training: Training, scheme: Scheme) -> SupportSet | None:
    """Train on the rows of one part, and keep what may be a support vector of the whole."""
    return train(rows, training.svc, doubt=scheme.doubt(len(rows)))


def retrain_part(rows: Rows, training: Training, solution: SupportSet) -> SupportSet | None:
    """Train on the rows of one part and the solution, unless they can add next to nothing to it."""
    model = solution.model
    assert model is not None, "a solution has been trained"
    own = ~np.isin(rows.indexes, solution.rows.indexes)
    short = slacks(model, support(solution).points, rows.points, rows.labels)
    gap = bounds(model, rows.labels, rows.weights) @ (short * own)
    if gap <= training.tol * solution.objectives[-1] * len(rows) / training.rows:
        return None
    foreign = ~np.isin(solution.rows.indexes, rows.indexes)
    return train(Rows.concatenated([rows, solution.rows.taken(foreign)]), training.svc)


def conclude_again(
    sets: Sequence[SupportSet | None], training: Training, last: SupportSet
) -> SupportSet:
    """Merge what parts have been trained to again, and see whether that changes anything."""
    merged = merge(sets, training.svc)
    if merged is None:
        return replace(last, objectives=(*last.objectives, last.objectives[-1]), converged=True)
    assert merged.model is not None, "there is more than one class"
    objective = dual_objective(merged.model, support(merged).points)
    change = abs(objective - last.objectives[-1])
    return replace(
        merged,
        objectives=(*last.objectives, objective),
        converged=bool(change <= training.tol * abs(objective)),
    )


def merge_sets(sets: Sequence[SupportSet | None], doubtful: float, svc: SVC) -> SupportSet | None:
    """Train on the sets of several parts."""
    present = [found for found in sets if found is not None]
    if not doubtful or not present:
        return merge(present, svc)
    return train(united(present), svc, doubt=doubtful)


def numbered(points: Floats, labels: Codes, start: int) -> Rows:
    """Return a block as rows with their numbers in the whole array."""
    return Rows(points, labels, None, np.arange(start, start + len(labels)))


def rows_of_blocks(blocks: Sequence[tuple[Floats, Codes, Codes]]) -> Rows:
    """Put blocks of points, labels and row numbers together."""
    points, labels, numbers = zip(*blocks, strict=True)
    return Rows(np.concatenate(points), np.concatenate(labels), None, np.concatenate(numbers))
