"""The ways to run Lloyd's algorithm on Dask."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import dask
import numpy as np
from dask import delayed
from dask.typing import Key
from distributed import Client, Future, get_worker

from spliter_apps.kmeans.kernel import Assignment, Partial
from spliter_apps.kmeans.lloyd import averages
from spliter_experiments.compare.data.sources import Floats
from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.dask_engine import DaskEngine
from spliter_experiments.compare.engines.engine import Ways, result_of
from spliter_experiments.compare.workloads.dask_steps import (
    DaskSite,
    merge,
    rechunk_to_cores,
    seconds_until,
)
from spliter_experiments.compare.workloads.kmeans import (
    ESTIMATOR,
    Clustering,
    Start,
    add_partials,
    assign_block,
    assign_blocks,
    iterate,
    sum_block,
    sum_blocks,
)
from spliter_experiments.harness.runner import Answer

DASK_ML = "dask-ml"


def per_block(site: DaskSite, start: Start) -> Answer:
    """Run one task per block and a tree of sums in each iteration."""
    return Answer(_by_tasks(site.engine.client, blocks_of(site.array), start))


def by_rechunk(site: DaskSite, start: Start, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk."""
    began = time.perf_counter()
    chunks = rechunk_to_cores(site, site.array, method)
    # The first sums start as soon as their chunk is there.
    first = _map_sums(site.engine.client, chunks, start.centers)
    phases = {"rechunk": seconds_until(began, chunks)}
    return Answer(_by_tasks(site.engine.client, chunks, start, first), phases)


@dataclass(frozen=True)
class LocalBlocks:
    """The blocks at one worker, by their keys; Dask would take a list of these for dependencies.

    Parameters
    ----------
    keys : tuple of key
        Of the blocks.
    """

    keys: tuple[Key, ...]

    def read(self) -> list[Floats]:
        """Return the blocks, at their worker."""
        data: Mapping[Key, Any] = get_worker().data
        return [data[key] for key in self.keys]

    def sums(self, centers: Floats) -> Partial:
        """Add up the points by their nearest centre."""
        return sum_blocks(self.read(), centers)

    def next_sums(self, *partials: Partial) -> Partial:
        """Add up the points by the nearest of the centres that other sums lead to."""
        return self.sums(averages(add_partials(partials)))

    def labelled(self, *partials: Partial) -> tuple[Assignment, Floats]:
        """Label the points by the centres that sums lead to."""
        centers = averages(add_partials(partials))
        return assign_blocks(self.read(), centers), centers


def by_hand(site: DaskSite, start: Start) -> Answer:
    """Do what libraries do that look for the blocks of each worker themselves.

    One task per worker and iteration, all in one graph: the fewest and shortest ways through the
    scheduler that a program can have whose iterations are tasks. Nothing is checked, and a worker
    that dies ends it.
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
    """Leave it to dask-ml, whose inertia is a sum of distances that are not squared."""
    from dask_ml.cluster import KMeans

    model = KMeans(len(start.centers), init=start.centers, max_iter=start.iterations, tol=0).fit(
        site.array
    )
    return Answer(Clustering(np.asarray(model.cluster_centers_), None))


def _by_tasks(
    client: Client,
    blocks: Sequence[Future[Any]],
    start: Start,
    first: list[Future[Any]] | None = None,
) -> Clustering:
    """Run one task per block; the sums of the first iteration may have been started."""
    started = first

    def add_up(centers: Floats) -> Partial:
        nonlocal started
        partials, started = started or _map_sums(client, blocks, centers), None
        total: Partial = result_of(merge(client, add_partials, partials))
        return total

    def label(centers: Floats) -> float:
        labelled = client.map(assign_block, list(blocks), centers=centers, pure=False)
        partials = client.map(operator.attrgetter("inertia"), labelled, pure=False)
        return float(result_of(merge(client, sum, partials)))

    return iterate(start, add_up, label)


def _map_sums(client: Client, blocks: Sequence[Future[Any]], centers: Floats) -> list[Future[Any]]:
    mapped: list[Future[Any]] = client.map(sum_block, list(blocks), centers=centers, pure=False)
    return mapped


def why_no_dask_ml(client: Client) -> str:
    """Return why dask-ml cannot be used, nothing if it can."""
    try:
        import dask_ml.cluster  # noqa: F401
    except ImportError as error:
        return f'it cannot be imported here ({error}); pip install "spliter[dask-ml]"'
    found = client.run(metadata.version, DASK_ML, on_error="return")
    without = [worker for worker, version in found.items() if not isinstance(version, str)]
    return f"it is not installed at {', '.join(without)}" if without else ""


def absent(engine: DaskEngine) -> Mapping[str, str]:
    """Return whether dask-ml is missing, here or at a worker."""
    reason = why_no_dask_ml(engine.client)
    return {DASK_ML: reason} if reason else {}


WAYS = Ways(
    {
        **ESTIMATOR,
        "per-block": per_block,
        "rechunk-p2p": lambda site, start: by_rechunk(site, start, "p2p"),
        "rechunk-tasks": lambda site, start: by_rechunk(site, start, "tasks"),
        "by-hand": by_hand,
        DASK_ML: by_dask_ml,
    },
    absent,
)
