"""Captured calls and the values between them.

A value holds the call that makes it, and a call holds its inputs::

    price ──┐
            ├─ divide ── log ── d1 ─ ...       nodes are values, calls are between them
    strike ─┘
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from spliter.pipeline._calls.metas import Meta, meta_of, plain_array
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._calls.split_types import SplitType

NUMBERS: Final = itertools.count()
"""Numbers of calls, in program order."""


class Typing(NamedTuple):
    """One way to cut a call: a split type for each input and output, and the number of items."""

    inputs: tuple[SplitType, ...]
    outputs: tuple[SplitType, ...]
    length: int | None  # `None` if it follows from an input of unknown length
    fn: Callable[..., Any] | None = None  # called with the pieces in place of the function
    is_checked: bool = False  # the annotation is a user's: lengths of results are checked

    def agrees_with(self, known: tuple[SplitType | None, ...]) -> bool:
        """Return whether it cuts the inputs as they are cut already, where they are."""
        pairs = zip(known, self.inputs, strict=True)
        return all(have is None or have is want or have == want for have, want in pairs)


class UnforeseenResultError(Exception):
    """The results of a call do not follow from what is known of its arguments; run it plainly."""


class Annotation(Protocol):
    """How a function may be cut."""

    scratch: bool  # it neither keeps its inputs nor returns views: their memory can be reused

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the ways to cut a call, the best one first; none if it runs on whole values.

        Of each input that the same stage makes, `known` has the type.
        """
        ...

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what is known of the results; raises what the call itself would raise.

        An :class:`UnforeseenResultError` says that the call has to run at once.
        """
        ...


class Node:
    """A value: an array or another object, or the result of a pending call."""

    __slots__ = ("__weakref__", "call", "data", "lazy", "meta", "rows", "type")

    def __init__(self, data: Any, call: Call | None, meta: Meta) -> None:
        self.data = data
        self.call = call
        self.meta = meta
        self.lazy: weakref.ref[Any] | None = None  # that the program sees, as long as it holds it
        self.rows: Any = None  # where these are, if at the partitions of a Split
        self.type: SplitType | None = None  # annotated, which knows the bytes of a value

    @property
    def is_held(self) -> bool:
        """Whether the program still holds the value."""
        return self.lazy is not None and self.lazy() is not None

    @property
    def is_pending(self) -> bool:
        """Whether its call has not run yet."""
        return self.call is not None

    @property
    def is_here(self) -> bool:
        """Whether it has been computed, and its data is in this process."""
        return self.call is None and self.rows is None

    def finish(self, data: Any) -> None:
        """Set the result of its call, and release the call."""
        self.data = data
        self.meta = meta_of(data)
        self.call = None


def source(data: Any) -> Node:
    """Return a node for an object that exists."""
    data = plain_array(data)
    return Node(data, None, meta_of(data))


class Call:
    """A captured call."""

    __slots__ = (
        "annotation", "args", "errcall", "errstate", "fn", "inputs", "kwargs", "number", "outputs",
        "site", "writes",
    )  # fmt: skip

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        annotation: Annotation,
        writes: tuple[Node, ...] = (),
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.annotation = annotation
        self.writes = writes
        values = (*args, *kwargs.values()) if kwargs else args
        self.inputs = tuple([value for value in values if isinstance(value, Node)])
        self.number = next(NUMBERS)
        self.site = Site.of_caller()
        self.errstate = np.geterr()
        self.errcall: Any = np.geterrcall()
        self.outputs: tuple[weakref.ref[Node], ...] = ()

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
        """Position or name of each input."""
        given: tuple[tuple[Any, Any], ...] = (*enumerate(self.args), *self.kwargs.items())
        return tuple([key for key, value in given if isinstance(value, Node)])

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
        args = tuple([value_of(each) if isinstance(each, Node) else each for each in self.args])
        kwargs = {
            name: value_of(each) if isinstance(each, Node) else each
            for name, each in self.kwargs.items()
        }
        return args, kwargs
