"""Run the calls of one pass of a pipeline on the blocks of a partition, in a task.

The client sends a :class:`Pass` with each task. It refers to values by numbers, and the task has a
result for each value that stays at the partition and for each that is combined.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter.backend.contents import count_rows
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.graph import RUNNING, Graph
from spliter.pipeline._calls.split_types import (
    Broadcast,
    Groups,
    Nothing,
    Reduction,
    SplitType,
    first_step,
    nbytes_of,
)
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._running.evaluate import evaluate
from spliter.pipeline._values.lazy import Lazy, is_frame

COMBINED: Final = (Reduction, Groups, Broadcast)
"""Types of results that the client combines; those of others stay at the partitions."""

FAILED: Final = "_spliter_call"
"""Attribute of errors of tasks: the number of the call that has raised it."""

MAX_NBYTES: Final = 2**20
"""Of the first rows of a collection, which are sent to the client."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a pass, by its number."""

    number: int


@dataclass(frozen=True)
class PassCall:
    """A call, as it is sent to partitions; values are :class:`Ref` objects."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    annotation: Any
    errstate: Any
    number: int
    """In program order."""
    outputs: tuple[int | None, ...]
    into: Ref | None


@dataclass(frozen=True)
class Pass:
    """What one task per partition computes.

    Parameters
    ----------
    members : tuple of int
        Numbers of the collections of the Split.
    layouts : tuple of str or dict
        Their dtypes and widths, by which the calls were planned.
    carried : tuple of int
        Numbers of the values that the pass before has kept at the partition.
    wholes : dict of int to object
        Values that every partition gets, by their numbers.
    calls : tuple of PassCall
    rows : tuple of int
        Results that stay at the partition, one array or frame for each block.
    reductions : tuple of (int, Reduction)
        Results that are combined, over blocks without rows left out.
    """

    members: tuple[int, ...]
    layouts: tuple[Any, ...]
    carried: tuple[int, ...]
    wholes: dict[int, Any]
    calls: tuple[PassCall, ...]
    rows: tuple[int, ...]
    reductions: tuple[tuple[int, Reduction], ...]


class Run(NamedTuple):
    """The partial result of blocks that follow each other; ``Nothing`` if they have no rows."""

    first: int
    last: int
    partial: Any


class Partial(Reduction):
    """A reduction whose result is the partial one."""

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine partial results."""
        return self.combine(pieces)


@dataclass(frozen=True)
class Unfinished:
    """Annotation of a reduction whose result is the partial one."""

    is_users = False  # no call in a task changes arrays

    annotation: Any
    scratch: bool
    outputs: int
    takes_start: bool
    has_rows: bool
    """Whether another result has rows."""

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Any:
        """Return the typings of the reduction, without its last step."""
        for typing in self.annotation.typings(call, known):
            kinds = [kind for kind in typing.outputs if isinstance(kind, Reduction)]
            if len(kinds) < len(typing.outputs):
                continue  # it cuts along another axis, and partial results have no axes
            outputs = [
                Partial(
                    None,
                    kind.merge_two,
                    takes_start=kind.takes_start,
                    commutative=kind.commutative,
                )
                for kind in kinds
            ]
            yield Typing(typing.inputs, tuple(outputs), typing.length)

    def metas(self, call: Call) -> Any:
        """Return nothing of a partial result, which may be a tuple."""
        return self.annotation.metas(call) if self.has_rows else (None,) * self.outputs


