"""Stages: calls that run one after the other on each batch. What the planner makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.split_types import SplitType, broadcast


@dataclass(eq=False)
class Stage:
    """Calls that run one after the other on each batch."""

    length: int | None
    reason: str = ""
    calls: list[tuple[Call, Typing]] = field(default_factory=list)
    results: list[list[tuple[int, Node]]] = field(default_factory=list)
    """Of each call: the results that anything still refers to, with their numbers."""

    made: dict[Node, SplitType] = field(default_factory=dict)
    stored: list[Node] = field(default_factory=list)
    """Results that the program holds or a later stage needs."""

    @property
    def is_whole(self) -> bool:
        """Whether its calls run on whole values."""
        return self.length is None

    def add(self, call: Call, typing: Typing) -> None:
        """Append a call."""
        self.calls.append((call, typing))
        self.results.append(call.live_outputs())
        for number, node in self.results[-1]:
            self.made[node] = typing.outputs[number]


def whole_typing(call: Call) -> Typing:
    """Return the types of a call that runs on whole values."""
    return Typing((broadcast,) * len(call.inputs), (broadcast,) * len(call.outputs), None)
