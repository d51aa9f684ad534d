"""Captured calls and the values between them.

A value holds the call that makes it, and a call holds its inputs: there is no global graph. The
pending calls of values that have met in a call are kept in program order, as calls may change
arrays in place::

    price ──┐
            ├─ divide ── log ── d1 ─ ...       nodes are values, calls are between them
    strike ─┘
"""

from __future__ import annotations

import contextvars
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from spliter.pipeline._locks import Locks
from spliter.pipeline._metas import ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._site import Site, used_in_pieces
from spliter.pipeline._types import SplitType

RUNNING: Final[contextvars.ContextVar[Graph | None]] = contextvars.ContextVar(
    "spliter_pipeline_running", default=None
)
"""The graph whose calls this thread runs, which none of them may extend."""

NUMBERS: Final = itertools.count()
"""Numbers of calls, in program order."""


class Typing(NamedTuple):
    """One way to cut a call: a split type for each input and output, and the number of items.

    Parameters
    ----------
    inputs, outputs : tuple of SplitType
        In the order of the call.
    length : int or None
        Items of all inputs that are cut; ``None`` if that follows from an input of unknown length.
    fn : callable or None
        Called with the pieces in place of the function, with the same other arguments.
    is_checked : bool
        Whether the annotation is a user's, so that the lengths of results must be checked.
    is_light : bool
        Whether the result takes longer to collect than to make of the whole frame, if there.
    """

    inputs: tuple[SplitType, ...]
    outputs: tuple[SplitType, ...]
    length: int | None
    fn: Callable[..., Any] | None = None
    is_checked: bool = False
    is_light: bool = False

    def agrees_with(self, known: tuple[SplitType | None, ...]) -> bool:
        """Return whether it cuts the inputs as they are cut already, where they are."""
        pairs = zip(known, self.inputs, strict=True)
        return all(have is None or have is want or have == want for have, want in pairs)


class UnforeseenResultError(Exception):
    """Nothing is known of a result before the call runs; it may raise an error."""


class Annotation(Protocol):
    """How a function may be cut."""

    is_users: bool
    """Whether the function may be any of the user's, which may raise any error."""

    scratch: bool
    """Whether the function neither keeps its inputs nor returns views of them, so that their memory
    can be reused for the next batch."""

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the ways to cut a call, the best one first.

        Parameters
        ----------
        call : Call
        known : tuple of SplitType or None
            Types of the inputs that the same stage has cut already.
        """
        ...

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what is known of the results; raises what the call itself would raise.

        Raises
        ------
        UnforeseenResultError
            If the call has to run at once.
        """
        ...


_CALLED: Final = frozenset({"call", "log"})
"""Ways to treat floating-point errors that call what the program has set."""


class Node:
    """A value: an array or another object, or the result of a pending call."""

    __slots__ = ("__weakref__", "before", "call", "data", "lazy", "meta", "type")

    def __init__(self, data: Any, call: Call | None, meta: Meta) -> None:
        self.data = data
        self.call = call
        self.meta = meta
        self.lazy: weakref.ref[Any] | None = None
        """The lazy value that the program sees; dead if the program has dropped it."""
        self.before: Node | None = None
        """The value that the program has changed to this one, as long as that can be undone."""
        self.type: SplitType | None = None
        """Of an argument of an annotated function: its type, which knows the bytes of a value."""

    @property
    def is_held(self) -> bool:
        """Whether the program still holds the value."""
        return self.lazy is not None and self.lazy() is not None

    @property
    def is_there(self) -> bool:
        """Whether it has been computed, or will be."""
        return self.data is not None or (self.call is not None and not self.call.has_run)

    @property
    def is_pending(self) -> bool:
        """Whether its call has not run yet."""
        return self.call is not None

    def finish(self, data: Any) -> None:
        """Set the result of its call, and release the call."""
        self.data = data
        self.meta = meta_of(data)
        self.call = None


