"""The ways of the apps that call a function on every block, as a program without SplIter has them.

For engines that can do that and have no algorithms of their own (dataClay, COMPSs). All calls of a
step are made at once; what they return is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from sklearn.svm import SVC

from spliter_apps.kmeans.kernel import Partial
from spliter_apps.neighbors.kernel import Candidates, merge_nearest, nearest
from spliter_apps.svm.kernel import Missing, SupportSet, conclude, improve, missing
from spliter_experiments.compare.data.sources import Codes, Floats
from spliter_experiments.compare.engines.engine import Engine, Ways
from spliter_experiments.compare.workloads import csvm, histogram, kmeans, knn, sums
from spliter_experiments.compare.workloads.csvm import Classifier, Trial
from spliter_experiments.compare.workloads.csvm_cascade import (
    MANY_PARTS,
    Scheme,
    Training,
    merge_sets,
    numbered,
    train_part,
)
from spliter_experiments.compare.workloads.histogram_kernels import Edges, add_counts, count_block
from spliter_experiments.compare.workloads.kmeans import (
    Clustering,
    Start,
    add_partials,
    assign_block,
    iterate,
    sum_block,
)
from spliter_experiments.compare.workloads.knn import Quest, build_from_block
from spliter_experiments.compare.workloads.sums import add_up, repeat
from spliter_experiments.compare.workloads.workload import Site
from spliter_experiments.harness.runner import Answer


class CallsBlocks(Engine, Protocol):
    """An engine that can call a function on every block of a collection of its own."""

    def call_blocks(
        self,
        array: Any,
        kernel: Callable[..., Any],
        *shared: Any,
        aligned: Any = None,
        numbered: bool = False,
    ) -> list[Any]:
        """Call a function on all blocks at once and return the results, in order.

        Parameters
        ----------
        array : collection
            The blocks.
        kernel : callable
            Found by its name where the blocks are.
        *shared
            Further arguments, the same for all blocks.
        aligned : collection, optional
            Whose rows come after those of `array`.
        numbered : bool
            Whether the number of the block's first row comes after the rows.

        Raises
        ------
        ClusterError
            If that takes longer than ten minutes, where the engine can tell.
        """


CallSite: TypeAlias = Site[CallsBlocks]


def sum_per_block(site: CallSite, passes: int) -> Answer:
    """Add up every block, and the sums here."""
    return repeat(passes, lambda: sum(site.engine.call_blocks(site.array, add_up)))


def histogram_per_block(site: CallSite, edges: Edges) -> Answer:
    """Count in every block, and add up here."""
    return Answer(add_counts(site.engine.call_blocks(site.array, count_block, edges)))


def kmeans_per_block(site: CallSite, start: Start) -> Answer:
    """Run Lloyd's algorithm with a call for every block in each iteration."""

    def add_all(centers: Floats) -> Partial:
        return add_partials(site.engine.call_blocks(site.array, sum_block, centers))

    def label(centers: Floats) -> float:
        return float(sum(site.engine.call_blocks(site.array, inertia_of_block, centers)))

    found: Clustering = iterate(start, add_all, label)
    return Answer(found)


def inertia_of_block(block: Floats, centers: Floats) -> float:
    """Label the points of one block, and return what is added up over all."""
    return float(assign_block(block, centers).inertia)


def knn_per_block(site: CallSite, quest: Quest) -> Answer:
    """Build a tree for every block and ask it, in one call; merge here."""
    found = site.engine.call_blocks(site.array, ask_block, quest, numbered=True)
    return Answer(merge_nearest(found, quest.neighbors).distances)


def ask_block(block: Floats, start: int, quest: Quest) -> Candidates:
    """Find the nearest points of one block; `start` is the number of its first row."""
    return nearest(build_from_block(block, start), quest.points, quest.neighbors)


def csvm_per_block(site: CallSite, trial: Trial) -> Answer:
    """Train on every block, and merge here, in a tree as elsewhere."""
    training = trial.training

    def on_all(kernel: Callable[..., Any], *shared: Any) -> list[Any]:
        return site.engine.call_blocks(
            site.array, kernel, *shared, aligned=site.labels, numbered=True
        )

    sets = on_all(train_block, training, MANY_PARTS)
    solution = merge_all(sets, site.row_chunks, training, MANY_PARTS)
    while len(solution.objectives) < training.iterations and not solution.converged:
        found = on_all(missing_of_block, solution)
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


PER_BLOCK: dict[str, Callable[[CallSite, Any], Answer]] = {
    "sum": sum_per_block,
    "histogram": histogram_per_block,
    "kmeans": kmeans_per_block,
    "csvm": csvm_per_block,
    "knn": knn_per_block,
}
"""The way ``per-block`` of each app."""


def ways_by_calls() -> dict[str, Ways]:
    """Return the ways of all apps there are on such engines: SplIter's, and one call per block."""
    by_spliter: dict[str, dict[str, Callable[[Any, Any], Any]]] = {
        "sum": {"spliter": sums.by_spliter},
        "histogram": {"spliter": histogram.by_spliter},
        "kmeans": dict(kmeans.ESTIMATOR),
        "csvm": dict(csvm.ESTIMATOR),
        "knn": {"spliter": knn.by_spliter},
    }
    return {app: Ways({**ways, "per-block": PER_BLOCK[app]}) for app, ways in by_spliter.items()}
