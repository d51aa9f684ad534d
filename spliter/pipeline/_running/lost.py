"""Values whose calls have failed, or were to run after those: what any use of them raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spliter.pipeline._calls.calls import Call
from spliter.pipeline._calls.graph import Graph


def has_raised(graph: Graph, error: BaseException) -> bool:
    """Return whether the program has got an error, or one like it of a call that ran again."""
    return (type(error), text_of(error)) in graph.raised


def note_raised(graph: Graph, error: BaseException) -> None:
    """Note that the program gets an error; not the error itself, whose traceback holds values."""
    graph.raised.append((type(error), text_of(error)))


def text_of(error: BaseException) -> str:
    """Return the text of an error, also if its class has none that works."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- the class is the program's
        return object.__repr__(error)


class LostGraph(Graph):
    """The graph of values whose calls will not run: what any use of them raises.

    Parameters
    ----------
    error : BaseException
    place : str
        Of the call that has raised it.
    graph : Graph
        Of the calls.
    """

    def __init__(self, error: BaseException, place: str, graph: Graph) -> None:
        super().__init__(returns=True)
        self.error, self.graph = _copied(error), graph
        if self.error is not error and graph.broken is None:  # whose error has a note
            add_note(self.error, f"first raised by {place}")

    def root(self) -> Graph:
        """Raise the error again; the thread whose it is need not do so."""
        graph = self.graph.root()
        if not has_raised(graph, self.error):
            note_raised(graph, self.error)
        raise _copied(self.error)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, also of a class that refuses attributes, but not to a copy of it."""
    vars(error)["__notes__"] = [*getattr(error, "__notes__", ()), note]


def _copied(error: BaseException) -> BaseException:
    """Return a copy of an error, whose traceback would keep the values that keep the error."""
    if any(vars(each).get("__slots__") for each in type(error).__mro__):  # which are not copied
        return error
    try:
        # As `copy.copy`, which packages replace: that of tblib has the attributes in common.
        reduced: Any = error.__reduce_ex__(4)
        make, args, *states = reduced
        copied: BaseException = make(*args)
        for state in states[:1]:
            copied.__setstate__(state)
        if type(copied) is not type(error) or text_of(copied) != text_of(error):
            return error
        if notes := getattr(error, "__notes__", None):
            vars(copied)["__notes__"] = [*notes]
        if error.__cause__ is not None:
            copied.__cause__ = _copied(error.__cause__)
        copied.__suppress_context__ = error.__suppress_context__
        return copied.with_traceback(None)
    except Exception:  # noqa: BLE001 -- the class is the program's
        return error


def lose(graph: Graph, calls: Sequence[Call], error: BaseException) -> None:
    """Give up calls from the one that failed: the plain program would not have come to the others.

    Parameters
    ----------
    graph : Graph
    calls : sequence of Call
        In program order.
    error : BaseException
        What a call has raised: that of `failed_number`, else the first that has not run.
    """
    failed = [at for at, call in enumerate(calls) if call.number == graph.failed_number]
    failed = failed or [at for at, call in enumerate(calls) if not call.has_run] or [len(calls)]
    place = next((call.place for call in calls[failed[0] :]), "another call")
    lost_graph = LostGraph(error, place, graph)
    for call in reversed(calls[0 if graph.broken else failed[0] :]):
        for _, node in call.live_outputs():
            if node.lazy is None or (lost := node.lazy()) is None:
                continue
            if node.before is not None and node.before.is_there:
                lost._take_over(node.before)
            elif node.before is not None or not call.has_run or node.is_pending:
                lost._graph = lost_graph
        call.has_run = True
