"""The loop of a Cascade SVM: which partition trains and merges what, and when it is enough.

Every step is a task at a partition. Of few partitions each starts to train before the client knows
what is in the data: as soon as all have been looked at or, where the parts are small and nothing
depends on all data, as soon as it has been looked at itself; where a class is wanting, all are told
again. The fed-back solution is the result of the last merge and goes from there to the partitions,
not through the client, which only hears whether it is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.svm import SVC

from spliter import InvalidArgumentError, Location, Partition, Split, gather, reduce, task
from spliter_apps._csvm_balance import (
    DOUBT_OF_SAMPLES,
    Counts,
    Floats,
    doubt,
    missing_mass,
    quotas,
    sample,
    standing_in,
)
from spliter_apps._csvm_kernel import (
    Missing,
    Rows,
    SupportSet,
    conclude,
    improve,
    merge,
    missing,
    train,
    united,
)
from spliter_apps._csvm_settings import needs_all_data, needs_variance, scaled
from spliter_apps._csvm_survey import BlockIndex, Findings, Summary, read, summarise
from spliter_apps._results import FEW, wait

MOST_JOINED = 16
"""Parts whose findings go to one task; those of more are joined in a tree of tasks."""

SMALL_ROWS = 4_096
"""Items of a partition that is trained on before it is known whether it has its share of each
class. Training on so few takes some tenths of a second, which are lost if it has not. To wait until
all have been looked at takes 8 ms through Dask's scheduler, of a fit of 0.24 s with 4,000 items."""


@dataclass(frozen=True)
class Cascade:
    """How the sets of support vectors are trained and merged.

    Parameters
    ----------
    svc : SVC
        Not trained, with a number for gamma and class weights by class number.
    findings : Findings
        Of the first pass over the data.
    arity : int
        Sets merged by one task, at least 2.
    tol : float
        The relative change of the dual objective that does not matter.
    begun : mapping of Partition to future
        Partitions that are being trained on already, see :func:`begin`.
    """

    svc: SVC
    findings: Findings
    arity: int
    tol: float
    begun: Mapping[Partition, Any]

    def run(self, parts: Split, max_iter: int) -> SupportSet:
        """Iterate until the solution stands.

        Parameters
        ----------
        parts : Split
            Of points, labels and perhaps weights, with known item indexes.
        max_iter : int
            Most iterations, at least 1.

        Returns
        -------
        SupportSet
            The solution.
        """
        partitions = in_order(list(parts))
        with parts.together():
            solution = self._first(partitions)
        exact = len(partitions) == 1
        for iteration in range(1, 1 if exact else max_iter):
            partitions = in_order(list(parts))
            with parts.together():
                solution = self._again(partitions, solution)
            # There is nothing to ask about the first solution: whether it holds shows when the
            # partitions have looked at it. So both iterations are started without a wait.
            if iteration < max_iter - 1 and wait(_has_converged(partitions[0], solution)):
                break
        found: SupportSet = wait(solution)
        return found

    def _first(self, partitions: Sequence[Partition]) -> Any:
        """Start the first iteration and return the future of its solution."""
        findings = self.findings
        counts = [_counts(findings.positive_of, partition) for partition in partitions]
        wanting = any(_is_wanting(of_one, findings) for of_one in counts)
        drawn = self._sample(partitions, counts) if wanting else None
        # One partition alone has all data, and nothing to doubt.
        share = (lambda _: _EXACT) if len(partitions) == 1 else self._share(drawn)
        level = [
            _Pending(
                partition,
                of_one,
                self.begun[partition]
                if partition in self.begun and not wanting
                else _train(partition, findings.classes, self.svc, *share(of_one)),
            )
            for partition, of_one in zip(partitions, counts, strict=True)
        ]
        return self._merged(level, share)

    def _sample(self, partitions: Sequence[Partition], counts: Sequence[Counts]) -> Any:
        """Draw a sample of all data; return its future."""
        several = [
            _draw(partition, self.findings.classes, quota)
            for partition, quota in zip(
                partitions, quotas(counts, self.findings.positive), strict=True
            )
        ]
        return _put_together(partitions[0], *several)

    def _share(self, drawn: Any) -> _Share:
        """Return what tells parts how far to trust themselves, by the classes they have."""

        def share(counts: Counts) -> _How:
            mass = missing_mass(counts, self.findings.positive)
            if mass is None:
                return doubt(int(counts.sum())), None, None
            return DOUBT_OF_SAMPLES, mass, drawn

        return share

    def _again(self, partitions: Sequence[Partition], solution: Any) -> Any:
        """Start a further iteration and return the future of its solution."""
        found = [
            _look_again(partition, self.findings.classes, solution) for partition in partitions
        ]
        if len(found) > MOST_JOINED:
            found = [reduce(Missing.joined, found)]
        return _improve(partitions[0], self.svc, self.tol, solution, *found)

    def _merged(self, level: list[_Pending], share: _Share) -> Any:
        """Merge level by level; each merge where the first of its sets is."""
        exact = len(level) == 1
        while len(level) > self.arity:
            level = [
                self._merge(level[at : at + self.arity], share)
                for at in range(0, len(level), self.arity)
            ]
        sets = [pending.result for pending in level]
        return _conclude(level[0].partition, self.svc, exact, *sets)

    def _merge(self, group: Sequence[_Pending], share: _Share) -> _Pending:
        if len(group) == 1:
            return group[0]
        counts = np.sum([pending.counts for pending in group], axis=0)
        sets = [pending.result for pending in group]
        at = group[0].partition
        return _Pending(at, counts, _merge(at, self.svc, *share(counts), *sets))


