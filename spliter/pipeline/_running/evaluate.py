"""Evaluate pending calls: plan stages, run them, and handle the errors of batches."""

from __future__ import annotations

import contextvars
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, Final, TypeAlias, cast

from spliter._errors import (
    AlignmentError,
    AnnotationError,
    ForkedError,
    SplIterError,
)
from spliter._events import LOGGER
from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.graph import RUNNING, Graph
from spliter.pipeline._calls.sites import Site, used_in_pieces
from spliter.pipeline._calls.split_types import NoRowsError
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._planning.columns import narrow
from spliter.pipeline._planning.planner import needed, plan_for
from spliter.pipeline._planning.stages import Plan, Stage
from spliter.pipeline._running.interrupts import is_interrupt
from spliter.pipeline._running.lost import add_note, has_raised, lose, note_raised
from spliter.pipeline._running.program import Program, compile_stage
from spliter.pipeline._running.recorded_warnings import WarningRecorder, recorded
from spliter.pipeline._running.results import Pieces, check_nothing, collector_for
from spliter.pipeline._running.runner import Failure, run_batches

Trace: TypeAlias = Callable[[Plan, str], Iterator[Stage]]

TRACE: Final[contextvars.ContextVar[Trace | None]] = contextvars.ContextVar(
    "spliter_pipeline_trace", default=None
)
"""Yields the stages of a plan to run, given the line that needs them; ``explain`` describes each
before it runs, as values may get another shape later."""

FAILURES: Final[contextvars.ContextVar[list[Failure] | None]] = contextvars.ContextVar(
    "spliter_pipeline_failures", default=None
)
"""Where ``check_splittable`` collects the batches that failed, as whole values may not."""


class LostLock:
    """The lock of a graph that was evaluated when this process was forked."""

    def __enter__(self) -> None:
        raise ForkedError(
            f"{Site.of_caller()} uses a value that a pipeline was computing when this process was "
            "forked; fork before or after that, or start processes by spawn"
        )

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


_evaluated: Final[set[Graph]] = set()


def _lock_lost_graphs() -> None:
    """Refuse values that were being computed, by threads that a forked process has not got."""
    for graph in _evaluated:
        graph.lock = LostLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock_lost_graphs)


def evaluate(graph: Graph) -> None:
    """Run all pending calls of a graph whose results somebody holds, or that change arrays.

    Parameters
    ----------
    graph : Graph

    Raises
    ------
    Exception
        What the first call raises that fails. Calls before it have run.
    """
    try:
        _evaluate(graph)
    except BaseException as error:
        if graph.pending and not is_interrupt(error):
            number = graph.failed_number
            evaluate(graph)  # a call before the failed one, in a later stage, may fail, too
            graph.failed_number = number
        raise


def evaluate_own(graph: Graph) -> None:
    """Run all pending calls, and raise what those of this thread raise.

    Parameters
    ----------
    graph : Graph
    """
    with graph as root:
        claim(root)
        evaluate(root)


def may_change(graph: Graph) -> bool:
    """Return whether calls are pending, or another thread runs them just now, or has done so.

    Parameters
    ----------
    graph : Graph
    """
    is_running = graph in _evaluated and RUNNING.get() is not graph
    return bool(graph.pending or graph.errors or graph.broken) or is_running


def claim(graph: Graph) -> bool:
    """Make a graph this thread's: run what another one has called, which gets the errors.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    bool
        Whether it was another one's, so that values may have been lost meanwhile.

    Raises
    ------
    Exception
        What calls of this thread have raised in another one, or a call that has left arrays partly
        written.
    """
    if graph.broken is not None:
        raise graph.broken
    thread = threading.current_thread()
    if graph.thread is thread:
        return False
    try:
        evaluate(graph)
        graph.settle()
    except BaseException as error:
        if is_interrupt(error):
            raise
        graph.errors.append((graph.thread, error))
    graph.thread = thread
    graph.is_eager |= type(graph) is Graph
    raise_kept(graph, thread)
    return True


def raise_kept(graph: Graph, thread: threading.Thread | None = None) -> None:
    """Raise what calls of a thread have raised in another one, if the thread has not got it yet.

    Parameters
    ----------
    graph : Graph
    thread : Thread, optional
        By default any.
    """
    for owner, error in graph.errors:
        if thread in (None, owner) and not has_raised(graph, error):
            note_raised(graph, error)
            raise error


def check_use(graph: Graph) -> None:
    """Refuse values that a function on pieces uses, and of which it does not get the pieces.

    Parameters
    ----------
    graph : Graph
    """
    if RUNNING.get() is graph:
        raise used_in_pieces()


def _evaluate(graph: Graph) -> None:
    check_use(graph)
    with graph.lock:
        if graph.evaluate():
            return
        graph.locks.end()
        _evaluated.add(graph)
        options = CURRENT.get()
        recorder = WarningRecorder()
        trace = TRACE.get()
        pending, graph.pending = needed(graph.pending), []
        graph.writes_wait = graph.reads_plain = False
        graph.failed_number = None
        narrow(pending)
        graph.sources.clear()
        token = RUNNING.set(graph)
        try:
            while remaining := [call for call in pending if not call.has_run]:
                made = plan_for(options, remaining)
                graph.was_planned |= not all(stage.is_whole for stage in made.stages)
                stages = trace(made, str(Site.of_caller())) if trace else made.stages
                for stage in stages:
                    _run_stage(graph, stage, options, recorder)
                    _free(stage.last_read)
        except BaseException as error:
            if is_interrupt(error):
                raise
            lose(graph, pending, error)
            if not graph.is_trial:
                recorder.report()
            raise
        else:
            for call in pending:
                for _, node in call.live_outputs():
                    node.before = None
        finally:
            RUNNING.reset(token)
            graph.pending = [call for call in pending if not call.has_run]
            graph.settle_views()
            _evaluated.discard(graph)
        recorder.report()


