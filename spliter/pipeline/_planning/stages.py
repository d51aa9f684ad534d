"""Stages: calls that run one after the other on each batch. What the planner makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.split_types import SplitType, broadcast
from spliter.pipeline._planning.overlap import Access, Accesses


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

    remade: set[Call] = field(default_factory=set)
    """Calls that run again, on whole values, for results that others need."""

    made: dict[Node, SplitType] = field(default_factory=dict)
    stored: list[Node] = field(default_factory=list)
    """Results that the program holds or a later stage needs."""

    last_read: set[Node] = field(default_factory=set)
    """Results of earlier stages that it reads, and no later one."""

    accesses: Accesses = field(default_factory=Accesses)
    """Of memory that a call of the program writes."""

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

    def add(self, call: Call, typing: Typing, accesses: Iterable[Access] = ()) -> None:
        """Append a call."""
        self.calls.append((call, typing))
        self.results.append(call.live_outputs())
        for access in accesses:
            self.accesses.add(access, typing.inputs[access.at])
        for number, node in self.results[-1]:
            self.made[node] = typing.outputs[number]

    def keep(self, calls: list[tuple[Call, Typing]]) -> None:
        """Keep some of its calls."""
        self.calls = calls
        self.results = [call.live_outputs() for call, _ in calls]
        kept = {node for each in self.results for _, node in each}
        self.made = {node: kind for node, kind in self.made.items() if node in kept}


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


def whole_typing(call: Call) -> Typing:
    """Return the types of a call that runs on whole values."""
    return Typing((broadcast,) * len(call.inputs), (broadcast,) * len(call.outputs), None)
