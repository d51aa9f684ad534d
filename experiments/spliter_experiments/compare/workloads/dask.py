"""Ways that exist only on Dask: rechunking first, and Dask's own algorithms."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask import delayed
from dask.typing import Key
from distributed import Client, Future, get_worker

from spliter import partitioned
from spliter_apps.kmeans.kernel import Assignment, PartialSums
from spliter_apps.kmeans.lloyd import averages
from spliter_apps.neighbors.kernel import merge_nearest, nearest
from spliter_experiments.compare.data.sources import Floats, cut_rows, row_starts
from spliter_experiments.compare.engines.dask_engine import DaskEngine, blocks_of, wait_for
from spliter_experiments.compare.engines.engine import result_of
from spliter_experiments.compare.ways import PARTITIONED
from spliter_experiments.compare.workloads import programs
from spliter_experiments.compare.workloads.app import App, Solver, Ways, per_block
from spliter_experiments.compare.workloads.csvm import CascadeSvm, Run
from spliter_experiments.compare.workloads.csvm_cascade import FEW_PARTS, PAPER
from spliter_experiments.compare.workloads.histogram import Edges
from spliter_experiments.compare.workloads.kmeans import (
    Clustering,
    Start,
    add_partials,
    assign_blocks,
    sum_blocks,
)
from spliter_experiments.compare.workloads.knn import Neighbors, Query, build_from_block
from spliter_experiments.compare.workloads.site import Parts, Site
from spliter_experiments.compare.workloads.sums import repeat
from spliter_experiments.harness.runner import Answer

DaskSite: TypeAlias = Site[DaskEngine]

DASK_ML = "dask-ml"


def rechunked(app: type[App[Any]], method: str) -> Solver:
    """Return the way that rechunks to one chunk per core and runs one task per chunk."""

    def run(site: DaskSite, problem: Any) -> Answer:
        start = time.perf_counter()
        chunks, labels = rechunk_to_cores(site, site.array, method), None
        if site.labels is not None:
            # If chunks cut through blocks, "p2p" runs a task per block for a one-dimensional array.
            labels = rechunk_to_cores(site, site.labels, "tasks")

        def made() -> Mapping[str, float]:
            wait_for([*chunks, *(labels or ())])
            return {"rechunk": time.perf_counter() - start}

        sizes = cut_rows(site.array.shape[0], len(chunks))
        parts = Parts(site.engine, chunks, labels, sizes, site.queries, made)
        return Answer(solve(app, parts, problem).value, parts.phases)

    return run


def solve(app: type[App[Any]], parts: Parts, problem: Any) -> Answer:
    if issubclass(app, CascadeSvm):
        return app.by_parts(parts, problem, FEW_PARTS)
    return app.by_parts(parts, problem)


def rechunk_to_cores(site: DaskSite, array: da.Array, method: str) -> list[Future[Any]]:
    """Start rechunking a persisted array to one chunk per core; return the futures of the chunks.

    With fewer blocks than cores there is one chunk per worker, because more would be smaller.
    For whole rows, "p2p" merges blocks by tasks and forwards each chunk without a shuffle; "tasks"
    omits that last step.
    """
    rows, *width = array.shape
    fewer = len(site.row_chunks) < site.engine.cores
    sizes = cut_rows(rows, min(site.engine.workers if fewer else site.engine.cores, rows))
    chunks = (sizes, *((size,) for size in width))
    return blocks_of(array.rechunk(chunks, method=method).persist())


def sum_by_dask(site: DaskSite, passes: int) -> Answer:
    total = site.array.sum()
    return repeat(passes, lambda: float(result_of(site.engine.client.compute(total))))


def histogram_by_dask(site: DaskSite, edges: Edges) -> Answer:
    counts, _ = da.histogramdd(site.array, bins=list(edges))
    return Answer(result_of(site.engine.client.compute(counts)))


def histogram_by_partitions(site: DaskSite, edges: Edges) -> Answer:
    counts, _ = da.histogramdd(site.array, bins=list(edges))
    return Answer(counts.compute(scheduler=partitioned(site.engine.client)))


def cascade_of_the_paper(site: DaskSite, run: Run) -> Answer:
    parts = Parts(site.engine, site.array, site.labels, site.row_chunks)
    return CascadeSvm.by_parts(parts, run, PAPER)


def neighbors_of_the_paper(site: DaskSite, query: Query) -> Answer:
    """Build one tree per block, split the queries likewise, and query each tree with each chunk.

    dislib, whose nearest neighbours the paper starts from, does the same: its queries are an array
    in blocks as well. Queries in blocks are used as they are.
    """
    if query.points is None:
        return per_block(Neighbors)(site, query)
    client = site.engine.client
    trees = client.map(
        build_from_block, blocks_of(site.array), row_starts(site.row_chunks), pure=False
    )
    pieces = client.scatter(np.array_split(query.points, len(trees)), hash=False)
    asked = [tree for _ in pieces for tree in trees]
    queries = [piece for piece in pieces for _ in trees]
    found = client.map(nearest, asked, queries, k=query.neighbors, pure=False)
    of_pieces = [found[at : at + len(trees)] for at in range(0, len(found), len(trees))]
    merged = client.map(merge_nearest, of_pieces, k=query.neighbors, pure=False)
    return Answer(np.concatenate([best.distances for best in client.gather(merged)]))


@dataclass(frozen=True)
class LocalBlocks:
    """Keys of the blocks at one worker; Dask would take a list of keys for dependencies."""

    keys: tuple[Key, ...]

    def read(self) -> list[Floats]:
        data: Mapping[Key, Any] = get_worker().data
        return [data[key] for key in self.keys]

    def sums(self, centers: Floats) -> PartialSums:
        return sum_blocks(self.read(), centers)

    def next_sums(self, *partials: PartialSums) -> PartialSums:
        """Sum the points by the nearest of the centres that follow from other sums."""
        return self.sums(averages(add_partials(partials)))

    def labelled(self, *partials: PartialSums) -> tuple[Assignment, Floats]:
        """Label the points by the centres that follow from sums."""
        centers = averages(add_partials(partials))
        return assign_blocks(self.read(), centers), centers


def by_hand(site: DaskSite, start: Start) -> Answer:
    """Locate the blocks of each worker by hand, as some libraries do, and pin tasks there.

    One task per worker and iteration, all in one graph: the least scheduling possible for
    iterations that are tasks. Nothing is checked, and the program fails if a worker dies.
    """
    client = site.engine.client
    held: dict[str, list[Key]] = {}
    for key, workers in client.who_has(blocks_of(site.array)).items():
        held.setdefault(workers[0], []).append(key)
    local = {worker: LocalBlocks(tuple(keys)) for worker, keys in held.items()}

    def everywhere(step: Callable[..., Any], *args: Any) -> list[Any]:
        tasks = []
        for worker, blocks in local.items():
            with dask.annotate(workers=[worker], allow_other_workers=False):
                tasks.append(delayed(step, pure=False)(blocks, *args))
        return tasks

    found = everywhere(LocalBlocks.sums, start.centers)
    for _ in range(start.iterations - 1):
        found = everywhere(LocalBlocks.next_sums, *found)
    labelled = everywhere(LocalBlocks.labelled, *found)
    summaries = []
    for worker, here in zip(local, labelled, strict=True):
        with dask.annotate(workers=[worker], allow_other_workers=False):
            summaries.append(delayed(_summary, pure=False)(here))
    futures = client.compute([*labelled, *summaries], optimize_graph=False)
    parts = client.gather(futures[len(labelled) :])
    return Answer(Clustering(parts[0][1], sum(inertia for inertia, _ in parts)))


def _summary(labelled: tuple[Assignment, Floats]) -> tuple[float, Floats]:
    return labelled[0].inertia, labelled[1]


def by_dask_ml(site: DaskSite, start: Start) -> Answer:
    """Run dask-ml, whose inertia is omitted: it sums distances that are not squared."""
    from dask_ml.cluster import KMeans

    model = KMeans(len(start.centers), init=start.centers, max_iter=start.iterations, tol=0).fit(
        site.array
    )
    return Answer(Clustering(np.asarray(model.cluster_centers_), None))


def why_no_dask_ml(client: Client) -> str:
    try:
        import dask_ml.cluster  # noqa: F401
    except ImportError as error:
        return f'it cannot be imported here ({error}); pip install "pyspliter[dask-ml]"'
    found = client.run(metadata.version, DASK_ML, on_error="return")
    without = [worker for worker, version in found.items() if not isinstance(version, str)]
    return f"it is not installed at {', '.join(without)}" if without else ""


def absent(engine: DaskEngine) -> Mapping[str, str]:
    reason = why_no_dask_ml(engine.client)
    return {DASK_ML: reason} if reason else {}


OWN: dict[str, dict[str, Solver]] = {
    "sum": {"dask": sum_by_dask},
    "histogram": {"dask": histogram_by_dask, PARTITIONED: histogram_by_partitions},
    "kmeans": {"by-hand": by_hand, DASK_ML: by_dask_ml},
    "csvm": {"per-block-paper": cascade_of_the_paper},
    "knn": {"per-block-paper": neighbors_of_the_paper},
    "programs": programs.ON_DASK,
}


def ways(app: type[App[Any]]) -> Ways:
    rechunks = {f"rechunk-{method}": rechunked(app, method) for method in ("p2p", "tasks")}
    own = OWN[app.name]
    return Ways({**rechunks, **own}, absent=absent if DASK_ML in own else lambda _: {})