def sent(
    call: Call, typing: Typing, number_of: Callable[[Node], Ref], numbers: dict[Node, int]
) -> PassCall:
    """Return a call in the form that is sent to partitions."""
    args, kwargs = call.filled(number_of)
    into = None if call.into is None else number_of(call.into)
    pending = {at: node for at, node in call.live_outputs() if node.is_pending}
    for node in pending.values():
        numbers.setdefault(node, len(numbers))
    outputs = [numbers[pending[at]] if at in pending else None for at in range(len(call.outputs))]
    fn = (typing.is_checked and typing.fn) or first_step(call.fn, typing.outputs)
    annotation: Any = call.annotation
    if typing.is_checked:
        annotation = annotation.sent()
    has_rows = not all(isinstance(kind, COMBINED) for kind in typing.outputs)
    if kinds := [kind for kind in typing.outputs if isinstance(kind, Reduction)]:
        takes_start = any(kind.takes_start for kind in kinds)
        annotation = Unfinished(annotation, annotation.scratch, len(outputs), takes_start, has_rows)
    return PassCall(fn, args, kwargs, annotation, call.errstate, call.number, tuple(outputs), into)


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
        A list of arrays or frames, one per block, for each result with rows; then a list of
        :class:`Run` for each reduction.
    """
    rows: list[list[Any]] = [[] for _ in spec.rows]
    partials: list[list[Run]] = [[] for _ in spec.reductions]
    starts = partition.indexes.item_starts
    first_call = min((call.number for call in spec.calls), default=0)
    errors: list[Exception] = []
    # The engine runs one task per core.
    token = CURRENT.set(replace(options, threads=1) if options.threads == "auto" else options)
    running = RUNNING.set(Graph(returns=True))
    try:
        for number, (index, block) in enumerate(partition.items()):
            members = _members(block)
            _check_layouts(members, spec.layouts, index)
            values = spec.wholes | dict(zip(spec.members, members, strict=True))
            kept_before = zip(spec.carried, carried or (), strict=False)
            values.update((at, kept[number]) for at, kept in kept_before)
            start = 0 if starts is None else int(starts[number])
            try:
                found = _run_block(spec, values, start, has_rows=count_rows(members[0]) > 0)
            except Exception as error:
                if getattr(error, FAILED, first_call) == first_call:
                    raise
                errors.append(error)  # an earlier call may fail on a later block
            if errors:
                continue
            for kept, at in zip(rows, spec.rows, strict=True):
                kept.append(found[at])
            for parts, (at, _) in zip(partials, spec.reductions, strict=True):
                parts.append(Run(index[0], index[0], found.get(at, Nothing())))
        if errors:
            raise min(errors, key=operator.attrgetter(FAILED))
        pairs = zip(spec.reductions, partials, strict=True)
        return (*rows, *[combine_runs(kind, runs) for (_, kind), runs in pairs])
    finally:
        errors.clear()  # they refer to this frame
        RUNNING.reset(running)
        CURRENT.reset(token)


def layout_of(value: Any) -> Any:
    """Return what all blocks have in common, as text; of frames the dtype of each column."""
    if not hasattr(type(value), "dtypes"):
        return f"{value.dtype} and rows of shape {value.shape[1:]}"
    if value.ndim == 1:
        return _without_categories(value.dtype)
    return dict(zip(value.columns, map(_without_categories, value.dtypes), strict=True))


def _without_categories(dtype: Any) -> str:
    return "category" if hasattr(dtype, "categories") else str(dtype)


def _check_layouts(members: tuple[Any, ...], layouts: tuple[Any, ...], index: Any) -> None:
    for member, planned in zip(members, layouts, strict=True):
        found = layout_of(member)
        if 0 in member.shape or found == planned:
            continue
        here, there = found, planned
        if isinstance(planned, dict) and isinstance(found, dict):
            names = [name for name in planned | found if found.get(name) != planned.get(name)]
            here, there = ({name: each.get(name) for name in names} for each in (found, planned))
        raise InvalidArgumentError(
            f"block {index} has dtype {here}, and the pipeline was planned for {there}, which the "
            "collection names or its first block has; convert the blocks to one dtype and width"
        )


def combine_runs(kind: Reduction, runs: Iterable[Run]) -> list[Run]:
    """Combine the partial results of blocks that follow each other; if commutative, of all.

    Parameters
    ----------
    kind : Reduction
    runs : iterable of Run
        In any order, of different blocks.

    Examples
    --------
    >>> import operator
    >>> joined = Reduction(merge=operator.add)
    >>> combine_runs(joined, [Run(3, 3, "d"), Run(0, 0, "a"), Run(1, 1, "b")])
    [Run(first=0, last=1, partial='ab'), Run(first=3, last=3, partial='d')]
    """
    combined: list[Run] = []
    for run in sorted(runs, key=lambda run: run.first):
        before = combined[-1] if combined else None
        if before is None or not (kind.commutative or before.last + 1 == run.first):
            combined.append(run)
        else:
            partial = kind.combine([before.partial, run.partial])
            combined[-1] = Run(before.first, run.last, partial)
    return combined


def _run_block(spec: Pass, values: dict[int, Any], start: int, *, has_rows: bool) -> dict[int, Any]:
    """Run the calls of a pass on the block at a row; return what is wanted, by its number."""
    graph = Graph(returns=True)
    numbers: dict[int | None, int] = {}
    nodes: dict[Any, Node] = {at: graph.source(value) for at, value in values.items()}
    wanted = {*spec.rows, *(at for at, _ in spec.reductions)}
    held = []

    def filled(value: Any) -> Any:
        return nodes[value.number] if isinstance(value, Ref) else value

    for each in spec.calls:
        fn = each.fn
        if isinstance(each.annotation, Unfinished):
            if not (has_rows or each.annotation.has_rows):
                continue
            if each.annotation.takes_start:
                fn = functools.partial(_at, start, fn)
        args = tuple(map(filled, each.args))
        kwargs = {name: filled(value) for name, value in each.kwargs.items()}
        call = Call(fn, args, kwargs, each.annotation, into=filled(each.into))
        call.errstate = each.errstate
        numbers[call.number] = each.number
        made = call.make_outputs(each.annotation.metas(call))
        nodes.update(zip(each.outputs, made, strict=True))
        held += [
            Lazy(node, graph) for at, node in zip(each.outputs, made, strict=True) if at in wanted
        ]
        graph.pending.append(call)
    try:
        evaluate(graph)
    except Exception as error:
        if graph.failed_number in numbers:
            with contextlib.suppress(AttributeError):  # errors of some classes refuse attributes
                setattr(error, FAILED, numbers[graph.failed_number])
        raise
    return {at: nodes[at].data for at in wanted if at in nodes}


def _at(first: int, partial: Any, *args: Any, start: int = 0, **kwargs: Any) -> Any:
    """Call the first step of a reduction on a batch of the block that begins at a row."""
    return partial(*args, start=first + start, **kwargs)


def partials(partition: Partition, result: tuple[Any, ...], first: int) -> Any:
    """Return the partial results of a pass; runs where they are."""
    return result[first:]


def ended(partition: Partition, result: Any) -> None:
    """Return nothing, once a pass has ended; runs where it has."""


def rows_of_result(partition: Partition, result: tuple[Any, ...], output: int) -> int:
    """Return the number of rows of a result of a pass; runs where it is."""
    return sum(map(count_rows, result[output]))


def first_row(partition: Partition, result: tuple[Any, ...], output: int) -> Any:
    """Return the first row of a result of a pass, or nothing if it is no array or frame."""
    blocks = result[output]
    block = next((each for each in blocks if getattr(each, "size", 0)), blocks[0])
    return block[:1] if _is_array_or_frame(block) else None


def with_no_rows(
    partition: Partition, result: tuple[Any, ...], output: int, empty: Any
) -> tuple[Any, ...]:
    """Return the results of a pass, with a block of one in place of its blocks without rows."""
    blocks = [
        empty if _is_array_or_frame(each) and not len(each) else each for each in result[output]
    ]
    return (*result[:output], blocks, *result[output + 1 :])


def _is_array_or_frame(value: Any) -> bool:
    return (isinstance(value, np.ndarray) and value.ndim > 0) or is_frame(value)


def example_of_result(partition: Partition, result: tuple[Any, ...], output: int) -> Any:
    """Return no rows of a result of a pass, or its type if it has none; runs where it is."""
    blocks = result[output]
    block = next((each for each in blocks if getattr(each, "size", 0)), blocks[0])
    return block[:0] if getattr(block, "ndim", 0) else type(block).__name__


def merge_pair(kind: SplitType, one: Any, other: Any) -> Any:
    """Merge two results of blocks."""
    return kind.merge([one, other])


def combine(
    kinds: Sequence[Reduction], one: Sequence[list[Run]], other: Sequence[list[Run]]
) -> list[list[Run]]:
    """Combine the partial results of the blocks of two partitions."""
    running = RUNNING.set(Graph(returns=True))
    try:
        return [
            combine_runs(kind, (*runs, *others))
            for kind, runs, others in zip(kinds, one, other, strict=True)
        ]
    finally:
        RUNNING.reset(running)


def no_rows(partition: Partition) -> tuple[Any, ...]:
    """Return no rows of each member, of the first block; runs at its location."""
    return tuple(each[:0] for each in _members(next(iter(partition))))


def first_rows(partition: Partition, most: int) -> tuple[Any, ...] | None:
    """Return the first rows of each member, or nothing; runs at their location."""
    for members in map(_members, partition):
        if rows := len(members[0]):
            fitting = MAX_NBYTES * rows // max(1, *map(nbytes_of, members))
            return tuple(each[: max(1, min(most, fitting))] for each in members)
    return None


def _members(block: Any) -> tuple[Any, ...]:
    """Return the blocks of aligned collections."""
    return block if isinstance(block, tuple) else (block,)
