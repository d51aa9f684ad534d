"""Run pending calls: plan one stage after the other, and run it on batches or on whole values."""

from __future__ import annotations

import contextlib
import contextvars
import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, cast

import numpy as np

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._calls.split_types import Axis
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._planning.planner import ALL_SMALL, next_stage, why_not
from spliter.pipeline._planning.stages import Stage
from spliter.pipeline._running.program import Compiler
from spliter.pipeline._running.recorded_warnings import WarningRecorder
from spliter.pipeline._running.results import Arrays, Pieces, check_declared, check_results
from spliter.pipeline._running.runner import Batches

TRACE: Final[contextvars.ContextVar[list[tuple[Stage, Batches | None] | str] | None]] = (
    contextvars.ContextVar("spliter_pipeline_trace", default=None)
)
"""Where `explain` finds the stages that have run, and the lines that needed a value."""


class LocalGraph(Graph):
    """Pending calls on values of this process."""

    was_planned = False
    """Whether a value was too large to run all calls at once."""

    def run(self, calls: list[Call], kept: set[Node]) -> None:
        """Run calls; finish those of their results that are kept."""
        self.was_planned |= run_calls(calls, kept, CURRENT.get())

    def trace(self) -> None:
        """Note the line of the program that needs a value now, once, for `explain`."""
        if (trace := TRACE.get()) is not None:
            line = f"evaluated at {Site.of_caller()}{f' by {self.by}' if self.by else ''}"
            trace += [line] if line not in trace else []


def run_calls(calls: Sequence[Call], kept: Collection[Node], options: Options) -> bool:
    """Run calls, with all pending makers of their inputs, in stages; return whether any was large.

    The first call that fails raises, with a note of its place, and no other one is run then.
    """
    recorder = WarningRecorder()
    remaining, made, was_large = list(calls), set[Node](), False
    previous: Stage | None = None
    try:
        while remaining:
            stage = next_stage(remaining, kept, options)
            was_large |= stage.reason != ALL_SMALL
            if previous is not None:
                stage.reason = stage.reason or why_not(previous, stage.calls[0][0])
            _run_stage(stage, options, recorder)
            chosen = {call for call, _ in stage.calls}
            remaining = [call for call in remaining if call not in chosen]
            made.update(stage.made)
            _free([node for node in made if node not in kept], remaining)
            previous = stage
    finally:
        recorder.report()
    return was_large


def _free(made: Sequence[Node], remaining: Sequence[Call]) -> None:
    """Release the memory of results that no call reads any more."""
    used = {node for call in remaining for node in call.inputs}
    for node in made:
        if node not in used:
            node.data = None


def _run_stage(stage: Stage, options: Options, recorder: WarningRecorder) -> None:
    program = None if stage.is_whole else Compiler(stage).program
    batches = None if program is None else Batches(program, options)
    if (trace := TRACE.get()) is not None:
        trace.append((stage, batches))
    if program is None or batches is None:
        for call, _ in stage.calls:
            _run_whole(call, recorder)
        return
    collectors = [
        Arrays(kind, program.length, cast(Call, node.call).place)
        if isinstance(kind, Axis)
        else Pieces(kind)
        for _, kind, node in program.results
    ]
    batches.run(collectors, recorder)
    for (_, _, node), collector in zip(program.results, collectors, strict=True):
        call = cast(Call, node.call)
        place = f"{call.place}, items 0 to {program.length}"
        with _noted(place), recorder.errstate(call, lambda call=call: call):  # type: ignore[misc]
            node.finish(collector.finish())
    for node, array in program.allocated:
        node.finish(array)


@contextlib.contextmanager
def _noted(place: str) -> Iterator[None]:
    """Add a note to errors."""
    try:
        yield
    except Exception as error:
        error.add_note(place)
        raise


def _run_whole(call: Call, recorder: WarningRecorder) -> None:
    """Run a call on whole values."""
    args, kwargs = call.filled(operator.attrgetter("data"))
    with _noted(f"{call.place}, on whole values"):
        with recorder.errstate(call, lambda: call):
            result = call.fn(*args, **kwargs)
        check_results(result, call)
    for number, node in call.live_outputs():
        found = result[number] if len(call.outputs) > 1 else result
        if not call.annotation.scratch:
            check_declared(node.meta, found, call.place)
            found = _own(found, call)
        node.finish(found)


def _own(result: Any, call: Call) -> Any:
    """Return a copy of a result that shares memory with an argument: results are new objects."""
    arrays = [each.data for each in call.inputs if isinstance(each.data, np.ndarray)]
    is_array = isinstance(result, np.ndarray)
    shares = is_array and any(np.may_share_memory(result, each) for each in arrays)
    return result.copy("K") if shares else result
