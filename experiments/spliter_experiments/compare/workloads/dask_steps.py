"""Steps that the ways of several apps take on a Dask cluster, each done the quickest way known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import dask.array as da
from distributed import Client, Future, wait

from spliter_experiments.compare.data.blocks import cut_rows
from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.dask_engine import DaskEngine
from spliter_experiments.compare.engines.engine import WAIT_SECONDS
from spliter_experiments.compare.workloads.workload import Site
from spliter_experiments.harness.errors import ClusterError

DaskSite: TypeAlias = Site[DaskEngine]

ARITY = 16
"""Partial results that one task merges. Of 4, 8 and 16, and of four forms (`map` then `submit`,
`map` then `map`, `delayed`, `map_blocks` then `sum`), `map` then `map` with 16 took the least time
for the histogram at 48, 192 and 768 blocks per core."""


def map_blocks(
    site: DaskSite, blocks: Sequence[Future[Any]], kernel: Callable[..., Any], **kwargs: Any
) -> list[Future[Any]]:
    """Start one task per block."""
    mapped: list[Future[Any]] = site.engine.client.map(kernel, list(blocks), pure=False, **kwargs)
    return mapped


def merge(
    client: Client, merge_some: Callable[[list[Any]], Any], partials: Sequence[Future[Any]]
) -> Future[Any]:
    """Merge partial results in a tree of tasks.

    Parameters
    ----------
    client : Client
        Of the cluster.
    merge_some : callable
        Makes one of a list of them.
    partials : sequence of Future
        One at least.
    """
    level = list(partials)
    while len(level) > 1:
        groups = [level[first : first + ARITY] for first in range(0, len(level), ARITY)]
        level = client.map(merge_some, groups, pure=False)
    return level[0]


def rechunk_to_cores(site: DaskSite, array: da.Array, method: str) -> list[Future[Any]]:
    """Start to rechunk a persisted array to one chunk per core, and return the chunks to come.

    What "p2p" does with whole rows is merge them by tasks, in the end one chunk to one chunk, which
    it passes on without a shuffle; "tasks" does not have that last step.

    Parameters
    ----------
    site : Site
        Says how many cores there are.
    array : dask.array.Array
        The points, or the labels.
    method : str
        One of Dask's, "p2p" or "tasks".
    """
    rows, *width = array.shape
    sizes = cut_rows(rows, min(site.engine.cores, rows))
    chunks = (sizes, *((size,) for size in width))
    return blocks_of(array.rechunk(chunks, method=method).persist())


def seconds_until(start: float, futures: Sequence[Future[Any]]) -> float:
    """Wait for tasks and return how long ago `start` is then.

    Raises
    ------
    ClusterError
        If that takes longer than ten minutes.
    """
    try:
        wait(list(futures), timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error
    return time.perf_counter() - start
