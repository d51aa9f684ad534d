"""Undocumented Dask of task graphs: the tasks of an expression, and making some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from operator import getitem
from typing import Any, Final

import numpy as np
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


LIBRARIES: Final = {
    *("builtins", "dask", "distributed", "functools", "numpy", "operator"),
    *("pandas", "pyarrow", "scipy", "toolz", "xarray"),
}
"""Packages whose functions keep no state, and do not change arguments that are not theirs."""

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


def constant_sizes(tasks: Mapping[Key, Any]) -> dict[Key, int]:
    """Return the bytes of those tasks that are values."""
    from dask._task_spec import DataNode
    from dask.sizeof import sizeof

    return {key: sizeof(node.value) for key, node in tasks.items() if type(node) is DataNode}


def aliases(tasks: Mapping[Key, Any]) -> set[Key]:
    """Return the tasks that are other names of values."""
    from dask._task_spec import Alias

    return {key for key, node in tasks.items() if type(node) is Alias}


def separated(tasks: Mapping[Key, Any], alone: Collection[Key]) -> dict[Key, Any]:
    """Make tasks of those inside of others that need one value: they can run where it is.

    A cumulative sum, for instance, adds the last item of each chunk: only the item is to cross.
    """
    from dask._task_spec import Task, TaskRef

    found: dict[Key, Any] = dict(tasks)
    for key, node in tasks.items():
        if len(node.dependencies) < 2 or type(node) is not Task or key in alone:
            continue
        arguments = [*node.args]
        for at, argument in enumerate(node.args):
            if type(argument) is Task and len(argument.dependencies) == 1:
                inner: Key = ("argument", at, key)
                found[inner] = argument.substitute({}, key=inner)
                arguments[at] = TaskRef(inner)
                found[key] = Task(key, node.func, *arguments, **node.kwargs)
    return found


def special(tasks: Mapping[Key, Any]) -> set[Key]:
    """Return tasks that must stay tasks of their own: coroutines, and P2P shuffles.

    A P2P shuffle is a barrier, the tasks that it needs (which send) and those that need it (which
    receive): Dask's scheduler places each of them.
    """
    coroutines: dict[int, bool] = {}  # by function: many tasks have few
    found = set()
    for key, node in tasks.items():
        function = id(getattr(node, "func", None))
        if function not in coroutines:
            coroutines[function] = node.is_coro
        if coroutines[function]:
            found.add(key)
    barriers = {key for key, node in tasks.items() if node.block_fusion}
    found.update(barriers, *(tasks[key].dependencies for key in barriers))
    if barriers:
        found.update(key for key, node in tasks.items() if barriers & node.dependencies)
    return found


def foreign(tasks: Mapping[Key, Any]) -> set[Key]:
    """Return the tasks that use code or objects of other packages than `LIBRARIES`.

    They may change their arguments, such as a random generator, or what their functions refer to.
    """
    from dask._task_spec import DataNode, Task

    plain = {int, float, bool, str, bytes, type(None), slice}
    known: dict[int, tuple[bool, Any]] = {}  # by object, which it keeps: many tasks have few

    def is_foreign(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return False
        if kind in (list, tuple, dict):
            return any(map(is_foreign, value.values() if kind is dict else value))
        if isinstance(value, Task):
            return any(map(is_foreign, (value.func, *value.args, *value.kwargs.values())))
        if kind is DataNode:
            return is_foreign(value.value)
        if id(value) not in known:
            module = (callable(value) and getattr(value, "__module__", None)) or kind.__module__
            found = (
                module.partition(".")[0] not in LIBRARIES
                or isinstance(value, np.random.Generator | np.random.RandomState)
                or (callable(value) and any(map(is_foreign, _inside(value))))
            )
            known[id(value)] = found, value
        return known[id(value)][0]

    return {key for key, node in tasks.items() if isinstance(node, Task) and is_foreign(node)}


def _inside(function: Any) -> list[Any]:
    """Return what a function refers to: partial ones, methods, and those of ``toolz``."""
    names = ("func", "args", "keywords", "first", "funcs", "pyfunc", "__self__")
    cells = getattr(function, "__closure__", None) or ()
    found = [getattr(function, name, None) for name in names]
    return found + [cell.cell_contents for cell in cells]


def new_task(key: Key, function: Any, arguments: Sequence[Key]) -> Any:
    """Return a task that calls a function with the values of keys."""
    from dask._task_spec import Task, TaskRef

    return Task(key, function, *(TaskRef(argument) for argument in arguments))


def item_of(key: Key, made: Key, at: int) -> Any:
    """Return a task for one item of a value."""
    from dask._task_spec import Task, TaskRef

    return Task(key, getitem, TaskRef(made), at)
