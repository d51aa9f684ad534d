"""Captured calls and the values between them.

A value holds the call that makes it, and a call holds its inputs::

    price ──┐
            ├─ divide ── log ── d1 ─ ...       nodes are values, calls are between them
    strike ─┘
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._calls.split_types import SplitType

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
        "annotation", "args", "errcall", "errstate", "first", "fn", "has_run", "inputs",
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
