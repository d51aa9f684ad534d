"""``splittable``: annotate a function, so that its calls on lazy values are captured."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Final

import numpy as np

from spliter._errors import AnnotationError, WholeArrayError
from spliter._task_checks import check_task_function, name_of
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta
from spliter.pipeline._calls.split_types import (
    AnyType,
    Axis,
    Broadcast,
    Generic,
    Groups,
    Mut,
    Reduction,
    Rows,
    SplitType,
    Unknown,
    broadcast,
    first_step,
)
from spliter.pipeline._functions.checked import AsForOneRow, OnRows
from spliter.pipeline._functions.first_rows import of_length, try_first_rows, without_extents
from spliter.pipeline._values.capture import capture, plain, shared_graph, with_numbers
from spliter.pipeline._values.lazy import (
    Lazy,
    as_argument,
    as_now,
    compute,
    computed,
    identity,
    is_capturable,
    lazies_in,
)

DEFAULT: Final = Rows()
"""Split type of values for a ``Generic`` that nothing else determines."""


@dataclass(frozen=True)
class Annotated:
    """A function with its annotation.

    Parameters
    ----------
    fn : callable
    types : mapping of str to split type
        By parameter; others are passed whole.
    returns : split type, tuple of them, or None
    signature : Signature
    """

    fn: Callable[..., Any]
    types: Mapping[str, AnyType]
    returns: tuple[AnyType, ...]
    signature: inspect.Signature

    def capture(self, graph: Graph | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Capture a call.

        Parameters
        ----------
        graph : Graph or None
            Graph of the call, if no argument is lazy.
        args, kwargs
            Arguments, as the program passes them.
        """
        found = lazies_in((args, kwargs))
        graph = shared_graph(found) if graph is None or found else graph.root()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            return self.fn(*args, **kwargs)  # raises an error that says more
        types: list[AnyType] = []
        writes: list[Node] = []
        # In the order of the parameters, which is that of the inputs of the call.
        for name, parameter in self.signature.parameters.items():
            kind = self.types.get(name, broadcast)
            # The function itself would not cut the default of a parameter.
            default = None if name not in self.types or _is_empty(parameter) else parameter.default
            if (given := bound.arguments.get(name, default)) is None:
                continue
            # If no argument is lazy, the call runs before the program can change one.
            now = functools.partial(as_now, graph=graph) if found else identity
            try:
                filled, nodes = _as_nodes(given, kind, graph, parameter.kind, now)
            except WholeArrayError as error:
                if not isinstance(kind, Mut):
                    raise
                raise WholeArrayError(
                    f"{name_of(self.fn)} changes its argument {name!r} in place, and the blocks of "
                    "a Split stay as they are; let it return the changed value"
                ) from error
            bound.arguments[name] = filled
            types += [kind] * len(nodes)
            writes += nodes if isinstance(kind, Mut) else []
        if any(isinstance(each, Iterator) for each in bound.arguments.values()):  # read once
            return plain(self.fn, args, kwargs) if found else self.fn(*args, **kwargs)
        at_client = type(graph) is not Graph
        annotation = CallTypes(tuple(types), self.returns, not found, at_client)
        return capture(self.fn, bound.args, bound.kwargs, annotation, tuple(writes), graph=graph)


