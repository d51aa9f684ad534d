"""Evaluate numbers at once: programs, and the compiled code of pandas, use them as such.

Only the calls run that a number follows from, as copies that store little: no value that the same
line makes, and no rows of filters and merges, of which most programs read some columns, or none
after the number. For a second number they are stored, if the program holds them::

    paid = bills[bills["paid"]]      waits: no column is copied but the one that is read
    paid["sum"].mean()               runs on batches, with the filter
    paid["sum"].max()                runs on the rows of the filter, once these are stored
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from spliter.pipeline._annotations.rows import RowsCall
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._options import CURRENT
from spliter.pipeline._planning.planner import are_small, needed, with_makers
from spliter.pipeline._running.evaluate import claim, evaluate
from spliter.pipeline._running.interrupts import is_interrupt
from spliter.pipeline._values.lazy import Lazy, compute

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
    node = value._node
    with value._graph as graph:  # meanwhile no other thread may change what is read
        claim(graph)
        value._graph.root()  # raises if another thread has lost it
        calls = with_makers([node.call] if node.call else [])
        others = {*graph.pending} - {*calls}
        keeps_order = graph.writes_wait or any(call.may_raise for call in others)
        if keeps_order or are_small(CURRENT.get(), calls) or not all(map(_is_pure, calls)):
            return compute(value)
        if any(call.runs >= MAX_RUNS for call in calls):
            _evaluate_others(graph, node)
            calls = graph.pending = with_makers(calls[-1:])
        copies = _Copies(calls)
        alone = Graph(returns=True)
        alone.is_trial, alone.pending = True, [*copies.calls]
        stored = [old for old in copies.made if _has_all_rows(old) and not _passes(old, calls[-1])]
        held = {old: Lazy(copies.made[old], alone) for old in (node, *stored)}
        try:
            results = {old: compute(each) for old, each in held.items()}
        except BaseException as error:
            if is_interrupt(error):
                raise
            return compute(value)  # the first call of the program that fails raises
        for call in calls:
            call.runs += 1
            call.errstate = _IGNORED  # it has warned
            nodes = [old for _, old in call.live_outputs()]
            if results.keys() >= {*nodes}:
                call.has_run = True
                for old in nodes:
                    old.finish(results[old])
                    old.before = None
        graph.pending = needed([call for call in graph.pending if not call.has_run])
        if not graph.pending:
            graph.locks.end()
        graph.settle_views()
    return results[node]


def _is_pure(call: Call) -> bool:
    """Return whether a call may run once more: a function of the user's may have side effects."""
    own = isinstance(call.annotation, RowsCall) or call.annotation.scratch
    return own and not (call.writes or call.into)


def _evaluate_others(graph: Graph, node: Node) -> None:
    """Evaluate and store what the program holds besides a number."""
    held, node.lazy = node.lazy, None
    try:
        evaluate(graph)
    finally:
        node.lazy = held


def _passes(node: Node, last: Call) -> bool:
    """Return whether a value is one that the line of the last call makes: its method holds it."""
    return node in last.inputs and node.call is not None and node.call.site[:2] == last.site[:2]


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