@dataclass(frozen=True, eq=False)
class _Pending:
    """The set of some partitions, not there yet: where it will be, what it stands for."""

    partition: Partition
    counts: Counts
    result: Any


_How: TypeAlias = tuple[float, Floats | None, Any]
"""How far a part doubts its margins; what it lacks of each class, and a future of the sample that
stands in for that, or ``None`` and nothing to be sent there."""

_Share: TypeAlias = Callable[[Counts], _How]

_EXACT: _How = 0.0, None, None


def _counts(positive_of: Mapping[BlockIndex, Counts], partition: Partition) -> Counts:
    """Look up the classes of a partition; nothing is known of one that was planned anew."""
    nclasses = len(next(iter(positive_of.values())))
    return positive_of.get(partition.get_indexes()[0], np.zeros(nclasses, dtype=np.int64))


def _is_wanting(counts: Counts, findings: Findings) -> bool:
    """Tell whether a part has too little of some class to be trained on by itself."""
    return missing_mass(counts, findings.positive) is not None


def begin(parts: Split, svc: SVC) -> tuple[Findings, Mapping[Partition, Any]]:
    """Check all data and find out what only all of them tell; start to train on few partitions.

    Parameters
    ----------
    parts : Split
        Of points, labels and perhaps weights, with known item indexes.
    svc : SVC
        Not trained, as the user has it.

    Returns
    -------
    Findings
        Of all data.
    dict of Partition to future
        Of what each is trained to, for those that may be right if none lacks a class; empty if
        there are many.

    Raises
    ------
    InvalidArgumentError
        If the data cannot be used, saying where.
    """
    partitions = in_order(list(parts))
    begun = {}
    alone = len(partitions) == 1
    at_once = not needs_all_data(svc) and all(map(_is_small, partitions))
    with parts.together():
        summaries = [summarise(partition, needs_variance(svc)) for partition in partitions]
        if len(partitions) <= FEW:
            begun = {
                partition: _train_early(partition, svc, alone, *([own] if at_once else summaries))
                for partition, own in zip(partitions, summaries, strict=True)
            }
    findings = Findings.of(gather(summaries))
    if at_once:
        # What lacks a class altogether has numbered the others in its own way.
        counts = {each: _counts(findings.positive_of, each) for each in begun}
        begun = {each: future for each, future in begun.items() if counts[each].all()}
    return findings, begun


