"""``splittable``: annotate a function, so that its calls on lazy values are captured."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from spliter._checks import check_task_function, name_of
from spliter._errors import AnnotationError
from spliter.pipeline._annotations.users import Annotated, CallTypes
from spliter.pipeline._calls.calls import Call, Node, source
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.groups import aggregated, bound
from spliter.pipeline._calls.reductions import Reduction
from spliter.pipeline._calls.split_types import (
    AnyType,
    Broadcast,
    Generic,
    Mut,
    Rows,
    SplitType,
    Unknown,
    broadcast,
)
from spliter.pipeline._capture.capture import COLUMNS, add, as_argument, graph_of, plain, refused
from spliter.pipeline._capture.containers import wrapped
from spliter.pipeline._capture.lazy import Lazy, compute, computed, lazies_in


def capture_annotated(annotated: Annotated, graph: Graph | None, args: Any, kwargs: Any) -> Any:
    """Capture a call of an annotated function."""
    found = lazies_in((args, kwargs))
    graph = graph_of(found) if graph is None or found else graph
    graph.check()
    try:
        bound = annotated.signature.bind(*args, **kwargs)
    except TypeError:
        return annotated.fn(*args, **kwargs)  # raises an error that says more
    if any(isinstance(each, Iterator) for each in bound.arguments.values()):  # read once
        return plain(annotated.fn, args, kwargs)
    types: list[tuple[str, AnyType]] = []
    writes: list[Node] = []
    # In the order of the parameters, which is that of the inputs of the call.
    for name, parameter in annotated.signature.parameters.items():
        kind = annotated.types.get(name, broadcast)
        # The function itself would not cut the default of a parameter.
        default = None if name not in annotated.types else parameter.default
        given = bound.arguments.get(name, default)
        if given is None or given is parameter.empty:
            continue
        if isinstance(kind, Mut):
            _prepare_change(given, graph, annotated, name)
        bound.arguments[name] = filled = _as_node(given, kind, graph)
        if isinstance(filled, Node):
            types.append((name, kind))
            writes += [filled] if isinstance(kind, Mut) else []
    annotation = CallTypes(tuple(types), annotated.returns)
    result = add(Call(annotated.fn, bound.args, bound.kwargs, annotation, tuple(writes)), graph)
    if writes:
        graph.evaluate()
    return result


def _prepare_change(value: Any, graph: Graph, annotated: Annotated, name: str) -> None:
    """Run what reads an argument before it is changed; refuse that over a Split."""
    if graph.is_over_split:
        raise refused(
            f"calls {name_of(annotated.fn)}, which changes its argument {name!r} in place, and "
            "the blocks of a Split stay as they are",
            "let it return the changed value, as a new name",
        )
    if isinstance(value, Lazy) and value._fixed == COLUMNS:  # which share no memory here
        raise refused(f"calls {name_of(annotated.fn)}, which changes {COLUMNS}, in place")
    graph.evaluate()


def _as_node(value: Any, kind: AnyType, graph: Graph) -> Any:
    """Return a node for an argument that is lazy or cut; a plain value otherwise."""
    if isinstance(value, Lazy):
        meta = value._node.meta
        if meta is not None and not (meta.shape or isinstance(kind, Broadcast)):
            return compute(value)  # a number, which is not cut
        return as_argument(value, graph)
    if isinstance(kind, Broadcast):
        return as_argument(computed(value), graph)
    if value is None or np.isscalar(value) or (isinstance(value, np.ndarray) and not value.ndim):
        return value
    inner = kind.type if isinstance(kind, Mut) else kind
    given = value if isinstance(kind, Mut) else as_argument(computed(value), graph)
    node = given if isinstance(given, Node) else source(given)
    node.type = inner if isinstance(inner, SplitType) else None
    return node


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
        Types of what it returns; ``None`` if it returns nothing. Of ``Rows(like="x")`` and
        ``Rows(dtype=, shape=)``, dtype and shape are known before it runs.
    **types : SplitType
        Types of its parameters, by name; the others are passed whole, as ``broadcast``.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import Rows, options, pipeline, splittable
    >>> def norms(points):
    ...     return np.sqrt((points**2).sum(axis=1))
    >>> by_batches = pipeline(splittable(norms, points=Rows(), returns=Rows(dtype=float)))
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
            return capture_annotated(annotated, None, args, kwargs)
        return annotated.fn(*args, **kwargs)

    capture_or_call.__wrapped__ = annotated.fn  # which gives aggregates in place of group-bys
    capture_or_call.__spliter_annotated__ = annotated  # type: ignore[attr-defined]
    return capture_or_call


def annotated_of(fn: Callable[..., Any]) -> Annotated | None:
    """Return the annotation of a function or method made by :func:`splittable`, or ``None``."""
    annotated: Annotated | None = getattr(fn, "__spliter_annotated__", None)
    method = fn if inspect.ismethod(fn) else getattr(fn, "__wrapped__", None)
    if annotated is None or not inspect.ismethod(method) or inspect.ismethod(annotated.fn):
        return annotated
    _, *others = annotated.signature.parameters.values()
    signature = annotated.signature.replace(parameters=others)
    return replace(annotated, fn=bound(annotated.fn, method.__self__), signature=signature)


def captured(fn: Callable[..., Any], graph: Graph, args: Any, kwargs: Any) -> Any:
    """Run a function on lazy arguments; return what it returns, not evaluated."""
    made: dict[int, Any] = {}
    lazies = tuple([wrapped(each, graph, made) for each in args])
    named = {name: wrapped(each, graph, made) for name, each in kwargs.items()}
    annotated = annotated_of(fn)
    try:
        if annotated is not None:
            return capture_annotated(annotated, graph, lazies, named)
        return fn(*lazies, **named)
    except BaseException as error:
        graph.root().fail(error)
        raise


def _annotated(fn: Callable[..., Any], types: Mapping[str, Any], returns: Any) -> Annotated:
    name = name_of(fn)
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        raise AnnotationError(
            f"{name} has no signature that Python can read; wrap it in a function with named "
            "parameters, and annotate that"
        ) from None
    if isinstance(returns, tuple) and len(returns) < 2:
        raise AnnotationError(
            f"{name} is annotated with returns={returns!r}, and a tuple has two types or more; "
            "pass the type itself, or None"
        )
    results = () if returns is None else returns if isinstance(returns, tuple) else (returns,)
    likes = [kind.like for kind in results if isinstance(kind, Rows) and kind.like is not None]
    if wrong := sorted({*types, *likes} - signature.parameters.keys()):
        raise AnnotationError(
            f"{name} has no parameter {wrong[0]!r}; its parameters are "
            f"{', '.join(signature.parameters)}"
        )
    for parameter, given in types.items():
        kind = given.type if isinstance(given, Mut) else given
        _check_type(name, kind)
        if signature.parameters[parameter].kind in (2, 4):
            raise AnnotationError(
                f"{name} takes any number of arguments as {parameter!r}, which cannot be cut; name "
                "each one that is"
            )
        if isinstance(kind, Unknown) or getattr(kind, "combines", False):
            raise AnnotationError(
                f"{name} has an argument of type {kind!r}, which is for results; pass Rows() if it "
                "is cut, or broadcast"
            )
    for kind in results:
        _check_result(name, kind, len(results))
    return Annotated(aggregated(fn, results), types, results, signature)


def _check_result(name: str, kind: Any, results: int) -> None:
    _check_type(name, kind)
    if isinstance(kind, SplitType) and type(kind).merge is SplitType.merge:
        kind.merge(())  # says that it has none
    if results > 1 and isinstance(kind, Reduction) and kind.partial is not None:
        raise AnnotationError(
            f"{name} has several results, and partial= of {kind!r} would make one of them; omit "
            "it, or annotate a function with that result alone"
        )


def _check_type(name: str, kind: Any) -> None:
    """Refuse what is no split type, or has no hash."""
    is_type = isinstance(kind, SplitType | Generic)
    if not (is_type and isinstance(kind, Hashable)):
        what = "has no hash" if is_type else "is not a split type there"
        raise AnnotationError(
            f"{name} is annotated with {kind!r}, which {what}; pass Rows(), broadcast, or a frozen "
            "dataclass that is derived from SplitType"
        )
