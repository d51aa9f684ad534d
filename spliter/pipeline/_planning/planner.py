"""Choose the calls that run next: those of one stage, on one batch after the other. Pure functions.

A stage is cut where split types differ: all its values are cut at the same items, and a value that
a call needs whole was made by an earlier stage::

    x - x.mean(axis=0)      stage 1   mean        x: Rows        result: Reduction
                            stage 2   subtract    x: Rows        mean: broadcast

Each stage is planned when those before it have run, so that all lengths are known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.split_types import share_of
from spliter.pipeline._options import Options, plain_nbytes
from spliter.pipeline._planning.stages import Stage, whole_typing

ALL_SMALL: Final = "all values are small"

SMALL: Final = 64
"""Times that the largest value has the elements of one that is small: less than 2% of the work."""


def next_stage(calls: Sequence[Call], kept: Collection[Node], options: Options) -> Stage:
    """Return the calls that run next."""
    if are_small(calls, options):
        stage = Stage(None, ALL_SMALL)
        for call in calls:
            stage.add(call, whole_typing(call))
    else:
        stage = _small_stage(calls) or _open(calls)
    chosen = {call for call, _ in stage.calls}
    used = {node for call in calls if call not in chosen for node in call.inputs}
    stage.stored = [node for node in stage.made if node in kept or node in used]
    return stage


def are_small(calls: Sequence[Call], options: Options) -> bool:
    """Return whether all values of calls are so small that batches of them do not pay."""
    shares = [_share(node) for call in calls for node in call.inputs]
    shares += [_share(node) for call in calls for _, node in call.live_outputs()]
    return options.runs_plain(max(shares, default=0.0))


def _share(node: Node) -> float:
    if node.data is not None:
        return share_of(node.data, node.type)
    if node.meta is None:
        return 0.0
    return (_size(node) or 0) * node.meta.dtype.itemsize / plain_nbytes()


def _size(node: Node) -> int | None:
    """Return the number of elements of an array, if it is known."""
    if node.meta is None or not node.meta.is_known:
        return None
    return math.prod(extent or 0 for extent in node.meta.shape)


def _small_stage(calls: Sequence[Call]) -> Stage | None:
    """Return calls all of whose values are small beside others, if they can run.

    To cut them would cut large values at the same, few items; and a large call that needs a small
    value joins the stage of its other operands, if that exists.
    """
    sizes = {node: _size(node) for call in calls for node in call.inputs}
    limit = max((size or 0 for size in sizes.values()), default=0) // SMALL
    stage = Stage(None, "its values are small beside others")
    for call in calls:
        nodes = (*call.inputs, *[node for _, node in call.live_outputs()])
        is_small = all((size := _size(node)) is not None and size <= limit for node in nodes)
        if is_small and not call.writes and _can_run(call, stage):
            stage.add(call, whole_typing(call))
    return stage if stage.calls else None


def _can_run(call: Call, stage: Stage) -> bool:
    """Return whether all inputs exist, or are made by a stage."""
    return all(not node.is_pending or node in stage.made for node in call.inputs)


def _open(calls: Sequence[Call]) -> Stage:
    """Return the stage of the first call, and of all others that can be cut like it."""
    first, *others = calls
    typing = next(iter(first.annotation.typings(first, (None,) * len(first.inputs))), None)
    if typing is None:
        stage = Stage(None, "it is not cut, for these arguments")
        stage.add(first, whole_typing(first))
        return stage
    stage = Stage(typing.length)
    stage.add(first, typing)
    for call in others:
        if _can_run(call, stage) and (found := _fitting(stage, call)):
            stage.add(call, found)
    return stage


def _fitting(stage: Stage, call: Call) -> Typing | None:
    known = tuple([stage.made.get(node) for node in call.inputs])
    for typing in call.annotation.typings(call, known):
        if typing.length in (None, stage.length) and typing.agrees_with(known):
            return typing
    return None


def why_not(stage: Stage, call: Call) -> str:
    """Say why a call cannot be part of a stage that has run before."""
    for node in call.inputs:
        kind = stage.made.get(node)
        if kind is not None and kind.combines:
            return f"{call.name} needs the whole result of a call before"
    if any(node in stage.made for node in call.inputs):
        return f"{call.name} cuts a result in another way"
    return f"{call.name} has another number of items"
