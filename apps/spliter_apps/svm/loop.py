"""The loop of a Cascade SVM: train and merge on partitions, and check for convergence.

Every step is a task at a partition. The fed-back solution is the result of the last merge and is
sent from there to the partitions, not through the client, which only learns whether it has
converged. If a cascade would not be faster (:mod:`spliter_apps.svm.choice`), all points are sent
to one partition, which trains one SVC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.svm import SVC

from spliter import Location, Partition, Split, gather, task
from spliter_apps._results import wait
from spliter_apps.svm.balance import (
    SAMPLE_MARGIN_ERROR,
    SAMPLE_ROWS,
    Counts,
    Floats,
    margin_error,
    missing_counts,
    quotas,
    replacement_counts,
    replacements,
    sample,
)
from spliter_apps.svm.choice import MIN_EVALUATIONS_SAVED, evaluations_saved, sample_counts
from spliter_apps.svm.inspection import BlockIndex, DataSummary, inspect_task, read
from spliter_apps.svm.kernel import (
    MarginViolations,
    Rows,
    SupportSet,
    find_violations,
    finish,
    improve,
    merge,
    merge_rows,
    train,
)


@dataclass(frozen=True)
class Cascade:
    """Training of a Cascade SVM on partitions.

    svc: Untrained, with a number for gamma and class weights by class number.
    summary: Results of the first pass over the data.
    arity: Sets merged by one task, at least 2.
    tol: Relative tolerance of the dual objective.
    cascade (bool or "auto"): Whether to train a cascade or one SVC on all points; "auto" decides by
        a sample of the points.
    """

    svc: SVC
    summary: DataSummary
    arity: int
    tol: float
    cascade: bool | Literal["auto"]

    def run(self, parts: Split, max_iter: int) -> SupportSet:
        """Iterate until the solution converges, at most `max_iter` times; -1 for no limit.

        `parts` are points, labels and optionally weights, with known item indexes.
        """
        partitions = in_order(list(parts))
        one_svc = self._is_one_svc(partitions)
        solution = self._one_svc(partitions) if one_svc else self._first(partitions)
        iteration = 1
        while not one_svc and iteration != max_iter:
            partitions = in_order(list(parts))
            solution = self._iterate(partitions, solution)
            iteration += 1
            # The first solution cannot have converged before the partitions have checked it, so
            # the second iteration is started without waiting for the first.
            if iteration != max_iter and wait(_has_converged(partitions[0], solution)):
                break
        found: SupportSet = wait(solution)
        return found

    def _is_one_svc(self, partitions: Sequence[Partition]) -> bool:
        """Decide whether to train one SVC on all points instead of a cascade."""
        if len(partitions) == 1 or self.cascade != "auto":
            return len(partitions) == 1 or not self.cascade
        totals = self.summary.positive
        nitems = int(totals.sum())
        if nitems <= SAMPLE_ROWS:
            return True
        drawn = self._sample(partitions, sample_counts(totals))
        saved = wait(_evaluations_saved(partitions[0], self.svc, nitems, drawn))
        return bool(saved <= MIN_EVALUATIONS_SAVED)

    def _one_svc(self, partitions: Sequence[Partition]) -> Any:
        """Train on all points at the first partition; return the future of the solution."""
        sets = [_read_all(partition, self.summary.classes) for partition in partitions]
        return _finish(partitions[0], self.svc, True, *sets)

    def _first(self, partitions: Sequence[Partition]) -> Any:
        """Start the first iteration; return the future of its solution."""
        summary = self.summary
        counts = [_counts(summary.positive_of, partition) for partition in partitions]
        drawn = None
        if any(missing_counts(of_one, summary.positive) is not None for of_one in counts):
            drawn = self._sample(partitions, replacement_counts(summary.positive))
        level = []
        for partition, of_one in zip(partitions, counts, strict=True):
            args = self._train_args(of_one, drawn)
            trained = _train(partition, summary.classes, self.svc, *args)
            level.append(_Pending(partition, of_one, trained))
        return self._merge_levels(level, drawn)

    def _sample(self, partitions: Sequence[Partition], wanted: Counts) -> Any:
        """Draw a sample of all data with some items of each class; return its future."""
        counts = [_counts(self.summary.positive_of, partition) for partition in partitions]
        several = [
            _draw(partition, self.summary.classes, quota)
            for partition, quota in zip(
                partitions, quotas(counts, self.summary.positive, wanted), strict=True
            )
        ]
        return _concatenate_samples(partitions[0], *several)

    def _train_args(self, counts: Counts, drawn: Any) -> tuple[float, Floats | None, Any]:
        """Return the error of the margins of a part, what it lacks, and what replaces that.

        The last two are the number of items it lacks of each class, and the future of the sample
        that replaces them; ``None`` if it lacks none.
        """
        mass = missing_counts(counts, self.summary.positive)
        if mass is None:
            return margin_error(int(counts.sum())), None, None
        return SAMPLE_MARGIN_ERROR, mass, drawn

    def _iterate(self, partitions: Sequence[Partition], solution: Any) -> Any:
        """Start another iteration; return the future of its solution."""
        found = [
            _find_violations(partition, self.summary.classes, solution) for partition in partitions
        ]
        return _improve(partitions[0], self.svc, self.tol, solution, *found)

    def _merge_levels(self, level: list[_Pending], drawn: Any) -> Any:
        """Merge level by level, each group at the partition of its first set."""
        while len(level) > self.arity:
            level = [
                self._merge(level[at : at + self.arity], drawn)
                for at in range(0, len(level), self.arity)
            ]
        sets = [pending.result for pending in level]
        return _finish(level[0].partition, self.svc, False, *sets)

    def _merge(self, group: Sequence[_Pending], drawn: Any) -> _Pending:
        if len(group) == 1:
            return group[0]
        counts = np.sum([pending.counts for pending in group], axis=0)
        sets = [pending.result for pending in group]
        at = group[0].partition
        return _Pending(at, counts, _merge(at, self.svc, *self._train_args(counts, drawn), *sets))


@dataclass(frozen=True, eq=False)
class _Pending:
    """Future support set of some partitions: its partition, class counts and future."""

    partition: Partition
    counts: Counts
    result: Any


def _counts(positive_of: Mapping[BlockIndex, Counts], partition: Partition) -> Counts:
    """Return the class counts of a partition; zeros if it was planned after the first pass."""
    nclasses = len(next(iter(positive_of.values())))
    return positive_of.get(partition.get_indexes()[0], np.zeros(nclasses, dtype=np.int64))


def inspect_data(parts: Split, moments: bool) -> DataSummary:
    """Check all data and collect their classes and moments, with one task per partition."""
    summaries = [inspect_task(partition, moments) for partition in parts]
    return DataSummary.of(gather(summaries))


def in_order(partitions: Sequence[Partition]) -> list[Partition]:
    """Order partitions for merging: those of one location next to each other.

    Locations are in the order of their first block, partitions of each in collection order;
    independent of the names of locations.
    """
    ordered = sorted(partitions, key=lambda each: each.get_indexes()[0])
    order: dict[Location, int] = {}
    for partition in ordered:
        order.setdefault(partition.location, len(order))
    return sorted(ordered, key=lambda each: order[each.location])


@task
def _draw(partition: Partition, classes: npt.NDArray[Any], quota: Counts) -> Rows:
    """Draw a few items of each class from a partition."""
    return sample(read(partition, classes), quota)


@task
def _concatenate_samples(partition: Partition, *several: Rows) -> Rows:
    """Concatenate the samples of all partitions."""
    return Rows.concatenated(several)


@task
def _evaluations_saved(partition: Partition, svc: SVC, nitems: int, drawn: Rows) -> float:
    """Estimate from a sample how many kernel evaluations a cascade saves."""
    return evaluations_saved(drawn, svc, nitems)


@task
def _read_all(partition: Partition, classes: npt.NDArray[Any]) -> SupportSet:
    """Return all items of a partition, untrained."""
    return SupportSet(read(partition, classes))


@task
def _train(
    partition: Partition,
    classes: npt.NDArray[Any],
    svc: SVC,
    error: float,
    mass: Floats | None,
    drawn: Rows | None,
) -> SupportSet | None:
    """Train on the items of one partition."""
    rows = read(partition, classes)
    return train(rows, svc, replacements=_replacements(rows, mass, drawn), margin_error=error)


def _replacements(rows: Rows, mass: Floats | None, drawn: Rows | None) -> Rows | None:
    return None if mass is None or drawn is None else replacements(drawn, rows, mass)


@task
def _find_violations(
    partition: Partition, classes: npt.NDArray[Any], solution: SupportSet
) -> MarginViolations:
    """Find the items of a partition that violate the margins of the solution."""
    return find_violations(read(partition, classes), solution)


@task
def _merge(
    partition: Partition,
    svc: SVC,
    error: float,
    mass: Floats | None,
    drawn: Rows | None,
    *sets: SupportSet | None,
) -> SupportSet | None:
    """Train on the sets of several partitions."""
    present = [found for found in sets if found is not None]
    if not error or not present:
        return merge(present, svc)
    rows = merge_rows(present)
    return train(rows, svc, replacements=_replacements(rows, mass, drawn), margin_error=error)


@task
def _finish(partition: Partition, svc: SVC, exact: bool, *sets: SupportSet | None) -> SupportSet:
    """Train on the remaining sets."""
    return finish(sets, svc, exact=exact)


@task
def _improve(
    partition: Partition, svc: SVC, tol: float, last: SupportSet, *found: MarginViolations
) -> SupportSet:
    """Train the solution again with its missing items."""
    return improve(found, svc, tol, last)


@task
def _has_converged(partition: Partition, solution: SupportSet) -> bool:
    """Return to the client only whether a solution has converged."""
    return solution.converged