def _is_empty(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty


def _as_nodes(
    given: Any, kind: AnyType, graph: Graph, role: Any, now: Callable[[Any], Any]
) -> tuple[Any, list[Node]]:
    """Return the argument of a parameter with nodes in place of values, and the nodes."""
    if role is inspect.Parameter.VAR_POSITIONAL:
        filled: Any = tuple(_as_node(each, kind, graph, now) for each in given)
        values = list(filled)
    elif role is inspect.Parameter.VAR_KEYWORD:
        filled = {name: _as_node(each, kind, graph, now) for name, each in given.items()}
        values = list(filled.values())
    else:
        filled = _as_node(given, kind, graph, now)
        values = [filled]
    return filled, [each for each in values if isinstance(each, Node)]


def _as_node(value: Any, kind: AnyType, graph: Graph, now: Callable[[Any], Any]) -> Any:
    """Return a node for an argument that is lazy or cut; a plain value, as it is now, otherwise."""
    if isinstance(value, Lazy):
        meta = value._node.meta
        if isinstance(meta, ArrayMeta) and not (meta.shape or isinstance(kind, Broadcast)):
            return compute(value)  # a number, which is not cut
        if isinstance(kind, Mut) and value._node.is_pending:
            compute(value)
        return as_argument(value, graph, (value._node,) if isinstance(kind, Mut) else ())
    if isinstance(kind, Broadcast):
        value = computed(value)  # in lists and dicts
        return graph.operand(value) if is_capturable(value) else now(value)
    value = with_numbers(value)
    if value is None or np.isscalar(value):
        return value
    if lazies_in(value):  # pieces must be those of arrays, which the program may change
        value, graph.reads_plain = computed(value), graph.returns
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value
    is_changed = isinstance(kind, Mut)
    if is_changed:
        graph.reads_plain = graph.returns  # the program may read it at any time
    is_operand = is_capturable(value) and not is_changed
    node = graph.operand(value) if is_operand else graph.source(value if is_changed else now(value))
    inner = kind.type if isinstance(kind, Mut) else kind
    if isinstance(inner, SplitType):
        node.type = inner
    return node


@dataclass(frozen=True)
class CallTypes:
    """Annotation of one call: the types of its inputs, in their order, and of its results."""

    inputs: tuple[AnyType, ...]
    returns: tuple[AnyType, ...]

    direct: bool = False
    """Whether no call follows, so that nothing need be known of the results."""

    at_client: bool = False
    """Whether tasks run the call on whole blocks, or cut these anew."""

    is_users = True
    scratch = False

    def sent(self) -> CallTypes:
        """Return the annotation that a task gets."""
        return replace(self, at_client=False)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the one typing of the annotation, unless lengths differ."""
        cut = self._cut(call, known)
        if cut is None or any(map(_loses_changes, self.inputs, call.inputs)):
            return
        inputs, outputs = cut
        lengths = {
            _length_of(node, kind, call)
            for node, kind, have in zip(call.inputs, inputs, known, strict=True)
            if have is None and not isinstance(kind, Broadcast | Unknown)
        }
        is_cut = any(not isinstance(kind, Broadcast) for kind in inputs)
        if any(
            have is None and isinstance(kind, Unknown)
            for have, kind in zip(known, inputs, strict=True)
        ):
            return  # an array beside the rows of a filter
        if is_cut and len(lengths) <= 1 and 0 not in lengths:
            fn = self._checked(call, inputs, outputs)
            yield Typing(inputs, outputs, next(iter(lengths), None), fn, is_checked=True)

    def _checked(
        self, call: Call, inputs: Sequence[SplitType], outputs: Sequence[SplitType]
    ) -> Callable[..., Any] | None:
        """Return the function with a check, if the rows of a batch are counted in its pieces."""
        pairs = zip(call.keys, inputs, strict=True)
        of_rows = {key: kind for key, kind in pairs if isinstance(kind, Unknown)}
        if not of_rows or isinstance(call.fn, OnRows):
            return None
        # Over a Split, a pass may have shown what the results are.
        nodes = [each() for each in call.outputs]
        metas = tuple([None if node is None else node.meta for node in nodes])
        empties = tuple([None if meta is None else meta.empty for meta in metas])
        if isinstance(call.fn, AsForOneRow):
            metas = tuple(one or other for one, other in zip(call.fn.metas, metas, strict=True))
            both = zip(call.fn.empties, empties, strict=True)
            empties = tuple(other if one is None else one for one, other in both)
        has_rows = tuple(each in of_rows.values() for each in outputs)
        return OnRows(
            first_step(call.fn, outputs), (*of_rows,), (*outputs,), metas, empties, has_rows
        )

    def _cut(
        self, call: Call, known: tuple[SplitType | None, ...]
    ) -> tuple[tuple[SplitType, ...], tuple[SplitType, ...]] | None:
        """Return the types of inputs and results; ``None`` if lengths are of several calls."""
        generics = self._generics(known)
        inputs = [
            _concrete(kind, generics, node)
            for kind, node in zip(self.inputs, call.inputs, strict=True)
        ]
        tokens = {kind for kind in known if isinstance(kind, Unknown)}
        if len(tokens) > 1:
            return None
        has_positions = all(token.has_positions for token in tokens)
        if not has_positions and any(getattr(kind, "takes_start", False) for kind in self.returns):
            return None
        outputs = [_concrete(kind, generics, None) for kind in self.returns]
        for token in tokens:
            inputs = [token if kind == DEFAULT else kind for kind in inputs]
            outputs = [token if kind == DEFAULT else kind for kind in outputs]
        if not (has_positions or self.at_client) and any(map(_has_items, outputs)):
            return None
        outputs = [Unknown(call.number) if kind == Unknown() else kind for kind in outputs]
        return tuple(inputs), tuple(outputs)

    def _generics(self, known: tuple[SplitType | None, ...]) -> dict[str, SplitType]:
        found: dict[str, SplitType] = {}
        for kind, have in zip(self.inputs, known, strict=True):
            inner = kind.type if isinstance(kind, Mut) else kind
            if isinstance(inner, Generic) and have is not None:
                found[inner.name] = have
        return found

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return what a call on one row gives, if it succeeds; the function is to check that."""
        if not self.returns:
            return ()
        nothing: tuple[Meta, ...] = (None,) * len(self.returns)
        cut = self._cut(call, (None,) * len(call.inputs))
        if self.direct or call.writes or cut is None:
            return nothing
        if not any(isinstance(kind, Axis | Unknown) for kind in cut[1]):
            return nothing  # of what combines rows, nothing follows from one
        if isinstance(call.fn, OnRows):  # in a task of a Split
            metas = call.fn.metas
        elif (tried := try_first_rows(call, *cut)) is None:
            return nothing
        else:
            metas = tried.metas
            checked = [
                without_extents(meta) if isinstance(kind, Generic) else meta
                for meta, kind in zip(metas, self.returns, strict=True)
            ]
            if not isinstance(call.fn, np.ufunc):
                call.fn = AsForOneRow(call.fn, metas, tuple(checked), tried.empties)
        lengths = {
            _length_of(node, kind, call)
            for node, kind in zip(call.inputs, cut[0], strict=True)
            if not isinstance(kind, Broadcast | Unknown)
        }
        length = lengths.pop() if len(lengths) == 1 else None
        return tuple(of_length(*pair, length) for pair in zip(metas, cut[1], strict=True))


def _has_items(kind: SplitType) -> bool:
    """Return whether a result is cut otherwise than by rows, of which the number may be unknown."""
    return not isinstance(kind, Broadcast | Unknown | Reduction | Groups) and kind != DEFAULT


def _loses_changes(kind: AnyType, node: Node) -> bool:
    """Return whether an argument that is changed is cut into copies, as frames and lists are."""
    is_rows = isinstance(kind, Mut) and isinstance(kind.type, Axis | Generic)
    return is_rows and not isinstance(node.data, np.ndarray)


def _concrete(kind: AnyType, generics: Mapping[str, SplitType], node: Node | None) -> SplitType:
    """Return a split type without generics and negative axes."""
    if isinstance(kind, Mut):
        kind = kind.type
    if isinstance(kind, Generic):
        kind = generics.get(kind.name, DEFAULT)
    assert not isinstance(kind, Generic | Mut)
    if isinstance(kind, Axis) and kind.axis < 0 and node is not None:
        meta = node.meta
        return Axis(kind.axis + len(meta.shape)) if isinstance(meta, ArrayMeta) else kind
    return kind


def _length_of(node: Node, kind: SplitType, call: Call) -> int | None:
    """Return the number of items of an input; ``None`` if it is not known yet."""
    if node.is_pending:
        if isinstance(node.meta, FrameMeta):
            return node.meta.length
        if isinstance(kind, Axis) and isinstance(node.meta, ArrayMeta):
            return node.meta.shape[kind.axis] if kind.axis < len(node.meta.shape) else None
        return None
    try:
        length = operator.index(kind.length(node.data))
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise AnnotationError(
            f"{call.name} has an argument of type {type(node.data).__name__}, which is annotated "
            f"as {kind!r} but has no length by it ({error}); correct the annotation, or pass "
            "another value"
        ) from error
    if length < 0:
        raise AnnotationError(
            f"{type(kind).__name__}.length returned {length} for an argument of {call.name}; it "
            "must return a number of items"
        )
    return length


def splittable(
    fn: Callable[..., Any] | None = None, /, *, returns: Any, **types: Any
) -> Callable[..., Any]:
    """Annotate a function with the split types of its arguments and results.

    The function must give the same result for pieces of its arguments, merged, as for the whole
    arguments; :func:`spliter.testing.check_splittable` tries that. Called with plain arguments, the
    result is the plain function; with lazy ones, its calls are captured.

    Parameters
    ----------
    fn : callable
        Its body is not changed. Without it, the result is a decorator.
    returns : SplitType, tuple of SplitType, or None
        Types of what it returns; ``None`` if it returns nothing.
    **types : SplitType
        Types of its parameters, by name; the others are passed whole, as ``broadcast``.

    Returns
    -------
    callable

    Raises
    ------
    AnnotationError
        If it has no such parameter, or a type is not a split type.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import Rows, options, pipeline, splittable
    >>> def norms(points):
    ...     return np.sqrt((points**2).sum(axis=1))
    >>> by_batches = pipeline(splittable(norms, points=Rows(), returns=Rows()))
    >>> with options(batch=2):
    ...     by_batches(np.array([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]]))
    array([ 5., 10.,  1.])
    """
    if fn is None:
        return functools.partial(splittable, returns=returns, **types)
    check_task_function(fn, "an annotated function")
    annotated = _annotated(fn, types, returns)

    @functools.wraps(fn)
    def capture_or_call(*args: Any, **kwargs: Any) -> Any:
        if lazies_in((args, kwargs)):
            return annotated.capture(None, args, kwargs)
        return fn(*args, **kwargs)

    capture_or_call.__spliter_annotated__ = annotated  # type: ignore[attr-defined]
    return capture_or_call


def annotated_of(fn: Callable[..., Any]) -> Annotated | None:
    """Return the annotation of a function or method made by :func:`splittable`, or ``None``."""
    annotated: Annotated | None = getattr(fn, "__spliter_annotated__", None)
    method = fn if inspect.ismethod(fn) else getattr(fn, "__wrapped__", None)
    if annotated is None or not inspect.ismethod(method) or inspect.ismethod(annotated.fn):
        return annotated
    bound = MethodType(annotated.fn, method.__self__)  # fills its first parameter
    return replace(annotated, fn=bound, signature=inspect.signature(bound))


def _annotated(fn: Callable[..., Any], types: Mapping[str, Any], returns: Any) -> Annotated:
    name = name_of(fn)
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        raise AnnotationError(
            f"{name} has no signature that Python can read; wrap it in a function with named "
            "parameters, and annotate that"
        ) from None
    if wrong := sorted(types.keys() - signature.parameters.keys()):
        raise AnnotationError(
            f"{name} has no parameter {wrong[0]!r}; its parameters are "
            f"{', '.join(signature.parameters)}"
        )
    results = () if returns is None else returns if isinstance(returns, tuple) else (returns,)
    if isinstance(returns, tuple) and len(returns) < 2:
        wanted = returns[0] if returns else None
        raise AnnotationError(
            f"{name} is annotated with returns={returns!r}, and a tuple has two types or more; "
            f"pass returns={wanted!r}, and let the function return the result itself"
        )
    for given in types.values():
        kind = given.type if isinstance(given, Mut) else given
        _check_type(name, kind)
        if isinstance(kind, Reduction | Groups | Unknown):
            raise AnnotationError(
                f"{name} has an argument of type {kind!r}, which is for results; pass Rows() if it "
                "is cut, or broadcast"
            )
    for kind in results:
        _check_type(name, kind)
        if isinstance(kind, SplitType) and type(kind).merge is SplitType.merge:
            kind.merge(())  # says that it has none
        if len(results) > 1 and isinstance(kind, Reduction) and kind.partial is not None:
            raise AnnotationError(
                f"{name} has several results, and partial= of {kind!r} would make one of them; "
                "omit it, or annotate a function with that result alone"
            )
    return Annotated(fn, types, results, signature)


def _check_type(name: str, kind: Any) -> None:
    """Refuse what is no split type, or has no hash."""
    if not isinstance(kind, SplitType | Generic):
        raise AnnotationError(
            f"{name} is annotated with {kind!r}, which is not a split type there; pass Rows(), "
            "broadcast, or another one of spliter.pipeline"
        )
    try:
        hash(kind)
    except TypeError as error:
        raise AnnotationError(
            f"{name} is annotated with {kind!r}, which has no hash ({error}); make its class a "
            "dataclass with frozen=True and parameters that have one"
        ) from error
