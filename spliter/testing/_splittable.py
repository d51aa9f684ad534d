"""``check_splittable``: try whether an annotation gives the function's own results."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from spliter._checks import name_of
from spliter._errors import AnnotationError, InvalidArgumentError, SplIterError
from spliter._split import Split
from spliter.pipeline import options, pipeline
from spliter.pipeline._annotations.users import Annotated
from spliter.pipeline._calls.reductions import Reduction
from spliter.pipeline._calls.split_types import AnyType, Mut, broadcast
from spliter.pipeline._capture.annotated import annotated_of, splittable
from spliter.pipeline._capture.lazy import lazies_in
from spliter.testing._equality import equal


def check_splittable(
    fn: Callable[..., Any],
    /,
    *args: Any,
    batches: tuple[int, ...] = (1, 2, 3, 7),
    rtol: float = 0.0,
    **kwargs: Any,
) -> None:
    """Check that a function gives the same results on pieces of its arguments as on the whole ones.

    Parameters
    ----------
    fn : callable
        Made by :func:`spliter.pipeline.splittable` or :func:`spliter.pipeline.pipeline`; it must
        keep nothing from call to call.
    *args, **kwargs
        Plain arguments; some ten items that differ show most mistakes. What can be compared is
        copied first; changes of other objects are not seen.
    batches : tuple of int
        Items of a batch to try.
    rtol : float, default 0
        Relative tolerance, such as ``1e-12`` for sums of floats, whose order the batches change; by
        default all bits must be equal. NaN equals NaN.

    Raises
    ------
    AnnotationError
        If the function has no annotation, if results or changed arguments differ, if an argument
        changes that is not marked :func:`~spliter.pipeline.mut`, if the function raises on a batch
        only, or if a reduction that is said to be commutative is not (of functions in the body of a
        pipeline this is not tried).
    InvalidArgumentError
        If there are no batches to try, `rtol` is less than 0, or an argument is lazy or a Split.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import AnnotationError
    >>> from spliter.pipeline import Rows, splittable
    >>> from spliter.testing import check_splittable
    >>> check_splittable(splittable(np.square, x=Rows(), returns=Rows()), np.arange(9.0))
    >>> running = splittable(lambda x: np.cumsum(x), x=Rows(), returns=Rows())
    >>> try:
    ...     check_splittable(running, np.arange(9.0))
    ... except AnnotationError as error:
    ...     print(error)
    <lambda> gives another result in batches of 1 than on whole arguments; correct its annotation
    """
    if not hasattr(fn, "__wrapped__"):
        raise AnnotationError(
            f"{name_of(fn)} has no annotation; pass what splittable or pipeline makes of it"
        )
    given = (*args, *kwargs.values())
    is_tried = isinstance(batches, Sequence) and len(batches) > 0
    is_tolerance = isinstance(rtol, int | float) and rtol >= 0
    is_plain = not lazies_in(given) and not any(isinstance(each, Split) for each in given)
    if not (is_tried and is_tolerance and is_plain):
        raise InvalidArgumentError(
            f"check_splittable got batches={batches!r}, rtol={rtol!r} and arguments of the types "
            f"{', '.join(type(each).__name__ for each in given)}; pass a tuple of one number of "
            "items or more, a tolerance of 0 or more, and plain arrays, frames and other values"
        )
    whole = _copied((args, kwargs))
    expected = _plain(fn)(*whole[0], **whole[1])
    if annotated := annotated_of(fn):
        _check_unmarked(annotated, (args, kwargs), whole)
    turned = annotated and _turned(annotated)
    for batch in batches:
        found = _found_in_batches(fn, args, kwargs, batch)
        if not equal(found, (expected, whole), rtol):
            raise AnnotationError(
                f"{name_of(fn)} gives another result in batches of {batch} than on whole "
                "arguments; correct its annotation"
            )
        if turned and not equal(_found_in_batches(turned, args, kwargs, batch), found, rtol):
            raise AnnotationError(
                f"{name_of(fn)} gives another result if its partial results are combined in "
                "another order; omit commutative=True"
            )


def _found_in_batches(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], batch: int
) -> tuple[Any, Any]:
    """Return the result of a function, and its arguments after the call."""
    given = _copied((args, kwargs))
    with options(batch=batch, threads=2):
        return _run_in_batches(fn, *given), given


def _turned(annotated: Annotated) -> Callable[..., Any] | None:
    """Return a function that combines partial results in the other order, where it may."""
    returns = tuple([_with_turned_merge(kind) for kind in annotated.returns])
    if returns == annotated.returns:
        return None
    return splittable(
        annotated.fn, returns=returns if len(returns) > 1 else returns[0], **annotated.types
    )


def _with_turned_merge(kind: AnyType) -> AnyType:
    if not isinstance(kind, Reduction) or not kind.commutative:
        return kind
    turned = copy.copy(kind)
    turned.merge_two = lambda one, other: kind.merge_two(other, one)
    return turned


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    while hasattr(fn, "__wrapped__"):
        own = getattr(fn, "__self__", None)
        fn = fn.__wrapped__ if own is None else functools.partial(fn.__wrapped__, own)
    return fn


def _check_unmarked(annotated: Annotated, before: Any, after: Any) -> None:
    """Refuse a change of an argument that is not marked ``mut``."""
    was, now = (annotated.signature.bind(*args, **kwargs) for args, kwargs in (before, after))
    for name, value in was.arguments.items():
        kind = annotated.types.get(name, broadcast)
        if not isinstance(kind, Mut) and not equal(value, now.arguments[name]):
            raise AnnotationError(
                f"{name_of(annotated.fn)} changes its argument {name!r} in place; annotate it as "
                f"{name}=mut({kind!r})"
            )


def _run_in_batches(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function as a pipeline; what a call raises is not raised on whole arguments."""
    try:
        return pipeline(fn)(*args, **kwargs)
    except SplIterError:
        raise
    except Exception as error:
        where = " ".join(getattr(error, "__notes__", ()))
        raise AnnotationError(
            f"{name_of(fn)} raised {error!r} ({where}), but not on whole arguments; correct its "
            "annotation"
        ) from error


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        made = copy.copy(value)  # of its class
        for key, each in value.items():
            made[key] = _copied(each)
        return made
    if type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    if hasattr(type(value), "copy") and type(made := value.copy()) is type(value):
        return made
    # Of others, no change would be seen.
    is_comparable: bool = type(value).__eq__ is not object.__eq__  # type: ignore[comparison-overlap]
    if is_comparable:
        with contextlib.suppress(TypeError):  # some cannot be copied, such as ``dict.keys()``
            return copy.deepcopy(value)
    return value
