"""Pipelines over a Split: the body runs once at the client, each pass is one task per partition.

The client knows the dtypes and the width of the rows only. The calls of a pass are sent to the
partitions, which run them on batches of each block; results with rows stay there::

    x - x.mean(axis=0)      pass 1   each partition   mean: sum and count of its rows
                            client                    merged
                            pass 2   each partition   subtract, with the merged mean
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._split import Split
from spliter.pipeline._capture import wrap
from spliter.pipeline._containers import Containers, drop_lost, own, refuse
from spliter.pipeline._lazy import lazies_in, settled
from spliter.pipeline._split_graph import SplitGraph


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
    graph = SplitGraph(split)
    lazies = [wrap(node, graph) for node in graph.members]
    spread: list[Any] = []
    for each in args:
        spread += lazies if isinstance(each, Split) else [each]
    if len(lazies) > 1 and any(isinstance(each, Split) for each in kwargs.values()):
        raise InvalidArgumentError(
            f"a Split of {len(lazies)} aligned collections is {len(lazies)} arguments; pass it "
            "by position"
        )
    named = {k: lazies[0] if isinstance(v, Split) else v for k, v in kwargs.items()}
    try:
        result = fn(*spread, **named)
        with graph:  # threads of the body may go on
            graph.evaluate()
            return settled((result, args, kwargs), graph.value_of)[0]
    except BaseException as error:
        if lazies_in((args, kwargs)):  # lists and dicts that the body has changed up to there
            containers: Containers = {}
            own((*args, *kwargs.values()), containers)
            is_error = isinstance(error, Exception)  # Ctrl-C does not wait for tasks
            with graph:
                try:
                    if is_error:
                        graph.evaluate()
                finally:
                    drop_lost(containers, graph.value_of if is_error else refuse)
        raise
    finally:
        graph.locks.end()
