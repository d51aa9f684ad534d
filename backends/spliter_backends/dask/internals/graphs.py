"""Undocumented Dask of task graphs: the tasks of an expression, and making some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from operator import getitem
from typing import Any

from dask.typing import Key

from spliter_backends.dask.features import Feature, takes


def _tasks_are_known() -> bool:
    from dask._task_spec import Alias, DataNode, Task, TaskRef, convert_legacy_graph

    made = Task("c", getitem, TaskRef("a"), 0)
    converted = convert_legacy_graph({"a": [1], "b": "a", "c": made})
    return (
        made({"a": [5]}) == 5
        and set(made.dependencies) == {"a"}
        and not made.block_fusion
        and not made.is_coro
        and isinstance(converted["a"], DataNode)
        and isinstance(converted["b"], Alias)
        and takes(convert_legacy_graph, "dsk")
    )


task_graphs = Feature(
    "task graphs", "partitioned() forwards every graph as it is", _tasks_are_known
)


def tasks_of(graph: Any) -> tuple[dict[Key, Any], Mapping[str, Mapping[Key, Any]]]:
    """Return the tasks and the annotations of an expression or a graph."""
    from dask._task_spec import convert_legacy_graph
    from dask.utils import ensure_dict

    if isinstance(graph, Mapping):
        return _named(convert_legacy_graph(ensure_dict(graph))), {}
    return _named(convert_legacy_graph(graph.__dask_graph__())), graph.__dask_annotations__()


def _named(tasks: dict[Key, Any]) -> dict[Key, Any]:
    """Give each task the key that it has in the graph: a clone has the key of its original."""
    for key, node in tasks.items():
        if node.key != key:
            tasks[key] = copy(node)
            tasks[key].key = key
    return tasks


def final_expression(collections: Sequence[Any]) -> Any:
    """Return the expression that ``dask.compute`` runs for collections."""
    from dask._expr import FinalizeCompute
    from dask.base import collections_to_expr

    return FinalizeCompute(collections_to_expr(collections, True)).optimize()


def ordered_dependencies(tasks: Mapping[Key, Any]) -> dict[Key, list[Key]]:
    """Return the keys that each task needs, in the order of the graph (Dask has them in sets)."""
    number = {key: at for at, key in enumerate(tasks)}

    def place(key: Key) -> tuple[int, str]:
        at = number.get(key)
        return (-1, str(key)) if at is None else (at, "")

    return {
        key: sorted(node.dependencies, key=place)
        if len(node.dependencies) > 1
        else [*node.dependencies]
        for key, node in tasks.items()
    }


def constant_size(node: Any) -> int:
    """Return the bytes of a task that is a value, or -1."""
    from dask._task_spec import DataNode
    from dask.sizeof import sizeof

    return sizeof(node.value) if isinstance(node, DataNode) else -1


def special(tasks: Mapping[Key, Any]) -> set[Key]:
    """Return tasks that must stay tasks of their own: coroutines, and P2P shuffles.

    A P2P shuffle is a barrier, the tasks that it needs (which send) and those that need it (which
    receive): Dask's scheduler places each of them.
    """
    barriers = {key for key, node in tasks.items() if node.block_fusion}
    senders = {needed for key in barriers for needed in tasks[key].dependencies}
    return (
        barriers
        | senders
        | {
            key
            for key, node in tasks.items()
            if node.is_coro or (barriers and not barriers.isdisjoint(node.dependencies))
        }
    )


def new_task(key: Key, function: Any, arguments: Sequence[Key]) -> Any:
    """Return a task that calls a function with the values of keys."""
    from dask._task_spec import Task, TaskRef

    return Task(key, function, *(TaskRef(argument) for argument in arguments))


def item_of(key: Key, made: Key, at: int) -> Any:
    """Return a task for one item of a value."""
    from dask._task_spec import Task, TaskRef

    return Task(key, getitem, TaskRef(made), at)
