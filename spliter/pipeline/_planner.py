"""Group calls into stages, each of which runs on one batch after the other. Pure functions.

A stage is cut where split types differ: all its values are cut at the same items, and a value that
a call needs whole was made by an earlier stage::

    x - x.mean(axis=0)      stage 1   mean        x: Rows        result: Reduction
                            stage 2   subtract    x: Rows        mean: broadcast
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from spliter.pipeline._graph import ArrayMeta, Call, Node, Typing
from spliter.pipeline._options import Options
from spliter.pipeline._overlap import conflicts, same_view
from spliter.pipeline._types import Reduction, SplitType, broadcast, nbytes_of


@dataclass(eq=False)
class Stage:
    """Calls that run one after the other on each batch.

    Parameters
    ----------
    length : int or None
        Items that are cut into batches; ``None`` if the calls run once, on whole values.
    reason : str
        Why it is not part of an earlier stage.
    """

    length: int | None
    reason: str
    calls: list[tuple[Call, Typing]] = field(default_factory=list)
    results: list[list[tuple[int, Node]]] = field(default_factory=list)
    """Of each call: the results that anything still refers to, with their numbers."""

    made: dict[Node, SplitType] = field(default_factory=dict)
    stored: list[Node] = field(default_factory=list)
    """Results that the program holds or a later stage needs."""

    has_writes: bool = False
    """Whether a call changes a value in place."""

    @property
    def is_whole(self) -> bool:
        """Whether its calls run on whole values."""
        return self.length is None

    @property
    def is_mergeable(self) -> bool:
        """Whether the pieces of all results that are stored make the results."""
        return all(getattr(self.made[node], "is_mergeable", True) for node in self.stored)

    @property
    def writes(self) -> list[Node]:
        """Values that exist and that its calls change in place."""
        return [node for call, _ in self.calls for node in call.writes]

    def add(self, call: Call, typing: Typing) -> None:
        """Append a call."""
        self.calls.append((call, typing))
        self.results.append(call.live_outputs())
        self.has_writes |= bool(call.writes)
        for number, node in self.results[-1]:
            self.made[node] = typing.outputs[number]


@dataclass(frozen=True)
class Plan:
    """Stages in the order they run, and calls that can only be planned after them.

    Parameters
    ----------
    stages : list of Stage
    postponed : list of Call
        Calls whose inputs have an unknown length until the stages have run.
    """

    stages: list[Stage]
    postponed: list[Call]


LAST: Final = 2**62
"""Number of the stage of postponed calls, which is after all others."""

SMALL: Final = 64
"""Times that the largest value has the elements of one that is small: less than 2% of the work."""


def needed(pending: Sequence[Call]) -> list[Call]:
    """Return the calls whose results somebody still holds, or that change something.

    Parameters
    ----------
    pending : sequence of Call
        In program order.
    """
    wanted: set[Node] = set()
    chosen = []
    for call in reversed(pending):
        live = [node.is_held or node in wanted for _, node in call.live_outputs()]
        if call.writes or not call.outputs or any(live):
            wanted.update(call.inputs)
            chosen.append(call)
    return chosen[::-1]


def plan_for(options: Options, calls: Sequence[Call]) -> Plan:
    """Plan calls, unless all their values are small: these run one after the other.

    Parameters
    ----------
    options : Options
    calls : sequence of Call
        In program order.
    """
    seen: set[Node] = set()  # to count the bytes of a frame takes as long as a call of pandas
    for call in calls:
        nodes = {*call.inputs, *dict(call.live_outputs()).values()} - seen
        if not all(options.runs_plain(_nbytes(node)) for node in nodes):
            return plan(calls)
        seen |= nodes
    return Plan([Stage(None, "all values are small", [(call, _whole(call)) for call in calls])], [])


def _nbytes(node: Node) -> int:
    """Return the approximate bytes of a value, as far as they are known."""
    if not node.is_pending:
        return nbytes_of(node.data, node.type)
    if isinstance(node.meta, ArrayMeta):
        return (_size(node) or 0) * node.meta.dtype.itemsize
    return 0


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
    writers = any(call.writes for call in calls)
    reduced, small = _reduced_and_small(calls)
    for at, call in enumerate(_with_first(reduced, calls) if small and not writers else calls):
        before = [node.call for node in call.inputs if node.call is not None]
        if writers:
            before += [each for each in calls[:at] if next(conflicts(each, call), None)]
        numbers = [stage_of.get(each, LAST) for each in before]
        earliest = max(numbers, default=0)
        found = None
        if earliest != LAST:
            found = (_place_whole if call in small else _place)(stages, earliest, call)
        if found is None:
            postponed.append(call)
            continue
        number, typing = found
        stage_of[call] = number
        stages[number].add(call, typing)
    _mark_stored(stages, postponed)
    return Plan(stages, postponed)


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
            return number, _whole(call)
    stages.append(Stage(None, "its values are small"))
    return len(stages) - 1, _whole(call)


def _size(node: Node) -> int | None:
    """Return the number of elements of an array, if it is known."""
    if not isinstance(node.meta, ArrayMeta) or not node.meta.is_known:
        return None
    return math.prod(cast(tuple[int, ...], node.meta.shape))


def _place(stages: list[Stage], first: int, call: Call) -> tuple[int, Typing] | None:
    """Return a stage for a call, a new one if need be; ``None`` if its inputs must run before."""
    for number in range(first, len(stages)):
        if typing := _fitting(stages[number], call):
            return number, typing
    if not all(map(_is_plannable, call.inputs)):
        return None
    reason = _why_not(stages[-1], call) if stages else ""
    options = _typings_alone(call)
    typing = next((each for each in options if _is_free_of_conflicts(call, each)), None)
    if typing is None:
        typing = _whole(call)
    stages.append(Stage(typing.length, reason))
    return len(stages) - 1, typing


def _fitting(stage: Stage, call: Call) -> Typing | None:
    known = tuple([stage.made.get(node) for node in call.inputs])
    if not all(node in stage.made or _is_plannable(node) for node in call.inputs):
        return None
    if stage.is_whole:
        cut = any(_is_free_of_conflicts(call, each) for each in _typings_alone(call))
        return None if cut else _whole(call)
    for typing in call.annotation.typings(call, known):
        if (
            typing.agrees_with(known)
            and typing.length in (None, stage.length)
            and _is_aligned(stage, call, typing)
        ):
            return typing
    return None


def _typings_alone(call: Call) -> Iterable[Typing]:
    """Return the ways to cut a call at the begin of a stage."""
    return call.annotation.typings(call, (None,) * len(call.inputs))


def _is_plannable(node: Node) -> bool:
    """Return whether the length of a value is known."""
    return node.call is None or (node.meta is not None and node.meta.is_known)


def _whole(call: Call) -> Typing:
    return Typing((broadcast,) * len(call.inputs), (broadcast,) * len(call.outputs), None)


def _is_free_of_conflicts(call: Call, typing: Typing) -> bool:
    """Return whether a call does not write memory that it reads elsewhere."""
    return _cut_alike(call, typing, call, typing)


def _is_aligned(stage: Stage, call: Call, typing: Typing) -> bool:
    """Return whether pieces of a call share memory with pieces of the same items only."""
    if not call.writes and not stage.has_writes:
        return True
    return _is_free_of_conflicts(call, typing) and all(
        _cut_alike(each, of_each, call, typing) for each, of_each in stage.calls
    )


def _cut_alike(one: Call, of_one: Typing, other: Call, of_other: Typing) -> bool:
    for first, second in conflicts(one, other):
        kinds = {
            *_types_of(one, of_one, first),
            *_types_of(other, of_other, second),
        }
        if len(kinds) > 1 or broadcast in kinds or not same_view(first, second):
            return False
    return all(broadcast not in _types_of(one, of_one, node) for node in one.writes)


def _types_of(call: Call, typing: Typing, node: Node) -> list[SplitType]:
    """Return the types that a call uses for an input, which may be several arguments."""
    return [kind for each, kind in zip(call.inputs, typing.inputs, strict=True) if each is node]


def _mark_stored(stages: list[Stage], postponed: list[Call]) -> None:
    used_later = {node for call in postponed for node in call.inputs}
    for stage in reversed(stages):
        stage.stored = [node for node in stage.made if node.is_held or node in used_later]
        for call, _ in stage.calls:
            used_later.update(call.inputs)


def _why_not(stage: Stage, call: Call) -> str:
    """Say why a call cannot be part of a stage."""
    for node in call.inputs:
        kind = stage.made.get(node)
        if node.call is not None and isinstance(kind, Reduction):
            return f"{call.name} needs the whole result of {node.call.name} ({node.call.site})"
    if next(iter(_typings_alone(call)), None) is None:
        return f"{call.name} is not annotated for these arguments, and runs on whole values"
    if any(next(conflicts(each, call), None) for each, _ in stage.calls):
        return f"{call.name} accesses memory that is written in another order"
    for node in call.inputs:
        kind = stage.made.get(node)
        if node.call is not None and kind is not None:
            return f"{call.name} cuts the result of {node.call.name} in another way than {kind}"
    return f"{call.name} has another number of items"
