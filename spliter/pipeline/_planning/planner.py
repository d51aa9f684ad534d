"""Group calls into stages, each of which runs on one batch after the other. Pure functions.

A stage is cut where split types differ: all its values are cut at the same items, and a value that
a call needs whole was made by an earlier stage::

    x - x.mean(axis=0)      stage 1   mean        x: Rows        result: Reduction
                            stage 2   subtract    x: Rows        mean: broadcast
"""

from __future__ import annotations

import collections
import heapq
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta
from spliter.pipeline._calls.split_types import Reduction, broadcast, share_of
from spliter.pipeline._options import Options, plain_nbytes
from spliter.pipeline._planning.overlap import Access, Accesses, Key, Memory
from spliter.pipeline._planning.stages import Plan, Stage, whole_typing
from spliter.pipeline._planning.storing import with_stored

LAST: Final = 2**62
"""Number of the stage of postponed calls, which is after all others."""

SMALL: Final = 64
"""Times that the largest value has the elements of one that is small: less than 2% of the work."""


def needed(pending: Sequence[Call]) -> list[Call]:
    """Return the calls whose results somebody still holds, or that change something.

    Parameters
    ----------
    pending : sequence of Call

    Returns
    -------
    list of Call
        In program order, with those whose results they need.
    """
    wanted = [
        call
        for call in pending
        if call.writes or not call.outputs or any(node.is_held for _, node in call.live_outputs())
    ]
    return with_makers(wanted)


def with_makers(wanted: Sequence[Call]) -> list[Call]:
    """Return calls and those whose results they need, in program order.

    Parameters
    ----------
    wanted : sequence of Call
    """
    chosen, found = {*wanted}, [*wanted]
    for call in found:  # and those that the loop adds
        makers = {node.call for node in call.inputs if node.call and not node.call.has_run}
        found += makers - chosen
        chosen |= makers
    return sorted(chosen, key=operator.attrgetter("number"))


def plan_for(options: Options, calls: Sequence[Call]) -> Plan:
    """Plan calls, unless all their values are small: these run one after the other.

    Parameters
    ----------
    options : Options
    calls : sequence of Call
        In program order.
    """
    if not are_small(options, calls):
        return plan(calls)
    small = [(call, whole_typing(call)) for call in calls]
    return Plan([Stage(None, "all values are small", small)] if small else [], [])


def are_small(options: Options, calls: Sequence[Call]) -> bool:
    """Return whether all values of calls are so small that batches of them do not pay.

    Parameters
    ----------
    options : Options
    calls : sequence of Call
    """
    seen: set[Node] = set()  # to count the bytes of a frame takes as long as a call of pandas
    for call in calls:
        nodes = {*call.inputs, *dict(call.live_outputs()).values()} - seen
        if not all(options.runs_plain(_share(node)) for node in nodes):
            return False
        seen |= nodes
    return True


def _share(node: Node) -> float:
    """Return how large a value is, as far as that is known, as :func:`.share_of` does."""
    if not node.is_pending:
        return share_of(node.data, node.type)
    if isinstance(node.meta, ArrayMeta):
        return (_size(node) or 0) * node.meta.dtype.itemsize / plain_nbytes()
    return 0.0


def plan(calls: Sequence[Call]) -> Plan:
    """Place each call in the earliest stage that its inputs and its memory allow.

    Parameters
    ----------
    calls : sequence of Call
        In program order; inputs of pending calls are results of calls before them.
    """
    stages: list[Stage] = []
    stage_of: dict[Call, int] = {}
    postponed: list[Call] = []
    memory = Memory(calls)
    last: dict[Key, int] = collections.defaultdict(int)
    raising = writing = -1  # the last stages with a call that may raise, and with a change
    writers = any(call.writes for call in calls)
    reduced, small = _reduced_and_small(calls)
    for call in _with_first(reduced, calls) if small and not writers else calls:
        accesses, may_fail = memory.accesses(call), call.may_fail
        numbers = [stage_of.get(node.call, LAST) for node in call.inputs if node.call is not None]
        for access in accesses:
            numbers += [last[key] for key in access.opposed]
        # Where the body catches an error, arrays are changed up to the failed call and not half.
        if may_fail:
            numbers.append(writing + 1)
        if raising >= 0 and call.changes:
            numbers.append(raising + 1)
        earliest = max([0, *numbers])
        if earliest >= LAST:
            found = None
        elif call in small or (call.writes and call.may_raise):
            found = _place_whole(stages, earliest, call)
        else:
            found = _place(stages, earliest, call, accesses)
        if found is None:
            number = LAST
            postponed.append(call)
        else:
            number, typing = found
            stages[number].add(call, typing, accesses)
        stage_of[call] = number
        raising = max(raising, number) if may_fail else raising
        writing = max(writing, number) if call.writes else writing
        for access in accesses:
            last.update({key: max(last[key], number) for key in access.keys})
    return Plan(with_stored(stages, postponed), postponed)


