"""The object for Dask's ``scheduler=``: plan the clusters of a graph, and let Dask run them."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final, Self

import dask
from dask.base import is_dask_collection
from dask.core import flatten
from dask.typing import Key
from distributed import CancelledError, Client, Future, get_client, wait

from spliter import (
    BackendNotUsableError,
    ClientClosedError,
    InvalidArgumentError,
    UnsupportedCollectionError,
)
from spliter_backends.dask.client.scheduler_calls import call_client
from spliter_backends.dask.executor import executor_for_client
from spliter_backends.dask.graphs.coarse import build
from spliter_backends.dask.graphs.explain import Explanation, explain_plan
from spliter_backends.dask.graphs.plan import Plan
from spliter_backends.dask.graphs.planner import plan_clusters
from spliter_backends.dask.internals.graphs import (
    aliases,
    constant_sizes,
    final_expression,
    separated,
    special,
    task_graphs,
    tasks_of,
)

SMALL: Final = 4096
"""Bytes up to which a constant is copied to every cluster that uses it: a task is no smaller."""

SAVING: Final = 2
"""Least tasks of Dask per task that runs: with fewer, planning costs more than it saves."""


@dataclass(frozen=True)
class _Planned:
    """A graph that runs as clusters."""

    before: int  # tasks of the graph
    tasks: dict[Key, Any]
    annotations: Mapping[str, Mapping[Key, Any]]  # of tasks that stay single tasks
    plan: Plan
    workers: list[str]  # of each partition
    held: dict[Key, str]  # worker of each existing value


@dataclass(frozen=True)
class _Forwarded:
    """A graph that Dask runs as it is."""

    reason: str
    before: int = 0  # tasks of the graph, if they were counted


class Partitioned:
    """Dask's scheduler at the granularity of partitions.

    Parameters
    ----------
    client : distributed.Client or None
        ``None`` for the one that is current when something is computed.
    partitions_per_location : int or None
        Partitions at each worker; ``None`` for one per thread.

    Raises
    ------
    InvalidArgumentError
        If `client` is no client.
    """

    def __init__(self, client: Any, partitions_per_location: int | None) -> None:
        if client is not None and not isinstance(client, Client):
            raise InvalidArgumentError(
                f"partitioned() takes a distributed.Client, got {_type_of(client)}"
            )
        self._client: Client | None = client
        self._partitions = partitions_per_location
        self._entered: list[Any] = []

    @property
    def client(self) -> Client:
        """The client that was given, or the current one.

        Raises
        ------
        BackendNotUsableError
            If there is none, it was closed or is asynchronous.
        """
        client = self._client
        if client is None:
            try:
                client = get_client()
            except ValueError as error:
                raise BackendNotUsableError(
                    "partitioned() needs a Dask cluster, and there is no client; make one, such as "
                    "client = distributed.Client(), or pass it: partitioned(client)"
                ) from error
        if client.status in ("closing", "closed"):
            raise ClientClosedError(
                "the Dask client of partitioned() is closed; pass an open one, or none to use the "
                "current one"
            )
        if client.asynchronous:
            raise BackendNotUsableError(
                "the Dask client is asynchronous, and dask.compute waits; make the client with "
                "asynchronous=False, or await client.compute(collection)"
            )
        return client

    @property
    def __self__(self) -> Client:
        """The client, as of its method `get`: xarray locks files across processes if there is one.

        Dask calls its `persist`.
        """
        return self.client

    def __eq__(self, other: object) -> bool:
        """Return whether this is `other`, or its `get`: Dask locks across processes then."""
        return other is self or (isinstance(other, MethodType) and other == self.client.get)

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as ``None``: Dask sends its configuration to workers that it starts meanwhile."""
        return type(None), ()

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        """Compute keys of a graph (called by Dask)."""
        client = self.client
        wanted = [*flatten([keys])]
        planned = self._plan(client, graph, wanted, options)
        if isinstance(planned, _Forwarded):
            return client.get(graph, keys, **options)
        coarse = build(planned.plan, planned.tasks, uuid.uuid4().hex, planned.workers)
        single = [key for key in dict.fromkeys(wanted) if key not in planned.tasks]
        single += planned.plan.direct
        found = client.get(coarse.layered(planned.annotations), [*single, *coarse.wanted])
        call_client(client, _after_releases)
        values: dict[Key, Any] = dict(zip(single, found, strict=False))
        for output, made in zip(planned.plan.wanted, found[len(single) :], strict=True):
            values.update(zip(output.keys, made, strict=True))
        return _filled(keys, values)

    def persist(self, collections: Any, **options: Any) -> Any:
        """Persist collections (called by Dask): forwarded to the client."""
        return self.client.persist(collections, **options)

    def explain(self, *collections: Any) -> Explanation:
        """Describe what would run; run nothing.

        Parameters
        ----------
        *collections
            Collections of Dask, to be computed together.

        Returns
        -------
        Explanation

        Raises
        ------
        UnsupportedCollectionError
            If one of them is none of Dask's.
        """
        client = self.client
        for collection in collections:
            if not is_dask_collection(collection):
                raise UnsupportedCollectionError(
                    "explain() takes collections of Dask, such as arrays, DataFrames, bags and "
                    f"delayed objects; got {_type_of(collection)}"
                )
        expr = final_expression(collections)
        planned = self._plan(client, expr, [*flatten(expr.__dask_keys__())], {})
        if isinstance(planned, _Forwarded):
            return Explanation(planned.before, planned.before, planned.reason)
        held = planned.held
        nbytes: dict[Key, int] = {}
        if held:
            scheduler: Any = client.scheduler
            query = functools.partial(scheduler.nbytes, keys=[*held], summary=False)
            nbytes = call_client(client, query)
        return explain_plan(planned.plan, planned.before, planned.workers, held, nbytes)

    def __enter__(self) -> Self:
        self._entered.append(dask.config.set(scheduler=self))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def _plan(
        self, client: Client, graph: Any, keys: Sequence[Key], options: Mapping[str, Any]
    ) -> _Planned | _Forwarded:
        honoured = inspect.signature(client.get).parameters  # it ignores others, as flush=True
        if honoured.keys() & options.keys() or dask.get_annotations():
            return _Forwarded("options or annotations hold for all tasks")
        if not task_graphs.usable():
            return _Forwarded("this version of Dask differs from those tested")
        tasks, annotations = tasks_of(graph)
        before = len(tasks)
        alone = special(tasks).union(*annotations.values())
        tasks = separated(tasks, alone)
        dependencies = {key: node.dependencies for key, node in tasks.items()}
        wanted = [key for key in dict.fromkeys(keys) if key in tasks]
        constants = constant_sizes(tasks)
        floating = {key for key, size in constants.items() if size <= SMALL}
        workers = _workers(client, self._partitions)
        if not workers:
            return _Forwarded("the cluster has no worker", before)
        existing = {d for needed in dependencies.values() for d in needed if d not in tasks}
        held = _held(client, [*existing], workers) if existing else {}
        number = {worker: at for at, worker in enumerate(workers)}
        plan = plan_clusters(
            dependencies,
            wanted,
            [*workers.values()],
            held={key: number[worker] for key, worker in held.items()},
            constants=constants,
            floating=floating - alone - {*wanted},
            alone=alone,
            aliases=aliases(tasks),
        )
        if SAVING * plan.ntasks > before:
            return _Forwarded(f"clusters would still be {plan.ntasks} tasks", before)
        places = [worker for worker, partitions in workers.items() for _ in range(partitions)]
        return _Planned(before, tasks, annotations, plan, places, held)


