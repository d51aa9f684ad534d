"""Ways that exist only on Ray.

======================  ====================================================================
``per-block-affinity``  one task per block, with affinity to the node of the block
``streaming-split``     one task per core, which iterates over its share of a dataset of Ray
                        Data (``Dataset.streaming_split`` with the nodes as locality hints)
======================  ====================================================================

Without affinity (``per-block``) Ray runs tasks where their arguments are, while there is room.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import ray

from spliter_apps.histogram.kernel import count_points
from spliter_experiments.compare.data.sources import Floats
from spliter_experiments.compare.engines.ray_engine import RayEngine
from spliter_experiments.compare.workloads.app import App, Solver, Ways, per_block
from spliter_experiments.compare.workloads.histogram import Edges, add_counts
from spliter_experiments.compare.workloads.site import Site
from spliter_experiments.compare.workloads.sums import add_blocks, repeat
from spliter_experiments.harness.runner import Answer

RaySite: TypeAlias = Site[RayEngine]


def pinned(way: Callable[[Any, Any], Answer]) -> Callable[[RaySite, Any], Answer]:
    """Return a variant of a way whose tasks have affinity to the node of their block."""

    def run(site: RaySite, problem: Any) -> Answer:
        engine = dataclasses.replace(site.engine, pinned=True)
        return way(dataclasses.replace(site, engine=engine), problem)

    return run


def sum_streamed(site: RaySite, passes: int) -> Answer:
    consume = consumers(site)
    return repeat(passes, lambda: sum(consume(add_blocks)))


def histogram_streamed(site: RaySite, edges: Edges) -> Answer:
    consume = consumers(site)
    return Answer(add_counts(consume(count_points, edges)))


def consumers(site: RaySite) -> Callable[..., list[Any]]:
    """Split the dataset into one stream per core, with the cores' nodes as locality hints.

    Returns a function that runs a kernel on every stream and returns the list of results.
    """
    nodes = site.engine.capacities
    seats = list(itertools.chain.from_iterable([node] * cpus for node, cpus in nodes.items()))
    streams = site.array.dataset.streaming_split(len(seats), locality_hints=seats)

    def consume(kernel: Callable[..., Any], *shared: Any) -> list[Any]:
        calls = [(kernel, stream, *shared) for stream in streams]
        return site.engine.call_tasks(call_on_stream, calls, seats)

    return consume


@ray.remote  # type: ignore[untyped-decorator]
def call_on_stream(kernel: Callable[..., Any], stream: Any, *shared: Any) -> Any:
    return kernel(rows_of(stream.iter_batches(batch_size=None, batch_format="numpy")), *shared)


def rows_of(batches: Iterable[dict[str, Any]]) -> Iterator[Floats]:
    for batch in batches:
        (rows,) = batch.values()
        yield np.asarray(rows)


STREAMED: dict[str, Solver] = {"sum": sum_streamed, "histogram": histogram_streamed}
"""Apps that accept the rows of a stream, which arrive in any order."""


def ways(app: type[App[Any]]) -> Ways:
    own = {"per-block-affinity": pinned(per_block(app))}
    if app.name in STREAMED:
        own["streaming-split"] = STREAMED[app.name]
    return Ways(own, own=tuple(own))
