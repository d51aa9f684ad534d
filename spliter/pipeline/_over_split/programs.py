"""The calls of one pass, in the form in which they are sent to each partition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from spliter.pipeline._annotations.users import OfSomeRows
from spliter.pipeline._calls.calls import Annotation, Call, Node, Typing
from spliter.pipeline._calls.metas import Meta
from spliter.pipeline._calls.reductions import first_step
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._calls.split_types import SplitType
from spliter.pipeline._over_split.partials import Merger, Partial


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a pass, by its number."""

    number: int


def named(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function under the name of another one, for errors."""
    step = functools.partial(fn)
    vars(step)["__name__"] = name
    return step


@dataclass
class Unfinished:
    """Annotation of a call whose reductions the client combines: it makes partial results."""

    annotation: Annotation
    combines: tuple[bool, ...]
    scratch: bool

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typings of the annotation that cut the rows, without the last step."""
        for typing in self.annotation.typings(call, known):
            if tuple([kind.combines for kind in typing.outputs]) == self.combines:
                outputs = tuple([Partial(o) if o.combines else o for o in typing.outputs])
                yield Typing(typing.inputs, outputs, typing.length, is_checked=typing.is_checked)

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return nothing of partial results."""
        if all(self.combines):
            return (None,) * len(self.combines)
        metas = zip(self.annotation.metas(call), self.combines, strict=True)
        return tuple([None if is_combined else meta for meta, is_combined in metas])


@dataclass(frozen=True)
class SentCall:
    """A call; values are :class:`Ref` objects."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    annotation: Annotation
    errstate: Any
    line: tuple[str, int]
    takes_start: bool
    outputs: tuple[int | None, ...]
    """Numbers of its results; ``None`` for those that nobody needs."""

    @classmethod
    def of(
        cls, call: Call, typing: Typing, rows: set[Node], number_of: Callable[[Node], int]
    ) -> SentCall:
        """Return the form of a call."""
        live = dict(call.live_outputs())
        outputs = tuple(
            [number_of(live[at]) if at in live else None for at in range(len(call.outputs))]
        )
        args, kwargs = call.filled(lambda node: Ref(number_of(node)))
        fn, annotation = call.fn, call.annotation
        combines = tuple([kind.combines for kind in typing.outputs])
        if any(combines):
            annotation = Unfinished(annotation, combines, annotation.scratch)
            fn = first_step(fn, typing.outputs)
            if all(combines):
                fn = OfSomeRows(fn, _keys_of(call, rows), len(combines))
            fn = named(fn, call.name)
        takes_start = any(getattr(kind, "takes_start", False) for kind in typing.outputs)
        line = (call.site.filename, call.site.lineno)
        return cls(fn, args, kwargs, annotation, {**call.errstate}, line, takes_start, outputs)

    def call(self, nodes: dict[int, Node], fn: Callable[..., Any]) -> Call:
        """Return the call on the values of a block."""

        def filled(value: Any) -> Any:
            return nodes[value.number] if isinstance(value, Ref) else value

        args = tuple(map(filled, self.args))
        kwargs = {name: filled(value) for name, value in self.kwargs.items()}
        call = Call(fn, args, kwargs, self.annotation)
        call.site, call.errstate, call.errcall = Site(*self.line, {}), self.errstate, None
        made = call.make_outputs(self.annotation.metas(call))
        pairs = zip(self.outputs, made, strict=True)
        nodes.update({at: node for at, node in pairs if at is not None})
        return call


def _keys_of(call: Call, nodes: set[Node]) -> tuple[int | str, ...]:
    """Return the positions and names of the arguments that are some values."""
    given: Iterable[tuple[int | str, Any]] = (*enumerate(call.args), *call.kwargs.items())
    return tuple([key for key, each in given if isinstance(each, Node) and each in nodes])


@dataclass(frozen=True)
class Kept:
    """A result with rows, which stays at the partition."""

    number: int
    name: str
    has_all: bool
    """Whether it has a row for each row of the block."""


@dataclass(frozen=True)
class Program:
    """What one task per partition computes."""

    examples: tuple[Any, ...]
    """No rows of each collection of the Split."""
    members: tuple[int, ...]
    """Numbers of the collections."""
    carried: tuple[tuple[int, int, int], ...]
    """Values of earlier passes: which pass, which of its results, and the number of the value."""
    wholes: dict[int, Any]
    """Values that every partition gets, by their numbers."""
    calls: tuple[SentCall, ...]
    rows: tuple[Kept, ...]
    reductions: tuple[tuple[int, Merger], ...]
