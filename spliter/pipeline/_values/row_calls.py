"""Functions of NumPy over a Split that compute each row, or each block's share, by itself.

In this process they run on whole arrays: most are quick, and products have other bits for batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np

from spliter.pipeline._annotations.rows import (
    OPERATOR,
    ROWS,
    Chosen,
    RowsCall,
    Rule,
    token_of,
)
from spliter.pipeline._calls.calls import Call, Typing
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._calls.metas import ArrayMeta, Meta, meta_of
from spliter.pipeline._calls.split_types import Reduction, SplitType
from spliter.pipeline._values.any_rows import (
    TRIED,
    Filled,
    Place,
    check_for_any_rows,
    has_rows,
    mapped,
    ones,
    result_of,
)
from spliter.pipeline._values.capture import LAZY_CLASSES, capture, graph_of
from spliter.pipeline._values.lazy import compute, lazies_in

_SUM: Final = Reduction(None, np.add, commutative=True)
SUM: Final = Rule(lambda number, rows: _SUM)
"""Results of blocks add up."""

RuleOf: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Rule | None]
"""Given a function and its arguments, returns how a call is cut; nothing if it is not."""


def capture_by_rows(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Capture a call over a Split of which blocks make the result; ``NotImplemented`` for others.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    """
    lazies = lazies_over_split(args, kwargs) if fn in RULES else []
    rule = RULES[fn](fn, args, kwargs) if lazies else None
    if rule is None:
        return NotImplemented
    numbers = {id(each): number for number, each in enumerate(lazies)}

    def placed(each: Any) -> Any:
        if id(each) in numbers:
            return Place(numbers[id(each)])
        value = compute(each)
        return value.copy() if isinstance(value, np.ndarray) else value  # the program may change it

    filled = Filled(fn, mapped(placed, args), mapped(placed, kwargs))
    tried = _tried(filled, lazies, rule)
    if tried is None:
        return NotImplemented
    meta, of_views = tried
    made = capture(filled, tuple(lazies), {}, RowsCall(rule, (True,) * len(lazies), meta))
    for at in of_views:
        made._graph.root().add_view(made, lazies[at], None)
    return made


def lazies_over_split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the lazy arrays with rows over a Split among the arguments of a call, each once.

    Parameters
    ----------
    args, kwargs
        Arguments.

    Returns
    -------
    list of LazyArray
        Empty if another argument is a frame, or an array for the result.
    """
    lazies = {id(each): each for each in lazies_in((args, kwargs))}
    if not all(type(each) is LAZY_CLASSES[ArrayMeta] for each in lazies.values()):
        return []
    of_rows = [each for each in lazies.values() if has_rows(each)]
    is_here = not of_rows or type(graph_of(of_rows)) is Graph
    return [] if is_here or "out" in kwargs else of_rows


def _tried(filled: Filled, lazies: Sequence[Any], rule: Rule) -> tuple[ArrayMeta, list[int]] | None:
    """Return the meta of a result, and the numbers of the arrays of which it is a view.

    Nothing if it has not as many rows as its arguments; raises what has to do with no rows.
    """
    given = [[ones(each, rows) for each in lazies] for rows in TRIED]
    results = [result_of(filled, each) for each in given]
    if all(isinstance(each, Exception) for each in results):
        check_for_any_rows(filled, lazies, results)
    one, other = map(meta_of, results)
    if not isinstance(one, ArrayMeta) or not isinstance(other, ArrayMeta):
        return None
    if rule is SUM:
        return (one, []) if one.shape == other.shape else None
    if (one.length, other.length, one.shape[1:]) != (*TRIED, other.shape[1:]):
        return None
    of_views = [at for at, each in enumerate(given[0]) if np.may_share_memory(results[0], each)]
    return ArrayMeta((None, *one.shape[1:]), one.dtype, exact=False), of_views


def _by_rows(fn: Callable[..., Any], args: Any, kwargs: Any) -> Rule | None:
    return OPERATOR


def _along_others(fn: Callable[..., Any], args: Any, kwargs: Any) -> Rule | None:
    """Return the rule of a function that works along an axis which is not the first one."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    axis, lazies = bound.arguments["axis"], lazies_in(args)
    # To an axis that there is not the function itself objects.
    is_other = type(axis) is int and lazies and axis not in (0, -lazies[0].ndim)
    return OPERATOR if is_other and bound.arguments.get("out") is None else None


def _product(fn: Callable[..., Any], args: Any, kwargs: Any) -> Rule | None:
    """Return the rule of a product: of rows with a table, or of two columns."""
    one, other = map(has_rows, args) if len(args) == 2 else (False, False)
    if one and other:
        adds_up = fn is np.vdot or (fn is not np.outer and args[0].ndim == args[1].ndim == 1)
        return SUM if adds_up else None
    return OPERATOR if one and fn is not np.vdot else None


def _summed_products(fn: Callable[..., Any], args: Any, kwargs: Any) -> Rule | None:
    """Return the rule of ``numpy.einsum`` whose terms with rows begin with the same letter."""
    given, arrow, result = str(args[0]).replace(" ", "").partition("->")
    terms = [*zip(given.split(","), args[1:], strict=False)]
    letters = {term[:1] for term, each in terms if has_rows(each)}
    rest = [term[1:] if has_rows(each) else term for term, each in terms]
    if not arrow or "." in given or len(letters) != 1 or any(letters & {*each} for each in rest):
        return None
    if letters & {*result[:1]}:
        return OPERATOR
    return SUM if all(has_rows(each) for _, each in terms) and not letters & {*result} else None


