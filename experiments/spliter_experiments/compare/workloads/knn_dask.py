"""The ways to find nearest neighbours on Dask."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client, Future

from spliter_apps.neighbors.kernel import Candidates, merge_nearest, nearest
from spliter_experiments.compare.data.blocks import cut_rows, row_starts
from spliter_experiments.compare.data.sources import Floats
from spliter_experiments.compare.engines.dask_blocks import blocks_of
from spliter_experiments.compare.engines.engine import Ways, result_of
from spliter_experiments.compare.workloads.dask_steps import (
    DaskSite,
    merge,
    rechunk_to_cores,
    seconds_until,
)
from spliter_experiments.compare.workloads.knn import Quest, build_from_block, by_spliter
from spliter_experiments.harness.runner import Answer


def per_block(site: DaskSite, quest: Quest) -> Answer:
    """Build one tree per block, and merge in a tree of tasks."""
    found = _ask_trees(site.engine.client, blocks_of(site.array), site.row_chunks, quest)
    return Answer(_best(site.engine.client, found, quest))


def per_block_paper(site: DaskSite, quest: Quest) -> Answer:
    """Build one tree per block, cut the queries alike, and ask each tree about each piece.

    So dislib does it, whose nearest neighbours the paper starts from: the queries are an array in
    blocks as well.
    """
    client = site.engine.client
    trees = client.map(
        build_from_block, blocks_of(site.array), row_starts(site.row_chunks), pure=False
    )
    pieces = client.scatter(np.array_split(quest.points, len(trees)), hash=False)
    asked = [tree for _ in pieces for tree in trees]
    queries = [piece for piece in pieces for _ in trees]
    found = client.map(nearest, asked, queries, k=quest.neighbors, pure=False)
    of_pieces = [found[at : at + len(trees)] for at in range(0, len(found), len(trees))]
    merged = client.map(merge_nearest, of_pieces, k=quest.neighbors, pure=False)
    return Answer(np.concatenate([best.distances for best in client.gather(merged)]))


def by_rechunk(site: DaskSite, quest: Quest, method: str) -> Answer:
    """Rechunk to one chunk per core by one of Dask's methods, then build one tree per chunk."""
    began = time.perf_counter()
    chunks = rechunk_to_cores(site, site.array, method)
    sizes = cut_rows(site.array.shape[0], len(chunks))
    # The trees are told at once, so that each is built as soon as its chunk is there.
    found = _ask_trees(site.engine.client, chunks, sizes, quest)
    phases = {"rechunk": seconds_until(began, chunks)}
    return Answer(_best(site.engine.client, found, quest), phases)


def _ask_trees(
    client: Client, blocks: Sequence[Future[Any]], sizes: Sequence[int], quest: Quest
) -> list[Future[Candidates]]:
    """Build a tree for each block, and ask each all queries, which are sent to workers once."""
    trees = client.map(build_from_block, list(blocks), row_starts(sizes), pure=False)
    queries = client.scatter(quest.points, broadcast=True, hash=False)
    found: list[Future[Candidates]] = client.map(
        nearest, trees, points=queries, k=quest.neighbors, pure=False
    )
    return found


def _best(client: Client, found: Sequence[Future[Candidates]], quest: Quest) -> Floats:
    merge_some = functools.partial(merge_nearest, k=quest.neighbors)
    best: Candidates = result_of(merge(client, merge_some, found))
    return best.distances


WAYS = Ways(
    {
        "spliter": by_spliter,
        "per-block": per_block,
        "per-block-paper": per_block_paper,
        "rechunk-p2p": lambda site, quest: by_rechunk(site, quest, "p2p"),
        "rechunk-tasks": lambda site, quest: by_rechunk(site, quest, "tasks"),
    }
)
