"""What an index of an array chooses, and what is assigned there."""

from __future__ import annotations

from typing import Any

import numpy as np

from spliter.pipeline._calls.metas import ArrayMeta
from spliter.pipeline._values.any_rows import has_rows
from spliter.pipeline._values.lazy import Lazy, compute


def written_out(key: Any, ndim: int) -> tuple[Any, ...]:
    """Return an index with slices in place of an ellipsis, and copies of lists in it."""
    keys = key if isinstance(key, tuple) else (key,)
    if sum(each is Ellipsis for each in keys) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = next((at for at, each in enumerate(keys) if each is Ellipsis), len(keys))
    rest = ndim - sum(each is not None and each is not Ellipsis for each in keys)
    keys = (*keys[:at], *[slice(None)] * rest, *keys[at + 1 :])
    return tuple([_copied(each) if isinstance(each, list | np.ndarray) else each for each in keys])


def _copied(key: Any) -> Any:
    """Return an array of a list or an array; that of no positions is one of integers, too."""
    return np.array(key, np.intp if isinstance(key, list) and not key else None)


def has_all_rows(axes: tuple[Any, ...]) -> bool:
    """Return whether an index chooses all rows, and of each row the same elements."""
    first, *others = axes
    lists = [each for each in others if isinstance(each, np.ndarray)]
    return (
        (isinstance(first, slice) and first == slice(None))
        and is_basic(tuple([each for each in others if not isinstance(each, np.ndarray)]))
        and len(lists) <= 1
    )


def is_basic(key: Any) -> bool:
    """Return whether an index makes a view."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(
        each is None
        or each is Ellipsis
        or isinstance(each, slice)
        or (isinstance(each, int | np.integer) and not isinstance(each, bool))
        for each in keys
    )


def check_nesting(values: Any, ndim: int) -> None:
    """Raise what NumPy does if lists are nested more deeply than an array has axes."""
    if isinstance(values, list | tuple) and np.ndim(values) > ndim:
        np.empty((1,) * ndim)[...] = np.zeros((1,) * np.ndim(values)).tolist()


def is_number(value: Any) -> bool:
    """Return whether a value that is assigned to elements is a number."""
    if isinstance(value, Lazy):
        return isinstance(value._node.meta, ArrayMeta) and not value._node.meta.shape
    return np.ndim(value) == 0


def with_values(key: Any) -> Any:
    """Return an index over a Split with values in place of lazy ones that have no rows."""
    if isinstance(key, tuple):
        return tuple(map(with_values, key))
    if isinstance(key, slice):
        return slice(*map(with_values, (key.start, key.stop, key.step)))
    is_array = isinstance(key, Lazy) and isinstance(key._node.meta, ArrayMeta)
    return compute(key) if is_array and not has_rows(key) else key
