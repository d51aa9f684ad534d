"""The object for Dask's ``scheduler=``: plan the clusters of a graph, and let Dask run them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import dask
from dask.core import flatten
from dask.typing import Key
from distributed import Client, get_client

from spliter import BackendNotUsableError, InvalidArgumentError
from spliter_backends.dask.client.scheduler_calls import call_client, check_open
from spliter_backends.dask.graphs.coarse import CoarseGraph, build
from spliter_backends.dask.graphs.planner import plan_clusters
from spliter_backends.dask.internals.graphs import (
    constant_size,
    ordered_dependencies,
    special,
    task_graphs,
    tasks_of,
)

SMALL: Final = 4096
"""Bytes up to which a constant is copied to every cluster that uses it: a task is no smaller."""


@dataclass(frozen=True)
class Decision:
    """What happens to a graph.

    Parameters
    ----------
    before : int
        Tasks of the graph; 0 if they were not counted.
    coarse : CoarseGraph or None
        The graph that runs instead; None if it is forwarded as it is.
    annotations : dict
        Annotations of tasks that stay as they are.
    existing : list
        Wanted keys whose values exist.
    reason : str
        Why it is forwarded.
    """

    before: int
    coarse: CoarseGraph | None
    annotations: Any
    existing: list[Key]
    reason: str

    def __str__(self) -> str:
        if self.coarse is None:
            return f"{self.before} tasks, forwarded to Dask as they are: {self.reason}"
        return f"{self.before} tasks, run as {len(self.coarse.tasks)}"


class Partitioned:
    """Dask's scheduler at the granularity of partitions."""

    def __init__(self, client: Client | None, partitions_per_location: int | None) -> None:
        if client is not None and not isinstance(client, Client):
            raise InvalidArgumentError(
                f"partitioned() takes a distributed.Client, got {type(client).__name__}"
            )
        self._client = client
        self._partitions = partitions_per_location

    @property
    def client(self) -> Client:
        """The client that was given, or the current one."""
        if self._client is None:
            try:
                return get_client()
            except ValueError as error:
                raise BackendNotUsableError(
                    "partitioned() needs a Dask cluster, and there is no client: make one, such as "
                    "client = distributed.Client(), or pass it: partitioned(client)"
                ) from error
        check_open(self._client)
        return self._client

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        """Compute keys of a graph (called by Dask)."""
        client = self.client
        decision = self._decide(client, graph, [*flatten([keys])], options)
        if decision.coarse is None:
            return client.get(graph, keys, **options)
        wanted = [*decision.coarse.wanted, *decision.existing]
        found = client.get(decision.coarse.layered(decision.annotations), wanted)
        values: dict[Key, Any] = dict(
            zip(decision.existing, found[len(decision.coarse.wanted) :], strict=True)
        )
        for outputs in found[: len(decision.coarse.wanted)]:
            values.update(outputs)
        return _filled(keys, values)

    def persist(self, collections: Any, **options: Any) -> Any:
        """Persist collections (called by Dask): forwarded to the client."""
        return self.client.persist(collections, **options)

    def explain(self, *collections: Any) -> Decision:
        """Say what would happen to collections, and run nothing."""
        from dask._expr import FinalizeCompute
        from dask.base import collections_to_expr

        expr = FinalizeCompute(collections_to_expr(collections, True)).optimize()
        return self._decide(self.client, expr, [*flatten(expr.__dask_keys__())], {})

    def __enter__(self) -> Partitioned:
        self._config = dask.config.set(scheduler=self)
        self._config.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._config.__exit__(*error)

    def _decide(self, client: Client, graph: Any, keys: Sequence[Key], options: Any) -> Decision:
        def forward(reason: str, before: int = 0) -> Decision:
            return Decision(before, None, {}, [], reason)

        if client.asynchronous:
            return forward("the client is asynchronous")
        if options or dask.get_annotations():
            return forward("options or annotations hold for all tasks")
        if not task_graphs.usable():
            return forward("this version of Dask differs from those tested")
        tasks, annotations = tasks_of(graph)
        dependencies = ordered_dependencies(tasks)
        alone = special(tasks).union(*annotations.values())
        wanted = dict.fromkeys(keys)
        constants = {key: size for key, node in tasks.items() if (size := constant_size(node)) >= 0}
        floating = {
            key for key, size in constants.items() if size <= SMALL and key not in wanted
        } - alone
        workers = _workers(client, self._partitions)
        if not workers:
            return forward("the cluster has no worker", len(tasks))
        existing = {d for needed in dependencies.values() for d in needed if d not in tasks}
        held = _held(client, [*existing], [*workers]) if existing else {}
        plan = plan_clusters(
            dependencies,
            [key for key in wanted if key in tasks],
            [*workers.values()],
            held=held,
            constants=constants,
            floating=floating,
            alone=alone,
        )
        if 2 * plan.ntasks > len(tasks):
            return forward(f"clusters would still be {plan.ntasks} tasks", len(tasks))
        places = [worker for worker, number in workers.items() for _ in range(number)]
        coarse = build(plan, tasks, uuid.uuid4().hex, places)
        return Decision(
            len(tasks), coarse, annotations, [key for key in wanted if key not in tasks], ""
        )


def _workers(client: Client, partitions: int | None) -> dict[str, int]:
    """Return the number of partitions at each worker."""
    threads = client.nthreads()
    return {worker: partitions or number for worker, number in sorted(threads.items())}


def _held(client: Client, keys: Sequence[Key], workers: Sequence[str]) -> dict[Key, int]:
    """Return the worker, by number, of each value that exists."""
    number = {worker: at for at, worker in enumerate(workers)}
    scheduler: Any = client.scheduler
    holders = call_client(client, scheduler.who_has, keys)
    return {key: number[held[0]] for key, held in holders.items() if held and held[0] in number}


def _filled(keys: Any, values: dict[Key, Any]) -> Any:
    """Replace the keys in nested lists by their values."""
    if isinstance(keys, list):
        return [_filled(key, values) for key in keys]
    return values[keys]
