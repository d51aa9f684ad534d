"""``check_splittable``: try whether an annotation gives the function's own results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from spliter._errors import AnnotationError
from spliter._task_checks import name_of
from spliter.pipeline import options, pipeline


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
        Made by :func:`spliter.pipeline.splittable` or :func:`spliter.pipeline.pipeline`.
    *args, **kwargs
        Plain arguments; some ten items that differ show most mistakes. Arguments that the function
        changes in place are copied first.
    batches : tuple of int
        Items of a batch to try.
    rtol : float, default 0
        Relative tolerance, such as ``1e-12`` for sums of floats, whose order the batches change; by
        default all bits must be equal.

    Raises
    ------
    AnnotationError
        If results or changed arguments differ.

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
    whole = _copied((args, kwargs))
    expected = _plain(fn)(*whole[0], **whole[1])
    for batch in batches:
        given = _copied((args, kwargs))
        with options(batch=batch, threads=2):
            found = pipeline(fn)(*given[0], **given[1])
        if not _equal((found, given), (expected, whole), rtol):
            raise AnnotationError(
                f"{name_of(fn)} gives another result in batches of {batch} than on whole "
                "arguments; correct its annotation"
            )


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return fn


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    return value.copy() if hasattr(value, "copy") else value


def _equal(one: Any, other: Any, rtol: float) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k], rtol) for k in one)
    if isinstance(one, list | tuple):
        same = len(one) == len(other)
        return same and all(_equal(a, b, rtol) for a, b in zip(one, other, strict=True))
    if hasattr(type(one), "iloc"):
        return bool(one.equals(other))
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and _equal_arrays(one, other, rtol)
    return bool(one == other)


def _equal_arrays(one: Any, other: Any, rtol: float) -> bool:
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    if one.shape != other.shape:
        return False
    return bool(np.allclose(one, other, rtol=rtol, atol=0, equal_nan=True))
