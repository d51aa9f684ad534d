"""The ways of the apps that are Ray's alone.

======================  ====================================================================
``per-block-affinity``  one task per block, with affinity to the node of the block
``streaming-split``     one task per core, which iterates over its share of a dataset of Ray
                        Data (``Dataset.streaming_split`` with the nodes as locality hints)
======================  ====================================================================

Without affinity (``per-block``) Ray puts tasks where their arguments are, as long as there is room.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import ray

from spliter_experiments.compare.data.sources import Floats
from spliter_experiments.compare.engines.ray_engine import RayEngine
from spliter_experiments.compare.workloads.histogram import Edges, add_counts, count_blocks
from spliter_experiments.compare.workloads.sums import add_blocks, repeat
from spliter_experiments.compare.workloads.workload import App, Site, Way, Ways, per_block
from spliter_experiments.harness.runner import Answer

RaySite: TypeAlias = Site[RayEngine]


def pinned(way: Callable[[Any, Any], Answer]) -> Callable[[RaySite, Any], Answer]:
    """Return a way of one task per block that gives the tasks an affinity."""

    def run(site: RaySite, problem: Any) -> Answer:
        engine = dataclasses.replace(site.engine, pinned=True)
        return way(dataclasses.replace(site, engine=engine), problem)

    return run


def sum_streamed(site: RaySite, passes: int) -> Answer:
    """Add up what each core gets of the dataset."""
    consume = consumers(site)
    return repeat(passes, lambda: sum(consume(add_blocks)))


def histogram_streamed(site: RaySite, edges: Edges) -> Answer:
    """Count in what each core gets of the dataset."""
    consume = consumers(site)
    return Answer(add_counts(consume(count_blocks, edges)))


def consumers(site: RaySite) -> Callable[..., list[Any]]:
    """Split the dataset among the cores, each at a node.

    Returns
    -------
    callable
        Runs a kernel on what each core gets, and returns what these return.
    """
    nodes = site.engine.nodes
    seats = list(itertools.chain.from_iterable([node] * cpus for node, cpus in nodes.items()))
    streams = site.array.dataset.streaming_split(len(seats), locality_hints=seats)

    def consume(kernel: Callable[..., Any], *shared: Any) -> list[Any]:
        calls = [(kernel, stream, *shared) for stream in streams]
        return site.engine.call_tasks(call_on_stream, calls, seats)

    return consume


@ray.remote  # type: ignore[untyped-decorator]
def call_on_stream(kernel: Callable[..., Any], stream: Any, *shared: Any) -> Any:
    """Call a function of blocks on those that a core gets."""
    return kernel(rows_of(stream.iter_batches(batch_size=None, batch_format="numpy")), *shared)


def rows_of(batches: Iterable[dict[str, Any]]) -> Iterator[Floats]:
    """Yield the rows of batches as arrays."""
    for batch in batches:
        (rows,) = batch.values()
        yield np.asarray(rows)


STREAMED: dict[str, Way] = {"sum": sum_streamed, "histogram": histogram_streamed}
"""Of the apps that can take the rows of a stream, which come in any order."""


def ways(app: type[App[Any]]) -> Ways:
    """Return the ways of an app that Ray alone has."""
    own = {"per-block-affinity": pinned(per_block(app))}
    if app.name in STREAMED:
        own["streaming-split"] = STREAMED[app.name]
    return Ways(own, own=tuple(own))
