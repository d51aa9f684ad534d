"""The ways to count points in bins on Dask."""

from __future__ import annotations

import time

import dask.array as da

from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.engine import Ways, result_of
from spliter_experiments.compare.workloads.dask_steps import (
    DaskSite,
    map_blocks,
    merge,
    rechunk_to_cores,
    seconds_until,
)
from spliter_experiments.compare.workloads.histogram import by_spliter
from spliter_experiments.compare.workloads.histogram_kernels import Edges, add_counts, count_block
from spliter_experiments.harness.runner import Answer


def per_block(site: DaskSite, edges: Edges) -> Answer:
    """Run one task per block, and a tree of sums."""
    partials = map_blocks(site, blocks_of(site.array), count_block, edges=edges)
    return Answer(result_of(merge(site.engine.client, add_counts, partials)))


def by_rechunk(site: DaskSite, edges: Edges, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk.

    The counter of a chunk is told at once and not after the rechunk, so that it starts as soon
    as its chunk is there.
    """
    start = time.perf_counter()
    chunks = rechunk_to_cores(site, site.array, method)
    partials = map_blocks(site, chunks, count_block, edges=edges)
    phases = {"rechunk": seconds_until(start, chunks)}
    return Answer(result_of(merge(site.engine.client, add_counts, partials)), phases)


def by_dask(site: DaskSite, edges: Edges) -> Answer:
    """Leave it to Dask."""
    counts, _ = da.histogramdd(site.array, bins=list(edges))
    return Answer(result_of(site.engine.client.compute(counts)))


WAYS = Ways(
    {
        "spliter": by_spliter,
        "per-block": per_block,
        "rechunk-p2p": lambda site, edges: by_rechunk(site, edges, "p2p"),
        "rechunk-tasks": lambda site, edges: by_rechunk(site, edges, "tasks"),
        "dask": by_dask,
    }
)