def with_elements(target: Any, index: Any, value: Any) -> Any:
    """Return a copy of an array with some elements of each row set."""
    result = target.copy("K")
    result[index] = value
    return result


def _sum(fn: Callable[..., Any], args: Any, kwargs: Any) -> Rule | None:
    return SUM


def counts_in_bins(a: Any, bins: Any, range: Any) -> Any:
    """Return the first result of ``numpy.histogram``."""
    return np.histogram(a, bins, range)[0]


def counts_of_integers(x: Any, weights: Any, length: int) -> Any:
    """Return as many counts as `numpy.bincount` gives for all rows."""
    return np.bincount(x, weights, length)


RULES: Final[Mapping[Any, RuleOf]] = {
    **dict.fromkeys(
        (
            *(np.concatenate, np.hstack, np.dstack, np.stack, np.column_stack, np.append),
            *(np.real, np.select, np.expand_dims, np.cross, np.empty_like),
        ),
        _by_rows,
    ),
    np.imag: lambda fn, args, kwargs: OPERATOR if args[0].dtype.kind == "c" else None,
    **dict.fromkeys(
        (
            *(np.diff, np.flip, np.roll, np.gradient, np.trapezoid, np.take, np.delete, np.insert),
            *(np.repeat, np.squeeze),
        ),
        _along_others,
    ),
    **dict.fromkeys((np.matmul, np.dot, np.inner, np.outer, np.vdot), _product),
    np.einsum: _summed_products,
    with_elements: _by_rows,
    **dict.fromkeys((counts_in_bins, counts_of_integers), _sum),
}
"""Rules by function. A call must also give as many rows as its arguments have."""


def capture_rows_at(target: Any, mask: Any, value: Any) -> Any:
    """Capture the change of the rows of a mask to rows that the same mask has chosen.

    Parameters
    ----------
    target, mask : LazyArray
        Of the same rows of a Split.
    value : LazyArray
        Other values need all rows.
    """
    return capture(with_elements, (target, mask, value), {}, RowsAt())


class RowsAt:
    """Annotation of such a change."""

    is_users = False
    scratch = False

    def metas(self, call: Call) -> tuple[Meta, ...]:
        """Return the meta of the array; raises if the rows do not fit."""
        target, _, value = [cast(ArrayMeta, node.meta) for node in call.inputs]
        try:
            np.broadcast_to(value.empty, target.empty.shape)
        except ValueError:
            raise ValueError(
                f"shape mismatch: value array of shape {value.shape} could not be broadcast to "
                f"indexing result of shape {target.shape}".replace("None", "n").replace(", ", ",")
            ) from None
        return (target._replace(exact=False),)

    def typings(self, call: Call, known: tuple[SplitType | None, ...]) -> Iterable[Typing]:
        """Return the typing by rows, if the mask is the one that has chosen those of the value."""
        rows, _, chosen = known
        mask = call.inputs[1]
        if isinstance(chosen, Chosen) and chosen.token == token_of(mask, call):
            meta = cast(ArrayMeta, call.inputs[0].meta)
            rows = rows or ROWS
            length = meta.length if rows == ROWS else None
            yield Typing((rows, rows, chosen), (rows,), length)


def relatives(value: Any) -> list[tuple[Any, Any, Any]]:
    """Return the views among the arrays that share elements with one.

    Parameters
    ----------
    value : LazyArray

    Returns
    -------
    list of (LazyArray, LazyArray, index)
        What each is a view of, and by which index; ``None`` for another function.
    """
    graph = value._graph.root()
    while len(held := [each for each in graph.views if each[0]() is not None]) < len(graph.views):
        graph.views = held  # others may have been held by those that the program has dropped
    views = [(view(), base(), index) for view, base, index in held]
    views = [each for each in views if each[1] is not None]
    found = [value]
    for one in found:  # and those that the loop adds
        pairs = [each[:2] for each in views if one is each[0] or one is each[1]]
        found += [each for pair in pairs for each in pair if not any(each is x for x in found)]
    return [each for each in views if any(each[0] is one for one in found)]


def check_views(value: Any) -> None:
    """Raise if an array over a Split shares elements with a view that is not one by an index.

    Parameters
    ----------
    value : LazyArray
        That will change.
    """
    if any(index is None for *_, index in relatives(value)):
        compute(value)


def keep_views(changed: Any) -> None:
    """Let an array over a Split, of which one is a view, change with it, and views of it, too.

    Parameters
    ----------
    changed : LazyArray
    """
    views = relatives(changed)
    while found := [each for each in views if each[0] is changed]:
        ((view, changed, index),) = found
        changed._take_over(capture_by_rows(with_elements, (changed, index, view), {})._node)
    changes = [changed]
    for whole in changes:  # and those that the loop adds
        for view, base, index in views:
            if base is whole:
                view._take_over(whole[index]._node)
                changes.append(view)
