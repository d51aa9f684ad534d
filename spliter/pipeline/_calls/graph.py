"""Pending calls of values that have met in a call, in program order.

That order counts, as calls may change arrays in place. There is no global graph: each pipeline has
one, and values know theirs.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.locks import Locks
from spliter.pipeline._calls.metas import meta_of
from spliter.pipeline._calls.sites import used_in_pieces

RUNNING: Final[contextvars.ContextVar[Graph | None]] = contextvars.ContextVar(
    "spliter_pipeline_running", default=None
)
"""The graph whose calls this thread runs, which none of them may extend."""

MAX_COPIED_NBYTES: Final = 2**16
"""Of a plain array that is an operand: to copy it takes less time than to capture the call."""


class Graph:
    """Pending calls of values that have met, in program order.

    Parameters
    ----------
    returns : bool
        Whether a decorated function evaluates the calls on return. Otherwise changes of arrays in
        place happen at once, as nothing says when the program reads the array.
    """

    def __init__(self, *, returns: bool) -> None:
        self.locks = Locks()  # first, as ``__del__`` needs it
        self.returns = returns
        self.pending: list[Call] = []
        self.lock: Any = threading.RLock()
        self.thread = threading.current_thread()
        """The one that has made the pending calls."""
        self.errors: list[tuple[threading.Thread, BaseException]] = []
        """What calls of a thread have raised in another one."""
        self.raised: list[tuple[type, str]] = []
        """Those of them, and others, that the program has got."""
        self.failed_number: int | None = None
        """Of the call that has raised the last error; the error itself would refer to the call."""
        self.broken: BaseException | None = None
        """What a call has raised that has left arrays partly written; any use raises it again."""
        self.sources: dict[int, Node] = {}
        self.views: list[tuple[weakref.ref[Any], Callable[[], Any], Any]] = []
        """Lazy views of pending values, functions that return these values, and the indexes."""
        self.has_escaped = False
        """Whether the program has got an array as it is, so that later changes must not wait."""
        self.is_eager = False
        """Whether it may change arrays unseen, or has several threads: no call must wait."""
        self.is_trial = False
        """Whether calls that fail will run again, and warn again."""
        self.writes_wait = False
        """Whether pending calls change arrays, maybe in memory that others share."""
        self.reads_plain = False
        """Whether they read arrays that the program may change unseen, so must not wait."""
        self.was_planned = False
        """Whether a value was too large to run all calls at once."""
        self.merged_into: Graph | None = None
        self.rank = True, 0
        """Over a Split: whether its pipeline runs, and which one it is; later ones have more."""

    def evaluate(self) -> bool:
        """Run the pending calls in a way of its own; return whether it has one."""
        return False

    def settle(self) -> None:
        """Wait for calls that run elsewhere."""

    def check_at_client(self, node: Node) -> None:
        """Raise if a value is not to be had in this process."""

    def first_rows(self, node: Node) -> Any:
        """Return the first rows of an argument that is elsewhere; ``None`` for other values."""
        return None

    def whole(self, node: Node) -> Any:
        """Return a pending value that cannot be had from the first rows of others."""
        raise LookupError("it takes too long")

    def first_row(self, node: Node) -> Any:
        """Return a row of a pending value of which a filter has dropped the first ones."""
        raise LookupError("it takes too long")

    def learn(self, node: Node) -> None:
        """Set the meta of a value that is elsewhere, of which nothing is known."""

    def length_of(self, node: Node) -> int | None:
        """Return the number of rows of a value, if that is known by other means than its meta."""
        return None

    def __enter__(self) -> Graph:
        """Lock the graph that this one has been merged into, and return it."""
        while True:
            root = self.root()
            if RUNNING.get() is root:  # whose thread waits for this one
                raise used_in_pieces()
            root.lock.__enter__()
            if root.merged_into is None:
                return root
            root.lock.__exit__(None, None, None)

    def __exit__(self, *error: object) -> None:
        self.root().lock.__exit__(None, None, None)

    def root(self) -> Graph:
        """Return the graph that this one has been merged into, or itself."""
        graph = self
        while graph.merged_into is not None:
            graph = graph.merged_into
        if graph is not self:
            self.merged_into = graph  # those in between are not needed
        return graph

    def __del__(self) -> None:
        """Unlock arrays that pending calls would have read."""
        self.locks.end()

    def source(self, data: Any, whole: Any = None) -> Node:
        """Return the node of an object that exists; one node for each object.

        Parameters
        ----------
        data : object
        whole : ndarray, optional
            Of which `data` is a view, read-only if `whole` is locked.
        """
        self.locks.add_view(data, whole)
        node = self.sources.get(id(data))
        if node is None or node.data is not data:
            node = Node(data, None, meta_of(data))
            self.sources[id(data)] = node
        return node

    def operand(self, data: Any) -> Node:
        """Return the node of an array or frame that the program may change unseen.

        Small arrays are copied, and those that tasks get. Else the calls that read them run at
        once, in a decorated function.
        """
        node = self.sources.get(id(data))
        if node is not None and node.data is data and node.is_held:
            return node
        if not isinstance(data, np.ndarray):
            return Node(data.copy(deep=False), None, meta_of(data))
        is_small = data.nbytes <= MAX_COPIED_NBYTES and 0 not in data.strides  # of the same order
        if (is_small and not self.writes_wait) or type(self) is not Graph:
            return Node(data.copy("K"), None, meta_of(data))
        self.reads_plain = self.returns
        return self.source(data)

    def add_view(self, view: Any, base: Any, index: Any) -> None:
        """Remember that a lazy value is a view of another one, if the program still holds that."""
        held = [each for each in self.views if each[0]() is not None]
        # Of views that are held, only they may refer to what they are views of.
        is_shared = any(base is each() or base is find() for each, find, _ in held)
        find: Callable[[], Any] = (lambda: base) if is_shared else weakref.ref(base)
        self.views = [*held, (weakref.ref(view), find, index)]

    def settle_views(self) -> None:
        """Make evaluated views share the memory of what they are views of, for later changes."""
        pending = []
        for entry in self.views:
            view, base, index = entry[0](), entry[1](), entry[2]
            if view is None or base is None:
                continue
            if base._node.is_pending:
                pending.append(entry)
            else:
                view._take_over(self.source(base._node.data[index]))
        self.views = pending

    def absorb(self, other: Graph) -> None:
        """Take over the pending calls of another graph, unless one of them has been merged."""
        one, two = sorted((self, other), key=id)  # all threads lock them in this order
        with one.lock, two.lock:
            if self.merged_into or other.merged_into:
                return
            self.pending = sorted(self.pending + other.pending, key=lambda call: call.number)
            self.sources.update(other.sources)
            self.locks.take_over(other.locks)
            self.views += other.views
            self.errors += other.errors
            self.raised += other.raised
            self.broken = self.broken or other.broken
            self.has_escaped |= other.has_escaped
            self.is_eager |= other.is_eager
            self.writes_wait |= other.writes_wait
            self.reads_plain |= other.reads_plain
            self.was_planned |= other.was_planned
            other.pending, other.sources, other.views, other.merged_into = [], {}, [], self


def common_graph(graphs: Iterable[Graph]) -> Graph:
    """Return one graph for all values of a call; merges them if none of them is over a Split."""
    roots = {graph.root() for graph in graphs}
    while len(roots) > 1:
        if elsewhere := [each for each in roots if type(each) is not Graph]:
            return max(elsewhere, key=lambda each: each.rank)
        # Graphs that a decorated function evaluates absorb the others.
        first, second, *_ = sorted(roots, key=lambda each: not each.returns)
        first.absorb(second)
        roots = {graph.root() for graph in roots}
    return roots.pop()
