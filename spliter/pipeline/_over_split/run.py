"""Pipelines over a Split: the body runs once at the client, each pass is one task per partition.

The client knows the dtypes and the width of the rows only. The calls of a pass are sent to the
partitions, which run them on batches of each block; results with rows stay there::

    x - x.mean(axis=0)      pass 1   each partition   mean: sum and count of its rows
                            client                    merged
                            pass 2   each partition   subtract, with the merged mean
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter._results import gather
from spliter._split import Split
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta
from spliter.pipeline._over_split.split_graph import SplitGraph
from spliter.pipeline._over_split.tasks import no_rows
from spliter.pipeline._running.interrupts import is_interrupt
from spliter.pipeline._values.capture import wrap
from spliter.pipeline._values.containers import Containers, drop_lost, own, refuse
from spliter.pipeline._values.lazy import Lazy, compute, is_array, is_frame, lazies_in, settled


def run_over_split(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a pipeline over a Split.

    Parameters
    ----------
    fn : callable
        Its body.
    args, kwargs
        Arguments, one of which is a Split. Aligned collections are as many arguments.

    Returns
    -------
    object
        What the body returns, with collections in place of values with rows.
    """
    splits = {id(each): each for each in (*args, *kwargs.values()) if isinstance(each, Split)}
    if len(splits) > 1:
        raise InvalidArgumentError(
            f"a pipeline got {len(splits)} Splits, whose partitions need not match; split the "
            "collections together: split(x, y)"
        )
    (split,) = splits.values()
    graph = SplitGraph(split, [*map(_meta_of_rows, _examples(split))])
    try:
        result = _run(fn, graph, args, kwargs)  # whose frame holds rows
    except BaseException:
        graph.end()
        raise
    finally:
        graph.locks.end()
    if not graph.end():
        with graph:
            graph.settle()  # rows that the program keeps are computed by return
    return result


def _run(
    fn: Callable[..., Any], graph: SplitGraph, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    lazies = [wrap(node, graph) for node in graph.passes.members]
    spread: list[Any] = []
    for each in args:
        spread += lazies if isinstance(each, Split) else [each]
    if len(lazies) > 1 and any(isinstance(each, Split) for each in kwargs.values()):
        raise InvalidArgumentError(
            f"a Split of {len(lazies)} aligned collections is {len(lazies)} arguments; pass it "
            "by position"
        )
    named = {k: lazies[0] if isinstance(v, Split) else v for k, v in kwargs.items()}
    given = {id(each): each for each in lazies_in((args, kwargs))}

    def made_here(lazy: Lazy, *, waits: bool = False) -> Any:
        return lazy if id(lazy) in given else _value_of(lazy, graph, waits=waits)

    def returned(lazy: Lazy) -> Any:
        is_at_client = type(lazy._graph.root()) is Graph
        return made_here(lazy) if is_at_client else _value_of(lazy, graph)

    try:
        result = fn(*spread, **named)
        graph.finish()
        known: dict[int, Any] = {}
        settled((args, kwargs), made_here, known)
        return settled(result, returned, known)
    except BaseException as error:
        result = None  # of which nothing is needed
        is_error = not is_interrupt(error)  # Ctrl-C does not wait for tasks
        try:
            if is_error:
                graph.finish(has_failed=True)
        finally:
            if lazies_in((args, kwargs)):  # lists and dicts that the body has changed up to there
                containers: Containers = {}
                own((*args, *kwargs.values()), containers)
                computed = functools.partial(made_here, waits=True)  # as others may have failed
                drop_lost(containers, computed if is_error else refuse)
        raise


def _value_of(lazy: Lazy, of: SplitGraph, *, waits: bool = False) -> Any:
    """Return the collection of a value with rows, which it may wait for, any other one itself.

    Rows of a pipeline that has called this one stay lazy.
    """
    with lazy._graph as graph:
        if isinstance(graph, SplitGraph):  # maybe of another pipeline, which has kept the value
            node, runs = lazy._node, graph.rank[0]
            if runs and graph is not of:
                return lazy
            if not graph.is_distributed(node):
                return node.data
            if waits:
                graph.settle()
            return graph.collection_of(node)
    return compute(lazy)


def _examples(split: Split) -> tuple[Any, ...]:
    """Return a small block of each collection of a Split."""
    example = split._blocks.example()
    if example is None:
        (example,) = gather([split[0].submit(no_rows)])
    return example if isinstance(example, tuple) else (example,)


def _meta_of_rows(example: Any) -> Meta:
    """Return what is known of a collection by a small block of it."""
    if is_array(example):
        return ArrayMeta((None, *example.shape[1:]), example.dtype)
    if is_frame(example):
        return FrameMeta(example.iloc[:0].copy(), None)
    dtype = f" of {example.dtype}" if isinstance(example, np.ndarray) else ""
    raise InvalidArgumentError(
        f"the blocks of this Split are of type {type(example).__name__}{dtype}, and a pipeline "
        "over a Split takes NumPy arrays of numbers, flags and dates, and frames of pandas 3 or "
        "later; call it in a task, on each block"
    )
