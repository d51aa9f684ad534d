"""The ways to add up all values on Dask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from distributed import Future

from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.engine import Ways, result_of
from spliter_experiments.compare.workloads.dask_steps import (
    DaskSite,
    map_blocks,
    merge,
    rechunk_to_cores,
    seconds_until,
)
from spliter_experiments.compare.workloads.sums import add_up, by_spliter, repeat
from spliter_experiments.harness.runner import Answer


def per_block(site: DaskSite, passes: int) -> Answer:
    """Run one task per block, and a tree of sums."""
    return repeat(passes, lambda: add_blocks(site, blocks_of(site.array)))


def by_rechunk(site: DaskSite, passes: int, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk."""
    start = time.perf_counter()
    chunks = rechunk_to_cores(site, site.array, method)
    phases = {"rechunk": seconds_until(start, chunks)}
    return Answer(repeat(passes, lambda: add_blocks(site, chunks)).value, phases)


def by_dask(site: DaskSite, passes: int) -> Answer:
    """Leave it to Dask."""
    total = site.array.sum()
    return repeat(passes, lambda: float(result_of(site.engine.client.compute(total))))


def add_blocks(site: DaskSite, blocks: Sequence[Future[Any]]) -> float:
    """Run one task per block or chunk, and a tree of sums."""
    return float(result_of(merge(site.engine.client, sum, map_blocks(site, blocks, add_up))))


WAYS = Ways(
    {
        "spliter": by_spliter,
        "per-block": per_block,
        "rechunk-p2p": lambda site, passes: by_rechunk(site, passes, "p2p"),
        "rechunk-tasks": lambda site, passes: by_rechunk(site, passes, "tasks"),
        "dask": by_dask,
    }
)