class Call:
    """A captured call.

    Parameters
    ----------
    fn : callable
        The library's function.
    args, kwargs
        Its arguments; values are :class:`Node` objects.
    annotation : Annotation
        How it may be cut.
    writes : tuple of Node
        Inputs whose arrays it changes in place.
    into : Node or None
        Of a ufunc: the array, or the earlier version of a value, whose dtype the result takes.
    """

    __slots__ = (
        "annotation", "args", "errcall", "error", "errstate", "first", "fn", "has_run", "inputs",
        "into", "kwargs", "number", "outputs", "runs", "site", "writes",
    )  # fmt: skip

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        annotation: Annotation,
        writes: tuple[Node, ...] = (),
        into: Node | None = None,
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.annotation = annotation
        self.writes = writes
        self.into = into
        values = (*args, *kwargs.values(), into) if kwargs or into else args
        self.inputs = tuple([value for value in values if isinstance(value, Node)])
        self.number = next(NUMBERS)
        self.site = Site.of_caller()
        self.errstate = np.geterr()
        self.errcall: Any = None if _CALLED.isdisjoint(self.errstate.values()) else np.geterrcall()
        self.error: BaseException | None = None
        self.has_run = False
        self.runs = 0
        """How often it has run for numbers, whose calls run alone."""
        self.outputs: tuple[weakref.ref[Node], ...] = ()
        self.first: tuple[Any, ...] | None = None
        """Results for the first row, if they have a row."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", None) or repr(self.fn))

    @property
    def place(self) -> str:
        """Name of the function, and the line of the call."""
        return f"{self.name} ({self.site})"

    @property
    def keys(self) -> tuple[int | str, ...]:
        """Position or name of each argument among its inputs."""
        given: tuple[tuple[Any, Any], ...] = (*enumerate(self.args), *self.kwargs.items())
        return tuple([key for key, value in given if isinstance(value, Node)])

    @property
    def changes(self) -> bool:
        """Whether it changes an array, or makes a value what another one was before."""
        return bool(self.writes) or any(node.before for _, node in self.live_outputs())

    @property
    def may_raise(self) -> bool:
        """Whether errors are expected: of floating point, of lengths, or of extremes of no rows."""
        if "raise" in self.errstate.values() or self._raises_to_integers:
            return True
        unknown = [node for node in self.inputs if _is_unknown(node)]
        if not unknown or len({*unknown}) > 1:
            return bool(unknown)
        return not all(_is_unknown(node) for _, node in self.live_outputs())

    @property
    def _raises_to_integers(self) -> bool:
        """Whether it raises integers to integers, which must not be negative."""
        if self.fn not in (np.power, operator.pow) or not isinstance(self.args[1], Node):
            return False
        metas = [each.meta if isinstance(each, Node) else meta_of(each) for each in self.args[:2]]
        kinds = [each.dtype.kind if isinstance(each, ArrayMeta) else "i" for each in metas]
        return kinds[0] in "iub" and kinds[1] == "i"

    @property
    def may_fail(self) -> bool:
        """Whether errors are expected, or the function is the user's; of none that changes arrays.

        Calls of C functions that change one array after the other would each be a stage. Of frames,
        conversions raise errors, and missing values make other dtypes.
        """
        is_any = self.annotation.is_users or FrameMeta in [type(each.meta) for each in self.inputs]
        return self.may_raise or (is_any and not self.writes)

    def make_outputs(self, metas: Iterable[Meta]) -> tuple[Node, ...]:
        """Return new nodes for its results."""
        nodes = tuple([Node(None, self, meta) for meta in metas])
        self.outputs = tuple(map(weakref.ref, nodes))
        return nodes

    def live_outputs(self) -> list[tuple[int, Node]]:
        """Return the results that the program or another pending call still refers to."""
        return [
            (number, node)
            for number, each in enumerate(self.outputs)
            if (node := each()) is not None
        ]

    def filled(self, value_of: Callable[[Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return its arguments with a value in place of each node."""
        args = tuple(value_of(each) if isinstance(each, Node) else each for each in self.args)
        kwargs = {
            name: value_of(each) if isinstance(each, Node) else each
            for name, each in self.kwargs.items()
        }
        return args, kwargs


def _is_unknown(node: Node) -> bool:
    return isinstance(node.meta, ArrayMeta) and not node.meta.is_known


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
