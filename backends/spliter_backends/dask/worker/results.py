"""Check that the result of a task can be pickled, inside the task.

Dask pickles a result when the program or another worker fetches it; an error at that time names
neither the function nor the task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cloudpickle
import numpy as np
from distributed.protocol import serialize

from spliter import TaskNotSerializableError
from spliter.backend import name_of

MAX_CHECKED_NBYTES: Final = 2**20
"""Bytes after which a result is assumed to be picklable: the check must not take as long as sending
the result."""

MOST_ELEMENTS: Final = 100
"""Maximum number of elements of a tuple or list that are checked one by one."""

PLAIN_TYPES: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


class _LimitReachedError(Exception):
    """More than `MAX_CHECKED_NBYTES` have been pickled."""


class _Counter:
    """A file that counts bytes and discards them."""

    def __init__(self) -> None:
        self.nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        if self.nbytes > MAX_CHECKED_NBYTES:
            raise _LimitReachedError
        return len(data)


def check_picklable(fn: Callable[..., Any], result: Any) -> None:
    """Raise if a task's result cannot be pickled.

    Examples
    --------
    >>> check_picklable(len, 3)
    >>> check_picklable(iter, (number for number in range(3)))
    Traceback (most recent call last):
        ...
    spliter._errors.TaskNotSerializableError: iter returned a generator, which cannot be ...
    """
    if _is_plain(result):
        return
    # Out-of-band buffers: arrays are not copied.
    pickler = cloudpickle.Pickler(_Counter(), protocol=5, buffer_callback=lambda buffer: None)
    try:
        pickler.dump(result)
    except _LimitReachedError:
        return
    except Exception as cause:  # noqa: BLE001 - any class may raise anything
        if not _is_known_to_dask(result):
            raise TaskNotSerializableError(
                f"{name_of(fn)} returned a {type(result).__name__}, which cannot be pickled: "
                f"{cause}. Return numbers, arrays or other picklable values"
            ) from None


def _is_plain(value: Any) -> bool:
    """Return whether a value is of a common type that can always be pickled."""
    if type(value) in PLAIN_TYPES or isinstance(value, np.generic):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    few = type(value) in (tuple, list) and len(value) <= MOST_ELEMENTS
    return few and all(map(_is_plain, value))


def _is_known_to_dask(value: Any) -> bool:
    """Return whether Dask itself can serialize a value."""
    try:
        serialize(value, serializers=["dask"], on_error="raise")
    except Exception:  # noqa: BLE001 - as above
        return False
    return True