async def _after_releases() -> None:
    """Run on the client's event loop after it has released the futures of `get`.

    Single tasks have the same keys in another graph, and other dependencies: the scheduler keeps
    the old ones of a task that is not released yet, and never forgets the new ones.
    """


def _workers(client: Client, partitions: int | None) -> dict[str, int]:
    """Return the number of partitions at each worker."""
    threads = executor_for_client(client).available_workers()
    return {worker: partitions or number for worker, number in sorted(threads.items())}


def _held(client: Client, keys: Sequence[Key], workers: Mapping[str, int]) -> dict[Key, str]:
    """Return the worker of each value that exists, after those that are being computed do."""
    pending: list[Future[Any]] = [
        Future(key, client)
        for key in keys
        if (state := client.futures.get(key)) and state.status == "pending"
    ]
    with suppress(CancelledError):  # the graph that needs them reports that
        wait(pending)
    scheduler: Any = client.scheduler
    holders = call_client(client, functools.partial(scheduler.who_has, keys=keys))
    return {key: held[0] for key, held in holders.items() if held and held[0] in workers}


def _filled(keys: Any, values: dict[Key, Any]) -> Any:
    """Replace the keys in nested lists by their values."""
    if isinstance(keys, list):
        return [_filled(key, values) for key in keys]
    return values[keys]


def _type_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
