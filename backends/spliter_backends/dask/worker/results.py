"""Refuse results of tasks that cannot be pickled, while the task that returned them is known.

Dask keeps a result where it was made, and pickles it when the program or another worker fetches
it. An error there names neither the function nor the task.
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
"""Bytes after which a result that could be pickled so far is taken for one that can: the check is
not to take as long as sending it."""

MOST_ELEMENTS: Final = 100
"""Elements of a tuple or list that are checked one by one."""

ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


class _LimitReachedError(Exception):
    """So much of a result has been pickled that the rest can be too."""


class _Counter:
    """A file that counts and keeps nothing."""

    def __init__(self) -> None:
        self.nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += len(data)
        if self.nbytes > MAX_CHECKED_NBYTES:
            raise _LimitReachedError
        return len(data)


def check_picklable(fn: Callable[..., Any], result: Any) -> None:
    """Raise if a task's result cannot be sent.

    Parameters
    ----------
    fn : callable
        The task's function.
    result : object
        What it returned.

    Raises
    ------
    TaskNotSerializableError
        Naming the function, the type of the result and the reason.

    Examples
    --------
    >>> check_picklable(len, 3)
    >>> check_picklable(iter, (number for number in range(3)))
    Traceback (most recent call last):
        ...
    spliter._errors.TaskNotSerializableError: iter returned a generator, which cannot be sent ...
    """
    if _is_plain(result):
        return
    # Arrays go out of band: they are not copied.
    pickler = cloudpickle.Pickler(_Counter(), protocol=5, buffer_callback=lambda buffer: None)
    try:
        pickler.dump(result)
    except _LimitReachedError:
        return
    except Exception as cause:  # noqa: BLE001 - any class may raise anything
        if not _is_known_to_dask(result):
            raise TaskNotSerializableError(
                f"{name_of(fn)} returned a {type(result).__name__}, which cannot be sent to the "
                f"program or to another worker: {cause}. Return numbers, arrays or other values "
                "that can be pickled, not generators or handles"
            ) from None


def _is_plain(value: Any) -> bool:
    """Whether a value is of the types that most tasks return."""
    if type(value) in ATOMS or isinstance(value, np.generic):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    few = type(value) in (tuple, list) and len(value) <= MOST_ELEMENTS
    return few and all(map(_is_plain, value))


def _is_known_to_dask(value: Any) -> bool:
    """Whether Dask has a way of its own to send a value."""
    try:
        serialize(value, serializers=["dask"], on_error="raise")
    except Exception:  # noqa: BLE001 - as above
        return False
    return True