def _run_stage(graph: Graph, stage: Stage, options: Options, recorder: WarningRecorder) -> None:
    if stage.is_whole or not stage.is_mergeable:
        run_whole(graph, [call for call, _ in stage.calls], recorder, stage.last_read)
        return
    program = compile_stage(stage)
    collectors = [
        collector_for(
            recorded(kind, node, recorder), program.length, node, program.layouts.get(node)
        )
        for _, kind, node in program.results
    ]
    for call, _ in stage.calls:
        call.has_run = bool(call.writes)  # arrays are not changed twice
    failure = run_batches(program, options, collectors, recorder)
    try:
        if failure is None:
            failure = _merge(stage, program, collectors)
            if failure is not None and not isinstance(
                failure.error, NoRowsError | FloatingPointError
            ):
                graph.failed_number = failure.call.number
                raise failure.error
        if failure is not None:
            _handle(graph, failure, stage, recorder)
    finally:
        del failure  # its error refers to this frame


def _merge(stage: Stage, program: Program, collectors: Sequence[Pieces]) -> Failure | None:
    """Merge the pieces of all results; return the error of the first call of which that fails."""
    failures: dict[Call, Failure] = {}
    for (_, _, node), collector in zip(program.results, collectors, strict=True):
        call = cast(Call, node.call)
        try:
            node.finish(collector.finish())
        except BaseException as error:  # all others are merged, too
            if is_interrupt(error):
                raise
            failures[call] = Failure(error, call, 0, program.length)
    for node, array in program.allocated:
        node.finish(array)
    for call, _ in stage.calls:
        call.has_run = call not in stage.remade and call not in failures
    first = min(failures, key=operator.attrgetter("number"), default=None)
    return None if first is None else failures[first]


def _handle(graph: Graph, failure: Failure, stage: Stage, recorder: WarningRecorder) -> None:
    """Run the calls of a stage again, on whole values, so that errors are the plain program's."""
    error, graph.failed_number = failure.error, failure.call.number
    # Of unequal pieces, the whole values may be equal.
    is_ours = isinstance(error, SplIterError) and not isinstance(error, AlignmentError)
    if not is_ours and (failures := FAILURES.get()) is not None:
        failures.append(failure)
    if stage.writes:  # whole calls would read what is half written
        graph.broken = error
        written = ", ".join(_described(node) for node in dict.fromkeys(stage.writes))
        add_note(
            error,
            f"{failure.call.place} failed on items {failure.start} to {failure.stop} of "
            f"{stage.length}; partly written: {written}",
        )
    if is_ours or stage.writes:
        try:
            raise error from error.__cause__
        finally:
            del error, failure  # the error refers to this frame
    recorder.found.clear()  # the whole calls are recorded again
    run_whole(graph, [call for call, _ in stage.calls], recorder)
    if failure.call.annotation.is_users:
        LOGGER.warning(
            "%s failed on items %d to %d and not on all (%r), so that its stage ran twice; "
            "check_splittable tries its annotation",
            *(failure.call.place, failure.start, failure.stop, error),
        )


def _described(node: Node) -> str:
    value = node.data
    return f"an array of shape {value.shape}" if hasattr(value, "shape") else type(value).__name__


def _free(nodes: Iterable[Node]) -> None:
    """Release the memory of values that no call reads any more, unless the program holds them."""
    for node in nodes:
        if not node.is_held:
            node.data = None


def run_whole(
    graph: Graph,
    calls: Sequence[Call],
    recorder: WarningRecorder,
    last_read: Set[Node] = frozenset(),
) -> None:
    """Run calls one after the other on whole values.

    Parameters
    ----------
    graph : Graph
        Of the calls.
    calls : sequence of Call
        In program order.
    recorder : WarningRecorder
    last_read : set of Node
        Values to free after their last use.
    """
    last_of = {node: call for call in calls for node in call.inputs}
    for call in calls:
        args, kwargs = call.filled(operator.attrgetter("data"))
        if (out := _target(call)) is not None:
            kwargs["out"] = out
        call.has_run = bool(call.writes)
        try:
            with recorder.errstate(call.errstate, lambda call=call: call):  # type: ignore[misc]
                result = call.fn(*args, **kwargs)
        except BaseException:
            graph.failed_number = call.number
            raise
        results = result if isinstance(result, tuple | list) else (result,)
        if 1 < len(call.outputs) != len(results):
            raise AnnotationError(
                f"{call.place} returned {len(results)} results, and its annotation names "
                f"{len(call.outputs)}; correct returns="
            )
        if not call.outputs:
            check_nothing(result, call)
        for number, node in call.live_outputs():
            node.finish(results[number] if len(call.outputs) > 1 else result)
        call.has_run = True
        _free(node for node in call.inputs if node in last_read and last_of[node] is call)


def _target(call: Call) -> Any:
    """Return the array into which a ufunc writes, if the program passed one."""
    if call.into is None:
        return None
    return call.into.data if call.into in call.writes else call.into.data.copy("K")
