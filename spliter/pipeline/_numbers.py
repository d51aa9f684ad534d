"""Evaluate the numbers of frames at once: no function of pandas takes a lazy one for a number.

Only the calls run that a number follows from. What has all rows of a frame is stored, if the
program holds it; rows of filters and merges are not, as most programs read some columns of them, or
none after the number. Their calls run on copies, and wait for others::

    paid = bills[bills["paid"]]      waits: no column is copied but the one that is read
    paid["sum"].mean()               runs on batches, with the filter
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from spliter.pipeline._annotations.rows import RowsCall
from spliter.pipeline._graph import Call, Graph, Node
from spliter.pipeline._lazy import Lazy, compute
from spliter.pipeline._planner import with_makers

MAX_RUNS: Final = 1
"""How often a call runs for numbers before its result is stored."""

with np.errstate(all="ignore"):
    _IGNORED: Final = np.geterr()


def number(value: Lazy) -> Any:
    """Return the value of a lazy number.

    Parameters
    ----------
    value : Lazy
    """
    graph, node = value._graph.root(), value._node
    with graph.lock:
        calls = [] if node.call is None else with_makers([node.call])
        if not calls or graph.writes_wait or not all(map(_may_repeat, calls)):
            return compute(value)
        copies = _Copies(calls)
        alone = Graph(returns=True)
        alone.pending = [*copies.calls]
        kept = [old for old in copies.made if old is node or _has_all_rows(old)]
        held = [Lazy(copies.made[old], alone) for old in kept]
    try:
        results = {old: compute(each) for old, each in zip(kept, held, strict=True)}
    except Exception:  # noqa: BLE001 -- the first call of the program that fails raises
        return compute(value)
    with graph.lock:
        for call in calls:
            call.runs += 1
            call.errstate = _IGNORED  # it has warned
            nodes = [old for _, old in call.live_outputs()]
            if results.keys() >= {*nodes}:
                call.has_run = True
                for old in nodes:
                    old.finish(results[old])
                    old.before = None
        graph.pending = [call for call in graph.pending if not call.has_run]
        graph.settle_views()
    return results[node]


def _may_repeat(call: Call) -> bool:
    """Return whether a call may run once more: a function of the user's may have side effects."""
    own = isinstance(call.annotation, RowsCall) or call.annotation.scratch
    return own and call.runs < MAX_RUNS and not (call.writes or call.into)


def _has_all_rows(node: Node) -> bool:
    return node.is_held and node.meta is not None and node.meta.is_known


class _Copies:
    """Copies of calls, whose results the program does not hold.

    Parameters
    ----------
    calls : sequence of Call
        In program order.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.made: dict[Node, Node] = {}
        self.calls = [self._copied(call) for call in calls]

    def _copied(self, call: Call) -> Call:
        copied = copy.copy(call)
        copied.args, copied.kwargs = call.filled(lambda node: self.made.get(node, node))
        copied.inputs = tuple([self.made.get(node, node) for node in call.inputs])
        olds = dict(call.live_outputs())
        news = copied.make_outputs(
            olds[at].meta if at in olds else None for at in range(len(call.outputs))
        )
        self.made |= {old: news[at] for at, old in olds.items()}
        return copied