def _is_small(partition: Partition) -> bool:
    rows = partition.shape[0]
    return rows is not None and rows <= SMALL_ROWS


def in_order(partitions: Sequence[Partition]) -> list[Partition]:
    """Return partitions in the order in which their sets are merged.

    Parameters
    ----------
    partitions : sequence of Partition
        In any order.

    Returns
    -------
    list of Partition
        Those of one location side by side, else in the order of the collection, whatever
        the locations are called.
    """
    ordered = sorted(partitions, key=lambda each: each.get_indexes()[0])
    home: dict[Location, int] = {}
    for partition in ordered:
        home.setdefault(partition.location, len(home))
    return sorted(ordered, key=lambda each: home[each.location])


@task
def _draw(partition: Partition, classes: npt.NDArray[Any], quota: Counts) -> Rows:
    """Take a few items of each class."""
    return sample(read(partition, classes), quota)


@task
def _put_together(partition: Partition, *several: Rows) -> Rows:
    """Make one sample of those of all partitions."""
    return Rows.concatenated(several)


@task
def _train_early(
    partition: Partition, svc: SVC, alone: bool, *summaries: Summary
) -> SupportSet | None:
    """Train on a partition, unless one of those that have been looked at lacks a class."""
    try:
        findings = Findings.of(summaries)
    except InvalidArgumentError:
        # If that is so of all data, the client finds it in the summaries.
        return None
    if any(_is_wanting(of_one, findings) for of_one in findings.positive_of.values()):
        return None
    rows = read(partition, findings.classes)
    counts = _counts(findings.positive_of, partition)
    how_much = 0.0 if alone else doubt(int(counts.sum()))
    return train(rows, scaled(svc, findings), stand_ins=None, doubt=how_much)


@task
def _train(
    partition: Partition,
    classes: npt.NDArray[Any],
    svc: SVC,
    doubtful: float,
    mass: Floats | None,
    drawn: Rows | None,
) -> SupportSet | None:
    """Train on the items of one partition."""
    rows = read(partition, classes)
    return train(rows, svc, stand_ins=_stand_ins(rows, mass, drawn), doubt=doubtful)


def _stand_ins(rows: Rows, mass: Floats | None, drawn: Rows | None) -> Rows | None:
    return None if mass is None or drawn is None else standing_in(drawn, rows, mass)


@task
def _look_again(partition: Partition, classes: npt.NDArray[Any], solution: SupportSet) -> Missing:
    """Look for what the solution, fed back to a partition, lacks of its items."""
    return missing(read(partition, classes), solution)


@task
def _merge(
    partition: Partition,
    svc: SVC,
    doubtful: float,
    mass: Floats | None,
    drawn: Rows | None,
    *sets: SupportSet | None,
) -> SupportSet | None:
    """Train on the sets of several partitions."""
    present = [found for found in sets if found is not None]
    if not doubtful or not present:
        return merge(present, svc)
    rows = united(present)
    return train(rows, svc, stand_ins=_stand_ins(rows, mass, drawn), doubt=doubtful)


@task
def _conclude(partition: Partition, svc: SVC, exact: bool, *sets: SupportSet | None) -> SupportSet:
    """Train on the sets that are left."""
    return conclude(sets, svc, exact=exact)


@task
def _improve(
    partition: Partition, svc: SVC, tol: float, last: SupportSet, *found: Missing
) -> SupportSet:
    """Train the solution again with what it lacks, and see whether that changes anything."""
    return improve(found, svc, tol, last)


@task
def _has_converged(partition: Partition, solution: SupportSet) -> bool:
    """Tell the client what it has to know of a solution."""
    return solution.converged