def _reduced_and_small(calls: Sequence[Call]) -> tuple[set[Call], set[Call]]:
    """Return the calls whose results are small beside other values, and those all of whose are.

    To cut the latter would cut large values at the same, few items.
    """
    sizes = {node: _size(node) for call in calls for node in call.inputs}
    limit = max((size or 0 for size in sizes.values()), default=0) // SMALL
    few = {node for node, size in sizes.items() if size is not None and size <= limit}
    if not few:
        return set(), set()
    reduced = {
        call
        for call in calls
        if not call.writes
        and all((_size(node) or LAST) <= limit for _, node in call.live_outputs())
    }
    return reduced, {call for call in reduced if few.issuperset(call.inputs)}


def _with_first(chosen: set[Call], calls: Sequence[Call]) -> Iterator[Call]:
    """Yield calls after those they need, some of them as early as possible.

    A large call that needs a small value then joins the stage of its other operands.
    """
    waiting: dict[Call, int] = {}
    users: dict[Call, list[Call]] = {}
    for call in calls:
        makers = {node.call for node in call.inputs if node.call is not None}
        waiting[call] = len(makers)
        for each in makers:
            users.setdefault(each, []).append(call)
    ready = [(call not in chosen, call.number, call) for call in calls if not waiting[call]]
    heapq.heapify(ready)
    while ready:
        *_, call = heapq.heappop(ready)
        yield call
        for user in users.get(call, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (user not in chosen, user.number, user))


def _place_whole(stages: list[Stage], first: int, call: Call) -> tuple[int, Typing]:
    """Return a stage in which a call runs once, a new one if need be."""
    for number in range(first, len(stages)):
        if stages[number].is_whole:
            return number, whole_typing(call)
    small = "its values are small"
    stages.append(Stage(None, f"{call.name} may raise, half way" if call.writes else small))
    return len(stages) - 1, whole_typing(call)


def _size(node: Node) -> int | None:
    """Return the number of elements of an array, if it is known."""
    if not isinstance(node.meta, ArrayMeta) or not node.meta.is_known:
        return None
    return math.prod(cast(tuple[int, ...], node.meta.shape))


def _place(
    stages: list[Stage], first: int, call: Call, accesses: Sequence[Access]
) -> tuple[int, Typing] | None:
    """Return a stage for a call, a new one if need be; ``None`` if its inputs must run before."""
    for number in range(first, len(stages)):
        if typing := _fitting(stages[number], call, accesses):
            return number, typing
    if not all(map(_is_plannable, call.inputs)):
        return None
    reason = _why_not(stages[-1], call, accesses) if stages else ""
    typing = next(_typings_alone(call, accesses), None) or whole_typing(call)
    stages.append(Stage(typing.length, reason))
    return len(stages) - 1, typing


def _fitting(stage: Stage, call: Call, accesses: Sequence[Access]) -> Typing | None:
    known = tuple([stage.made.get(node) for node in call.inputs])
    if not all(node in stage.made or _is_plannable(node) for node in call.inputs):
        return None
    if stage.is_whole:
        return None if any(_typings_alone(call, accesses)) else whole_typing(call)
    for typing in call.annotation.typings(call, known):
        if (
            typing.agrees_with(known)
            and typing.length in (None, stage.length)
            and _is_aligned(accesses, typing, stage.accesses)
        ):
            return typing
    return None


def _typings_alone(call: Call, accesses: Sequence[Access]) -> Iterator[Typing]:
    """Yield the ways to cut a call at the begin of a stage."""
    for typing in call.annotation.typings(call, (None,) * len(call.inputs)):
        if _is_aligned(accesses, typing, Accesses()):
            yield typing


def _is_plannable(node: Node) -> bool:
    """Return whether the length of a value is known."""
    return node.call is None or (node.meta is not None and node.meta.is_known)


def _is_aligned(accesses: Iterable[Access], typing: Typing, others: Accesses) -> bool:
    """Return whether pieces of a call share memory with pieces of the same items only."""
    own = Accesses()
    for access in accesses:
        kind = typing.inputs[access.at]
        if others.has(access, kind):  # compared when it was added
            continue
        conflicts = itertools.chain(own.conflicts(access), others.conflicts(access))
        if any(found != (access.view, kind) for found in conflicts):
            return False
        if access.is_written and kind is broadcast:
            return False
        own.add(access, kind)
    return True


def _why_not(stage: Stage, call: Call, accesses: Iterable[Access]) -> str:
    """Say why a call cannot be part of a stage."""
    for node in call.inputs:
        kind = stage.made.get(node)
        if node.call is not None and isinstance(kind, Reduction):
            return f"{call.name} needs the whole result of {node.call.place}"
    if not any(call.annotation.typings(call, (None,) * len(call.inputs))):
        return f"{call.name} is not annotated for these arguments, and runs on whole values"
    if any(any(stage.accesses.conflicts(access)) for access in accesses):
        return f"{call.name} accesses memory that is written in another order"
    for node in call.inputs:
        kind = stage.made.get(node)
        if node.call is not None and kind is not None:
            return f"{call.name} cuts the result of {node.call.name} in another way than {kind}"
    return f"{call.name} has another number of items"
