"""The pending calls of one pipeline, in program order, and its first error.

There is no global graph: each pipeline has one, and values know theirs. All values of a graph
belong to the thread that runs the body.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from spliter._errors import InvalidArgumentError, PipelineFailedError
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.sites import Site


class Graph(ABC):
    """Pending calls of values that have met, in program order; subclasses run them."""

    is_over_split: ClassVar[bool] = False
    """Whether values with rows are elsewhere."""

    def __init__(self) -> None:
        self.pending: list[Call] = []
        self.error: tuple[str, BaseException] | None = None
        """After the first error: its place, and the error."""
        self.is_running = False
        self.by = ""
        """Name of the function that needs a value now, if it is known."""
        self._thread = threading.get_ident()
        self._merged_into: Graph | None = None

    @abstractmethod
    def run(self, calls: list[Call], kept: set[Node]) -> None:
        """Run calls, in program order with all pending makers; finish the results that are kept."""

    def trace(self) -> None:  # noqa: B027 -- only `explain` needs it, which takes no Split
        """Note the line of the program that needs a value now."""

    def value(self, node: Node) -> Any:
        """Return the value of a node that is not pending, to the program."""
        return node.data

    def length(self, node: Node) -> int | None:
        """Return the number of rows of a value, if that is known without evaluating it."""
        return None

    def learn(self, node: Node) -> bool:
        """Evaluate a value of which nothing is known; return whether it is an array elsewhere."""
        return False

    def root(self) -> Graph:
        """Return the graph that this one has been merged into, or itself."""
        graph = self
        while graph._merged_into is not None:
            graph = graph._merged_into
        return graph

    def check(self) -> None:
        """Refuse a use after an error, in another thread, or in a function that runs on pieces."""
        if self.error is not None:
            place, error = self.error
            raise PipelineFailedError(
                f"{Site.of_caller()} uses a value of a pipeline that has failed at {place}; "
                "no other value of it can be used, so call the pipeline again"
            ) from error
        what = ""
        if self.is_running:
            what = (
                "in a function that runs on pieces, and it is no argument of that; pass it as one"
            )
        elif self._thread != threading.get_ident():
            what = (
                "in a thread that is not that of the body; pass numpy.asarray of it to the thread"
            )
        if what:
            raise InvalidArgumentError(f"{Site.of_caller()} uses a lazy value {what}")

    def evaluate(self, wanted: Iterable[Node] | None = None) -> None:
        """Run what some values follow from, or all that the program still holds.

        What the first call raises that fails is raised, and the pipeline is finished then.
        """
        self.check()
        calls, others = needed(self.pending), []
        if wanted is not None:
            live, calls = calls, with_makers(each.call for each in wanted if each.call is not None)
            chosen = {*calls}
            others = [call for call in live if call not in chosen]
        self.pending = others
        if not calls:
            return
        kept = {node for call in calls for _, node in call.live_outputs() if node.is_held}
        kept.update(node for call in self.pending for node in call.inputs)
        self.is_running = True
        try:
            self.run(calls, kept)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self.is_running = False

    def fail(self, error: BaseException) -> None:
        """Finish the pipeline: no other call of it runs."""
        self.pending = []
        if self.error is None:
            notes = getattr(error, "__notes__", None) or [str(Site.of_caller())]
            self.error = notes[-1], error

    def absorb(self, other: Graph) -> None:
        """Take over the pending calls of another graph."""
        other.check()
        self.pending = sorted(self.pending + other.pending, key=lambda call: call.number)
        other.pending, other._merged_into = [], self


def needed(pending: Sequence[Call]) -> list[Call]:
    """Return the calls whose results somebody still holds, with their makers, in program order."""
    wanted = [
        call
        for call in pending
        if call.writes or not call.outputs or any(node.is_held for _, node in call.live_outputs())
    ]
    return with_makers(wanted)


def with_makers(wanted: Iterable[Call]) -> list[Call]:
    """Return calls and those whose results they need, in program order."""
    found = list(dict.fromkeys(wanted))
    chosen = {*found}
    for call in found:  # and those that the loop adds
        makers = {node.call for node in call.inputs if node.call is not None}
        found += makers - chosen
        chosen |= makers
    return sorted(found, key=lambda call: call.number)
