"""Build the graph that Dask runs for the clusters of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key
from dask.utils import key_split

from spliter_backends.dask.graphs.clusters import ClusterTask, PickledCluster
from spliter_backends.dask.graphs.plan import ALONE, Cluster, Output, Plan
from spliter_backends.dask.internals.graphs import foreign, item_of, new_task


@dataclass(frozen=True)
class CoarseGraph:
    """A graph of clusters."""

    tasks: dict[Key, Any]
    pinned: dict[Key, Sequence[str]]  # workers on which a task should run
    wanted: list[Key]  # of the wanted outputs of the plan, whose values are tuples

    def layered(self, annotations: Mapping[str, Mapping[Key, Any]]) -> HighLevelGraph:
        """Return the graph with its annotations, and those of tasks that stay as they are."""
        by_type = {kind: dict(values) for kind, values in annotations.items()}
        by_type.setdefault("workers", {}).update(self.pinned)
        by_type.setdefault("allow_other_workers", {}).update(dict.fromkeys(self.pinned, True))
        functions = {kind: values.get for kind, values in by_type.items()}
        layer = MaterializedLayer(self.tasks, annotations=functions)
        return HighLevelGraph({"partitioned": layer}, {"partitioned": set()})


def build(plan: Plan, graph: Mapping[Key, Any], token: str, workers: Sequence[str]) -> CoarseGraph:
    """Make a task of each cluster, and of those of several outputs that go to other locations.

    Parameters
    ----------
    plan : Plan
    graph : mapping
    token : str
        Distinguishes the keys of this graph from those of others.
    workers : sequence of str
        Worker of each partition.
    """
    tasks: dict[Key, Any] = {}
    pinned: dict[Key, Sequence[str]] = {}
    keys = [_key(cluster, graph, token, at) for at, cluster in enumerate(plan.clusters)]
    where: dict[Output, Key] = {}
    copied = foreign(graph)
    for key, cluster in zip(keys, plan.clusters, strict=True):
        if cluster.partition == ALONE:
            tasks.update({each: graph[each] for each in cluster.keys})
            continue
        arguments = [*cluster.direct, *(where[output] for output in cluster.inputs)]
        tasks[key] = new_task(key, PickledCluster(_cluster_task(cluster, graph, copied)), arguments)
        worker = [workers[cluster.partition]]
        if not any(needed in graph for needed in cluster.direct):
            pinned[key] = worker  # else Dask places it, like the single tasks that it needs
        where.update(dict.fromkeys(cluster.outputs, key))
        if cluster.has_one_value:
            continue
        for at, output in enumerate(cluster.outputs):
            if output.position is not None:
                continue
            where[output] = (f"{key[0]}-output", key[1], at)
            tasks[where[output]] = item_of(where[output], key, at)
            pinned[where[output]] = worker  # else all outputs may cross for one
        for at, single in enumerate(cluster.singles, start=len(cluster.outputs)):
            tasks[single] = item_of(single, key, at)
            pinned[single] = worker
    return CoarseGraph(tasks, pinned, [where[output] for output in plan.wanted])


def _key(cluster: Cluster, graph: Mapping[Key, Any], token: str, at: int) -> tuple[str, int]:
    return f"{key_split(cluster.keys[-1])}-partition-{token}", at


def _cluster_task(cluster: Cluster, graph: Mapping[Key, Any], copied: set[Key]) -> ClusterTask:
    nodes = tuple(graph[key] for key in cluster.keys)
    outputs = tuple(output.keys for output in cluster.outputs)
    received = tuple((output.keys, output.position) for output in cluster.inputs)
    own = copied.intersection(cluster.keys)
    direct, singles = (*cluster.direct,), (*cluster.singles,)
    return ClusterTask(nodes, direct, received, outputs, singles, frozenset(own))
