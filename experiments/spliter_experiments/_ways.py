"""The ways to compute one histogram of blocks on a Dask cluster, each at its best.

All but ``dask`` run the same kernel (:mod:`._kernels`); what differs is what a task is:

=================  ===========================================================================
``spliter``        one per partition of blocks that are in one place already; `split` counts
``per-block``      one per block
``rechunk-p2p``    one per chunk, after the array was rechunked to one chunk per core by P2P
``rechunk-tasks``  the same, rechunked by ordinary tasks
``dask``           ``dask.array.histogramdd``: one per block, with NumPy's kernel
``floor``          none: plain processes (:mod:`._floor`)
=================  ===========================================================================
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
from distributed import Client, Future, wait

from spliter import Partition, reduce, split, task
from spliter_experiments._blocks import blocks_of, cut_rows
from spliter_experiments._errors import ClusterError
from spliter_experiments._floor import Floor
from spliter_experiments._inputs import Points
from spliter_experiments._kernels import (
    Counts,
    Edges,
    add_counts,
    count_block,
    count_blocks,
)
from spliter_experiments._rounds import Answer, Contender

PER_BLOCK_ARITY = 16
"""Partial counts that one task adds up. Of 4, 8 and 16, and of four forms (`map` then `submit`,
`map` then `map`, `delayed`, `map_blocks` then `sum`), `map` then `map` with 16 took the least time
at 48, 192 and 768 blocks per core."""

WAIT_SECONDS = 600


@dataclass(frozen=True)
class Problem:
    """What is to be counted, and where the points are.

    Parameters
    ----------
    client : Client
        Of the cluster.
    array : dask.array.Array of float64, shape (rows, columns)
        The points, persisted.
    blocks : sequence of Future
        Its blocks in the order of the rows.
    edges : tuple of ndarray
        Edges of the bins of each column.
    cores : int
        How many tasks the cluster runs at once.
    """

    client: Client
    array: da.Array
    blocks: Sequence[Future[Any]]
    edges: Edges
    cores: int


@task
def count_partition(partition: Partition, edges: Edges) -> Counts:
    """Count the points of the blocks of a partition, where they are."""
    return count_blocks(partition, edges)


def by_spliter(problem: Problem) -> Answer:
    """Run one task per partition."""
    with split(problem.array) as partitions:
        partials = [count_partition(partition, problem.edges) for partition in partitions]
        return Answer(_result(reduce(operator.add, partials)))


def per_block(problem: Problem) -> Answer:
    """Run one task per block, and a tree of sums."""
    return Answer(_add_up(problem.client, _map_count(problem, problem.blocks)))


def by_dask(problem: Problem) -> Answer:
    """Leave it to Dask."""
    counts, _ = da.histogramdd(problem.array, bins=list(problem.edges))
    return Answer(_result(problem.client.compute(counts)))


def by_rechunk(problem: Problem, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then run one task per chunk.

    The counter of a chunk is told at once and not after the rechunk, so that it starts as soon
    as its chunk is there. What "p2p" does with whole rows is merge them by tasks, in the end one
    chunk to one chunk, which it passes on without a shuffle; "tasks" does not have that last step.
    """
    start = time.perf_counter()
    rows, width = problem.array.shape
    sizes = cut_rows(rows, min(problem.cores, rows))
    chunks = blocks_of(problem.array.rechunk((sizes, (width,)), method=method).persist())
    partials = _map_count(problem, chunks)
    wait(chunks, timeout=WAIT_SECONDS)
    phases = {"rechunk": time.perf_counter() - start}
    return Answer(_add_up(problem.client, partials), phases)


def _map_count(problem: Problem, blocks: Sequence[Future[Any]]) -> list[Future[Any]]:
    mapped: list[Future[Any]] = problem.client.map(
        count_block, list(blocks), edges=problem.edges, pure=False
    )
    return mapped


def _add_up(client: Client, partials: list[Future[Any]]) -> Counts:
    while len(partials) > 1:
        groups = [
            partials[first : first + PER_BLOCK_ARITY]
            for first in range(0, len(partials), PER_BLOCK_ARITY)
        ]
        partials = client.map(add_counts, groups, pure=False)
    return _result(partials[0])


def _result(future: Any) -> Counts:
    try:
        counts: Counts = future.result(timeout=WAIT_SECONDS)
    except TimeoutError as error:
        raise ClusterError(f"no result after {WAIT_SECONDS} s") from error
    return counts


ON_CLUSTER: dict[str, Callable[[Problem], Answer]] = {
    "spliter": by_spliter,
    "per-block": per_block,
    "rechunk-p2p": lambda problem: by_rechunk(problem, "p2p"),
    "rechunk-tasks": lambda problem: by_rechunk(problem, "tasks"),
    "dask": by_dask,
}

FLOOR = "floor"

WAYS = (*ON_CLUSTER, FLOOR)


def floor_contender(problem: Problem, floor: Floor, points: Points) -> Contender:
    """Return the way without an engine.

    Its processes hold the points only while they are measured: with the blocks on the cluster and
    what a rechunk makes of them, memory would otherwise hold the points three times.
    """
    row_chunks = problem.array.chunks[0]
    return Contender(
        FLOOR,
        lambda: Answer(add_counts(floor.call(count_blocks, problem.edges))),
        prepare=lambda: floor.load(points, row_chunks),
        release=floor.drop,
        on_cluster=False,
    )
