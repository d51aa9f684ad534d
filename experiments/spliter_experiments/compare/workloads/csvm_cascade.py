"""Run a Cascade SVM on any engine, with a task for each part of the data and for each merge.

The numerics are those of :class:`spliter_apps.CascadeSVM`; :class:`Scheme` sets how many sets are
merged at once and which rows parts pass on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.svm import SVC

from spliter_apps.svm.balance import margin_error
from spliter_apps.svm.kernel import (
    MarginViolations,
    Rows,
    SupportSet,
    find_violations,
    finish,
    improve,
    merge,
    merge_rows,
    support,
    train,
)
from spliter_apps.svm.margins import bounds, dual_objective, slacks
from spliter_experiments.compare.data.sources import Codes, Floats
from spliter_experiments.compare.workloads.site import Parts


@dataclass(frozen=True)
class Scheme:
    """Variant of the cascade algorithm; one task merges `arity` sets.

    If `doubtful`, a part also passes on rows near its margins, because the margins of all the data
    differ slightly: far fewer rows are then found missing in later iterations. If it `retrains`,
    later iterations train each part again, together with the fed-back solution; otherwise parts
    only return the rows that the solution lacks.
    """

    arity: int
    doubtful: bool
    retrains: bool = False

    def margin_error(self, rows: int) -> float:
        """Return the width around the margins to pass on, in margins, for a part of `rows` rows."""
        return margin_error(rows) if self.doubtful else 0.0


FEW_PARTS = Scheme(arity=2, doubtful=True)
"""As in :class:`spliter_apps.CascadeSVM`."""

MANY_PARTS = Scheme(arity=8, doubtful=True)
"""Fastest arity with one part per block, of 2, 4, 8 and 16, with 8,000 points in 8, 32, 96 and 384
blocks; merging two by two took up to four times as long."""

PAPER = Scheme(arity=2, doubtful=False, retrains=True)
"""As in the paper: merge two by two, pass on support vectors only, retrain in every iteration."""


@dataclass(frozen=True)
class Training:
    """Training parameters, the same for all ways.

    The SVC is not trained and has a number for gamma. `iterations` and `tol` are those of the whole
    cascade; `rows` is the number of all training rows.
    """

    svc: SVC
    iterations: int
    tol: float
    rows: int


def train_part(rows: Rows, training: Training, scheme: Scheme) -> SupportSet | None:
    """Train on the rows of one part; return the potential support vectors of the whole."""
    return train(rows, training.svc, margin_error=scheme.margin_error(len(rows)))


def retrain_part(rows: Rows, training: Training, solution: SupportSet) -> SupportSet | None:
    """Train on a part and the solution, unless the part can improve it by less than `tol`."""
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
    """Merge the retrained sets, and decide whether the cascade has converged."""
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
    present = [found for found in sets if found is not None]
    if not doubtful or not present:
        return merge(present, svc)
    return train(merge_rows(present), svc, margin_error=doubtful)


def numbered(points: Floats, labels: Codes, start: int) -> Rows:
    return Rows(points, labels, None, np.arange(start, start + len(labels)))


def rows_of_blocks(blocks: Sequence[tuple[Floats, Codes, Codes]]) -> Rows:
    points, labels, numbers = zip(*blocks, strict=True)
    return Rows(np.concatenate(points), np.concatenate(labels), None, np.concatenate(numbers))


def run_cascade(parts: Parts, training: Training, scheme: Scheme) -> SVC:
    """Train on every part, merge level by level, and feed the solution back."""
    call_each = parts.engine.call_each
    on_parts = functools.partial(parts.call, labelled=True, numbered=True)
    sets = on_parts(train_block, training=training, scheme=scheme)
    sets = _merged(parts, sets, training, scheme.margin_error, scheme)
    (solution,) = call_each(finish, [sets], svc=training.svc)
    for iteration in range(1, training.iterations):
        if scheme.retrains:
            sets = on_parts(retrain_block, training=training, solution=solution)
            # With the solution fed back, parts pass on support vectors only.
            sets = _merged(parts, sets, training, lambda _: 0.0, scheme)
            (solution,) = call_each(conclude_again, [sets], training=training, last=solution)
        else:
            lacking = on_parts(missing_of_block, solution=solution)
            (solution,) = call_each(
                improve, [lacking], svc=training.svc, tol=training.tol, last=solution
            )
        # As in the estimator: two iterations are started without waiting in between.
        last = iteration == training.iterations - 1
        if not last and parts.engine.results(call_each(has_converged, [solution]))[0]:
            break
    (end,) = parts.engine.results([solution])
    return end.model


def _merged(
    parts: Parts,
    sets: list[Any],
    training: Training,
    margin_error: Callable[[int], float],
    scheme: Scheme,
) -> list[Any]:
    rows = list(parts.sizes)
    while len(sets) > scheme.arity:
        slices = [slice(at, at + scheme.arity) for at in range(0, len(sets), scheme.arity)]
        rows = [sum(rows[group]) for group in slices]
        groups, doubts = [sets[group] for group in slices], list(map(margin_error, rows))
        sets = parts.engine.call_each(merge_sets, groups, doubts, svc=training.svc)
    return sets


def train_block(
    points: Floats, labels: Codes, start: int, training: Training, scheme: Scheme
) -> SupportSet | None:
    return train_part(numbered(points, labels, start), training, scheme)


def retrain_block(
    points: Floats, labels: Codes, start: int, training: Training, solution: SupportSet
) -> SupportSet | None:
    return retrain_part(numbered(points, labels, start), training, solution)


def missing_of_block(
    points: Floats, labels: Codes, start: int, solution: SupportSet
) -> MarginViolations:
    return find_violations(numbered(points, labels, start), solution)


def has_converged(solution: SupportSet) -> bool:
    """Return whether a solution has converged, without sending the solution to the client."""
    return solution.converged
