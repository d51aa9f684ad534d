"""A Cascade SVM with a task for each part of the data and for each merge, on any engine.

The numerics are those of :class:`spliter_apps.CascadeSVM`; :class:`Scheme` says how many sets are
merged at once, and what parts pass on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.svm import SVC

from spliter_apps.svm.balance import doubt
from spliter_apps.svm.kernel import (
    Missing,
    Rows,
    SupportSet,
    conclude,
    improve,
    merge,
    missing,
    support,
    train,
    united,
)
from spliter_apps.svm.margins import bounds, dual_objective, slacks
from spliter_experiments.compare.data.sources import Codes, Floats
from spliter_experiments.compare.workloads.workload import Parts


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


def run_cascade(parts: Parts, training: Training, scheme: Scheme) -> SVC:
    """Train on every part, merge level by level, and feed the solution back."""
    call_each = parts.engine.call_each
    on_parts = functools.partial(parts.call, labelled=True, numbered=True)
    sets = on_parts(train_block, training=training, scheme=scheme)
    sets = _merged(parts, sets, training, scheme.doubt, scheme)
    (solution,) = call_each(conclude, [sets], svc=training.svc)
    for iteration in range(1, training.iterations):
        if scheme.retrains:
            sets = on_parts(retrain_block, training=training, solution=solution)
            # What is fed back leaves nothing to doubt.
            sets = _merged(parts, sets, training, lambda _: 0.0, scheme)
            (solution,) = call_each(conclude_again, [sets], training=training, last=solution)
        else:
            lacking = on_parts(missing_of_block, solution=solution)
            (solution,) = call_each(
                improve, [lacking], svc=training.svc, tol=training.tol, last=solution
            )
        # As the estimator does: two iterations are started without a wait between them.
        last = iteration == training.iterations - 1
        if not last and parts.engine.results(call_each(has_converged, [solution]))[0]:
            break
    (end,) = parts.engine.results([solution])
    return end.model


def _merged(
    parts: Parts,
    sets: list[Any],
    training: Training,
    doubt: Callable[[int], float],
    scheme: Scheme,
) -> list[Any]:
    """Merge level by level, until one task can merge the rest."""
    rows = list(parts.sizes)
    while len(sets) > scheme.arity:
        slices = [slice(at, at + scheme.arity) for at in range(0, len(sets), scheme.arity)]
        rows = [sum(rows[group]) for group in slices]
        groups, doubts = [sets[group] for group in slices], list(map(doubt, rows))
        sets = parts.engine.call_each(merge_sets, groups, doubts, svc=training.svc)
    return sets


def train_block(
    points: Floats, labels: Codes, start: int, training: Training, scheme: Scheme
) -> SupportSet | None:
    """Train on the rows of one block."""
    return train_part(numbered(points, labels, start), training, scheme)


def retrain_block(
    points: Floats, labels: Codes, start: int, training: Training, solution: SupportSet
) -> SupportSet | None:
    """Train on the rows of one block again, with the solution."""
    return retrain_part(numbered(points, labels, start), training, solution)


def missing_of_block(points: Floats, labels: Codes, start: int, solution: SupportSet) -> Missing:
    """Look for what the solution lacks of one block."""
    return missing(numbered(points, labels, start), solution)


def has_converged(solution: SupportSet) -> bool:
    """Tell what the client has to know of a solution."""
    return solution.converged
