"""The ways of the apps on dataClay that a program without SplIter has: a call for every block.

All calls of a step are made at once; what they return is put together here. Arguments go with
every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sklearn.svm import SVC

from spliter_apps._csvm_kernel import Missing, SupportSet, conclude, improve, missing
from spliter_apps._kmeans_kernel import Partial
from spliter_apps._neighbors_kernel import Candidates, merge_nearest, nearest
from spliter_experiments._blocks import row_starts
from spliter_experiments._comparison import Site
from spliter_experiments._csvm import Classifier, Trial
from spliter_experiments._csvm_cascade import (
    MANY_PARTS,
    Scheme,
    Training,
    merge_sets,
    numbered,
    train_part,
)
from spliter_experiments._dataclay_engine import DataClayEngine
from spliter_experiments._histogram_kernels import Edges, add_counts, count_block
from spliter_experiments._inputs import Codes, Floats
from spliter_experiments._kmeans import (
    Clustering,
    Start,
    add_partials,
    assign_block,
    iterate,
    sum_block,
)
from spliter_experiments._knn import Quest, build_from_block
from spliter_experiments._rounds import Answer
from spliter_experiments._sum import add_up, repeat

DataClaySite: TypeAlias = Site[DataClayEngine]


def sum_per_block(site: DataClaySite, passes: int) -> Answer:
    """Add up every block, and the sums here."""
    return repeat(passes, lambda: sum(site.engine.call_blocks(site.array, add_up)))


def histogram_per_block(site: DataClaySite, edges: Edges) -> Answer:
    """Count in every block, and add up here."""
    each = [(edges,)] * site.array.nblocks
    return Answer(add_counts(site.engine.call_blocks(site.array, count_block, each)))


def kmeans_per_block(site: DataClaySite, start: Start) -> Answer:
    """Run Lloyd's algorithm with a call for every block in each iteration."""
    nblocks = site.array.nblocks

    def add_all(centers: Floats) -> Partial:
        each = [(centers,)] * nblocks
        return add_partials(site.engine.call_blocks(site.array, sum_block, each))

    def label(centers: Floats) -> float:
        each = [(centers,)] * nblocks
        return float(sum(site.engine.call_blocks(site.array, inertia_of_block, each)))

    found: Clustering = iterate(start, add_all, label)
    return Answer(found)


def inertia_of_block(block: Floats, centers: Floats) -> float:
    """Label the points of one block, and return what is added up over all."""
    return float(assign_block(block, centers).inertia)


def knn_per_block(site: DataClaySite, quest: Quest) -> Answer:
    """Build a tree for every block and ask it, in one call; merge here."""
    each = [(start, quest) for start in row_starts(site.row_chunks)]
    found = site.engine.call_blocks(site.array, ask_block, each)
    return Answer(merge_nearest(found, quest.neighbors).distances)


def ask_block(block: Floats, start: int, quest: Quest) -> Candidates:
    """Find the nearest points of one block; `start` is the number of its first row."""
    return nearest(build_from_block(block, start), quest.points, quest.neighbors)


def csvm_per_block(site: DataClaySite, trial: Trial) -> Answer:
    """Train on every block, and merge here, in a tree as elsewhere."""
    training, starts = trial.training, row_starts(site.row_chunks)

    first = [(start, training, MANY_PARTS) for start in starts]
    sets = site.engine.call_blocks(site.array, train_block, first, site.labels)
    solution = merge_all(sets, site.row_chunks, training, MANY_PARTS)
    while len(solution.objectives) < training.iterations and not solution.converged:
        again = [(start, solution) for start in starts]
        found = site.engine.call_blocks(site.array, missing_of_block, again, site.labels)
        solution = improve(found, training.svc, training.tol, solution)
    model: SVC = solution.model
    return Answer(Classifier(model, trial))


def train_block(
    points: Floats, labels: Codes, start: int, training: Training, scheme: Scheme
) -> SupportSet | None:
    """Train on the rows of one block."""
    return train_part(numbered(points, labels, start), training, scheme)


def missing_of_block(points: Floats, labels: Codes, start: int, solution: SupportSet) -> Missing:
    """Look for what the solution lacks of one block."""
    return missing(numbered(points, labels, start), solution)


def merge_all(
    sets: Sequence[SupportSet | None],
    row_counts: Sequence[int],
    training: Training,
    scheme: Scheme,
) -> SupportSet:
    """Merge the sets of parts level by level, to a solution.

    Parameters
    ----------
    sets : sequence of SupportSet or None
        Of each part.
    row_counts : sequence of int
        Rows of each part.
    training, scheme
        What to train, and how.
    """
    level, rows = list(sets), list(row_counts)
    while len(level) > scheme.arity:
        slices = [slice(at, at + scheme.arity) for at in range(0, len(level), scheme.arity)]
        rows = [sum(rows[group]) for group in slices]
        level = [
            merge_sets(level[group], scheme.doubt(count), training.svc)
            for group, count in zip(slices, rows, strict=True)
        ]
    return conclude(level, training.svc)
