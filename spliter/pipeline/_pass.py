"""Run the calls of one pass of a pipeline on the blocks of a partition, in a task.

The client sends a :class:`Pass` with each task. It refers to values by numbers, and the task has a
result for each value that stays at the partition and for each that is combined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spliter._partition import Partition
from spliter.backend.contents import count_rows
from spliter.pipeline._evaluate import evaluate, single_threaded
from spliter.pipeline._graph import Call, Graph, Typing
from spliter.pipeline._lazy import Lazy
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._types import Reduction, SplitType

UNUSED = -1
"""Number of results that nothing uses."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a pass, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A value that every partition gets."""

    data: Any


@dataclass(frozen=True)
class PassCall:
    """A call, as it is sent to partitions; values are :class:`Ref` and :class:`Whole` objects."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    annotation: Any
    errstate: Any
    outputs: tuple[int, ...]
    into: Ref | None


@dataclass(frozen=True)
class Pass:
    """What one task per partition computes.

    Parameters
    ----------
    members : tuple of int
        Numbers of the collections of the Split.
    carried : tuple of int
        Numbers of the values that the pass before has kept at the partition.
    calls : tuple of PassCall
    rows : tuple of int
        Results that stay at the partition, one array for each block.
    reductions : tuple of (int, Reduction)
        Results that are combined, over blocks without rows left out.
    """

    members: tuple[int, ...]
    carried: tuple[int, ...]
    calls: tuple[PassCall, ...]
    rows: tuple[int, ...]
    reductions: tuple[tuple[int, Reduction], ...]


@dataclass(frozen=True)
class Unfinished:
    """Annotation of a reduction whose result is the partial one."""

    annotation: Any
    scratch: bool
    outputs: int

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Any:
        """Return the typings of the reduction, without its last step."""
        for typing in self.annotation.typings(call, known):
            outputs = tuple(
                Reduction(None, kind.merge_two) if isinstance(kind, Reduction) else kind
                for kind in typing.outputs
            )
            yield Typing(typing.inputs, outputs, typing.length)

    def metas(self, call: Call) -> Any:
        """Return nothing: a partial result may be a tuple."""
        return (None,) * self.outputs


def run_pass(partition: Partition, spec: Pass, options: Options, carried: Any = None) -> Any:
    """Run a pass on the blocks of a partition; the body of a task.

    Parameters
    ----------
    partition : Partition
    spec : Pass
    options : Options
    carried : tuple or None
        Result of the pass before.

    Returns
    -------
    tuple
        A list of arrays, one per block, for each result with rows; then a partial result, or
        ``None`` without rows, for each reduction.
    """
    rows: list[list[Any]] = [[] for _ in spec.rows]
    partials: list[list[Any]] = [[] for _ in spec.reductions]
    token = CURRENT.set(single_threaded(options))
    try:
        for number, (_, block) in enumerate(partition.items()):
            members = block if isinstance(block, tuple) else (block,)
            values = dict(zip(spec.members, members, strict=True))
            kept_before = zip(spec.carried, carried or (), strict=False)
            values.update((at, kept[number]) for at, kept in kept_before)
            found = _run_block(spec, values, has_rows=count_rows(members[0]) > 0)
            for kept, at in zip(rows, spec.rows, strict=True):
                kept.append(found[at])
            for parts, (at, _) in zip(partials, spec.reductions, strict=True):
                if at in found:
                    parts.append(found[at])
    finally:
        CURRENT.reset(token)
    combined = [
        kind.combine(parts) if parts else None
        for parts, (_, kind) in zip(partials, spec.reductions, strict=True)
    ]
    return (*rows, *combined)


def _run_block(spec: Pass, values: dict[int, Any], *, has_rows: bool) -> dict[int, Any]:
    """Run the calls of a pass on one block; return what is wanted, by its number."""
    graph = Graph(returns=True)
    nodes = {number: graph.source(value) for number, value in values.items()}
    wanted = {*spec.rows, *(at for at, _ in spec.reductions)}
    held = []

    def filled(value: Any) -> Any:
        if isinstance(value, Ref):
            return nodes[value.number]
        return graph.source(value.data) if isinstance(value, Whole) else value

    for each in spec.calls:
        if isinstance(each.annotation, Unfinished) and not has_rows:
            continue
        args = tuple(map(filled, each.args))
        kwargs = {name: filled(value) for name, value in each.kwargs.items()}
        into = nodes[each.into.number] if each.into else None
        call = Call(each.fn, args, kwargs, each.annotation, into=into)
        call.errstate = each.errstate
        made = call.make_outputs(each.annotation.metas(call))
        nodes.update(zip(each.outputs, made, strict=True))
        held += [
            Lazy(node, graph) for at, node in zip(each.outputs, made, strict=True) if at in wanted
        ]
        graph.pending.append(call)
    evaluate(graph)
    return {at: nodes[at].data for at in wanted if at in nodes}
