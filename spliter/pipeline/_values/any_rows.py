"""Run functions on arrays of some rows, to know what they do with arrays of any number of rows."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.metas import ArrayMeta
from spliter.pipeline._values.lazy import Lazy, computed

TRIED: Final = (5, 7)
"""Rows of the arrays on which a function is tried: its result must have as many."""

MAX_ROWS: Final = 1000
"""Of other arguments, as many as which are tried."""

MISTAKES: Final = (ValueError, TypeError, IndexError, np.exceptions.AxisError)
"""Types of errors that may have to do with no rows."""

WRITERS: Final = frozenset({"save", "savetxt", "savez", "savez_compressed", "tofile", "dump"})
"""Functions of NumPy that must not get other arrays."""


@dataclass(frozen=True)
class Place:
    """Where a lazy value is among the arguments of a function, by its number."""

    number: int


@dataclass(frozen=True, eq=False)
class Filled:
    """A function of the lazy values among its arguments.

    Parameters
    ----------
    fn : callable
    args, kwargs
        With a :class:`Place` for each lazy value.
    """

    fn: Callable[..., Any]
    args: Any
    kwargs: Any

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", self.fn))

    def __call__(self, *values: Any) -> Any:
        """Call the function."""

        def value_of(each: Any) -> Any:
            return values[each.number] if isinstance(each, Place) else each

        return self.fn(*mapped(value_of, self.args), **mapped(value_of, self.kwargs))


def mapped(change: Callable[[Any], Any], given: Any) -> Any:
    """Return arguments with each of them changed, also in lists, tuples and dicts."""
    if isinstance(given, dict):
        return {name: mapped(change, each) for name, each in given.items()}
    if type(given) in (list, tuple):
        return type(given)(mapped(change, each) for each in given)
    return change(given)


def has_rows(value: Any) -> bool:
    """Return whether a value is a lazy array of an unknown number of rows."""
    meta = value._node.meta if isinstance(value, Lazy) else None
    return isinstance(meta, ArrayMeta) and meta.shape[:1] == (None,)


def check_mistake(fn: Any, args: Any, kwargs: Any, lazies: Sequence[Lazy]) -> None:
    """Raise the error of a call of NumPy's over a Split that has to do with no rows.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Its arguments.
    lazies : sequence of Lazy
        All lazy values in them.
    """
    of_rows = [each for each in lazies if has_rows(each)]
    of_frames = any(not isinstance(each._node.meta, ArrayMeta) for each in lazies)
    if not of_rows or of_frames or not _is_of_numpy(fn):
        return
    numbers = {id(each): number for number, each in enumerate(of_rows)}
    callbacks = []

    def placed(each: Any) -> Any:
        if id(each) in numbers:
            return Place(numbers[id(each)])
        value = computed(each)
        callbacks.append(callable(value) and not isinstance(value, type))
        return value.copy() if isinstance(value, np.ndarray) else value  # it may change

    filled = Filled(fn, mapped(placed, args), mapped(placed, kwargs))
    if any(callbacks):
        return
    errors = [result_of(filled, [ones(each, rows) for each in of_rows]) for rows in TRIED]
    if all(type(each) in MISTAKES for each in errors):
        check_for_any_rows(filled, of_rows, errors)


def _is_of_numpy(fn: Any) -> bool:
    is_method = getattr(fn, "__objclass__", None) is np.ndarray
    is_ufunc = isinstance(getattr(fn, "__self__", fn), np.ufunc)
    module = str(getattr(fn, "__module__", ""))
    is_known = is_method or is_ufunc or module == "_operator" or module.startswith("numpy")
    return is_known and getattr(fn, "__name__", None) not in WRITERS


def check_for_any_rows(filled: Filled, lazies: Sequence[Any], errors: Sequence[Any]) -> None:
    """Raise the error of a function unless it has to do with the number of rows.

    The Split may have one row, as many as another argument or as a number says, and zeros in place
    of ones.
    """
    given = (filled.args, filled.kwargs)
    numbers = _integers(given)
    # Unknown extents are None.
    widths = [[each for each in lazy._node.meta.shape[1:] if each] for lazy in lazies]
    sizes = [math.prod(numbers) // math.prod(width) for width in widths]  # as of reshape
    counts = {1, *_extents(given), *numbers, *(each + 1 for each in numbers), *sizes}
    if max(counts) > MAX_ROWS:
        return
    counts = {each for each in counts.union(*widths) if 0 < each <= MAX_ROWS}
    made = [[ones(each, rows) for each in lazies] for rows in counts]
    zeros = [np.zeros_like(ones(each, TRIED[0])) for each in lazies]
    others = [result_of(filled, given) for given in (*made, zeros)]
    kinds = {type(each) for each in (*errors, *others)}
    one, other = (re.findall(r"\d+|\D+", str(each)) for each in errors)
    if len(kinds) == 1 and one == other:
        raise errors[0]
    if kinds <= {ValueError, TypeError} and len(kinds) == 1 and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        raise kinds.pop()("".join(here if here == there else "n" for here, there in pairs))


def _extents(given: Any) -> set[int]:
    """Return the lengths of arguments along all axes."""
    if isinstance(given, dict):
        given = [*given.values()]
    if isinstance(given, list | tuple):
        return {len(given)}.union(*map(_extents, given))
    return {*np.shape(given)}


def _integers(given: Any) -> list[int]:
    """Return the absolute values of the integers among arguments."""
    if isinstance(given, dict):
        given = [*given.values()]
    if isinstance(given, list | tuple):
        return [*itertools.chain(*map(_integers, given))]
    return [abs(int(given))] if isinstance(given, int | np.integer) else []


def ones(value: Any, rows: int) -> Any:
    """Return an array of some rows, like a lazy one."""
    return np.ones((rows, *value._node.meta.shape[1:]), value.dtype)


def result_of(filled: Filled, given: Sequence[Any]) -> Any:
    """Return what a function returns, or the error that it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return filled(*given)
        except Exception as error:  # noqa: BLE001 -- such as of lengths that differ
            return error
