"""A Cascade SVM by tasks of our own: one per part of the data, and one per merge.

The numerics are those of :class:`spliter_apps.cascade_svm.CascadeSVM`; what a part is, and how many
sets are merged at once, is up to the caller. Results go from task to task and not through the
client. What runs in tasks runs in plain processes as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future
from sklearn.svm import SVC

from spliter_apps._csvm_balance import doubt
from spliter_apps._csvm_kernel import (
    Rows,
    SupportSet,
    conclude,
    merge,
    retrain,
    train,
    united,
)
from spliter_experiments._blocks import row_starts
from spliter_experiments._inputs import Codes, Floats
from spliter_experiments._steps import result_of


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
    """

    arity: int
    doubtful: bool

    def doubt(self, rows: int) -> float:
        """Return how far the margins of a part of so many rows are trusted, in margins."""
        return doubt(rows) if self.doubtful else 0.0


FEW_PARTS = Scheme(arity=2, doubtful=True)
"""What CascadeSVM does."""

MANY_PARTS = Scheme(arity=8, doubtful=True)
"""What took the least time with a part for each block: of 2, 4, 8 and 16 sets merged at once, with
8,000 points in 8, 32, 96 and 384 blocks. Merging two by two took up to four times as long."""

PAPER = Scheme(arity=2, doubtful=False)
"""What the paper does: two by two, and support vectors only."""


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


@dataclass(frozen=True)
class Pending:
    """A result of a part or of several, and how many rows it is about."""

    future: Future[Any]
    rows: int


def make_parts(
    client: Client,
    blocks: Sequence[Future[Any]],
    labels: Sequence[Future[Any]],
    sizes: Sequence[int],
) -> list[Pending]:
    """Tell each block the numbers of its rows, once, which copies nothing."""
    made = client.map(numbered, list(blocks), list(labels), row_starts(sizes), pure=False)
    return [Pending(future, size) for future, size in zip(made, sizes, strict=True)]


def start_training(
    client: Client, parts: Sequence[Pending], training: Training, scheme: Scheme
) -> list[Pending]:
    """Start to train on every part; the first level of a cascade."""
    rows = [part.future for part in parts]
    mapped = client.map(train_part, rows, training=training, scheme=scheme, pure=False)
    return [Pending(future, part.rows) for future, part in zip(mapped, parts, strict=True)]


def run_cascade(
    client: Client,
    parts: Sequence[Pending],
    first: list[Pending],
    training: Training,
    scheme: Scheme,
) -> SVC:
    """Run a cascade whose first level has been started.

    Parameters
    ----------
    client : Client
        Of the cluster.
    parts : sequence of Pending
        Rows of each part.
    first : list of Pending
        What :func:`start_training` returned for them.
    training, scheme
        What to train, and how.

    Returns
    -------
    SVC
        Trained.
    """
    rows = [part.future for part in parts]
    solution = _merge(client, first, training, scheme, None)
    for iteration in range(1, training.iterations):
        found = client.map(retrain_part, rows, training=training, solution=solution, pure=False)
        sets = [Pending(future, part.rows) for future, part in zip(found, parts, strict=True)]
        solution = _merge(client, sets, training, scheme, solution)
        # As the estimator does: two iterations are started without a wait between them.
        last = iteration == training.iterations - 1
        if not last and result_of(client.submit(has_converged, solution, pure=False)):
            break
    end: SupportSet = result_of(solution)
    return end.model


def _merge(
    client: Client,
    sets: list[Pending],
    training: Training,
    scheme: Scheme,
    last: Future[SupportSet] | None,
) -> Future[SupportSet]:
    """Merge level by level, and compare with the last solution."""
    while len(sets) > scheme.arity:
        groups = [sets[at : at + scheme.arity] for at in range(0, len(sets), scheme.arity)]
        rows = [sum(pending.rows for pending in group) for group in groups]
        # What is fed back leaves nothing to doubt.
        doubts = [scheme.doubt(count) if last is None else 0.0 for count in rows]
        futures = [[pending.future for pending in group] for group in groups]
        merged = client.map(merge_sets, futures, doubts, svc=training.svc, pure=False)
        sets = [Pending(future, count) for future, count in zip(merged, rows, strict=True)]
    solution: Future[SupportSet] = client.submit(
        conclude, [pending.future for pending in sets], training.svc, training.tol, last, pure=False
    )
    return solution


def train_part(rows: Rows, training: Training, scheme: Scheme) -> SupportSet | None:
    """Train on the rows of one part, and keep what may be a support vector of the whole."""
    return train(rows, training.svc, doubt=scheme.doubt(len(rows)))


def retrain_part(rows: Rows, training: Training, solution: SupportSet) -> SupportSet | None:
    """Train on the rows of one part and what is fed back to it, if need be."""
    lacking = training.tol * solution.objectives[-1]
    return retrain(rows, training.svc, solution, lacking * len(rows) / training.rows)


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


def has_converged(solution: SupportSet) -> bool:
    """Tell what the client has to know of a solution."""
    return solution.converged
