"""The ways to run Lloyd's algorithm on Dask."""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from distributed import Client, Future

from spliter_apps._kmeans_kernel import Partial
from spliter_experiments._dask_blocks import blocks_of
from spliter_experiments._dask_engine import DaskEngine
from spliter_experiments._dask_steps import DaskSite, merge, rechunk_to_cores, seconds_until
from spliter_experiments._engine import Ways, result_of
from spliter_experiments._inputs import Floats
from spliter_experiments._kmeans import (
    ESTIMATOR,
    Clustering,
    Start,
    add_partials,
    assign_block,
    iterate,
    sum_block,
)
from spliter_experiments._rounds import Answer

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
        DASK_ML: by_dask_ml,
    },
    absent,
)
