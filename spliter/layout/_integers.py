"""Read integers of layouts exactly: whole numbers that fit 64 bits, never floats."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError

Int64s: TypeAlias = npt.NDArray[np.int64]

LIMIT: Final = 2**63
"""Sizes and displacements are below this, as an MPI_Aint is."""

EXACT: Final = 2**62
"""NumPy multiplies and adds 64-bit integers exactly as long as the results stay below this."""


def whole(name: str, value: Any, at_least: int | None = None) -> int:
    """Return an argument as a Python int of 64 bits, `at_least` so much; refuse others."""
    if type(value) is int and at_least is not None and at_least <= value < LIMIT:
        return value  # in a tenth of the time, in each call of a packer
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(
            f"{name} must be an integer, got {value!r}; convert it with int() if it is whole"
        ) from None
    if isinstance(value, bool | np.bool_):
        raise InvalidArgumentError(f"{name} must be an integer, got {value!r}; pass a number")
    if at_least is not None and number < at_least:
        raise InvalidArgumentError(f"{name} must be >= {at_least}, got {number}; pass a larger one")
    return within(name, number)


def within(name: str, number: int) -> int:
    """Return a number that fits 64 bits; refuse others."""
    if not -LIMIT <= number < LIMIT:
        raise InvalidArgumentError(
            f"{name} is {number}, beyond 64-bit integers; describe a smaller layout"
        )
    return number


def whole_array(name: str, values: Any, at_least: int | None = None) -> Int64s:
    """Return a one-dimensional sequence of integers as an array that nobody can write to."""
    found = values if isinstance(values, np.ndarray) else _listed(name, values)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise InvalidArgumentError(
            f"{name} must be a one-dimensional sequence of integers, got {found.ndim} dimensions "
            f"of {found.dtype}; convert them with astype('i8') if they are whole"
        )
    for extreme in (found.min(), found.max()) if found.size else ():
        whole(name, extreme, at_least)
    # Over bytes: NumPy cannot be made to let anybody write to it again.
    return np.frombuffer(found.astype(np.int64).tobytes(), np.int64)


def _listed(name: str, values: Any) -> npt.NDArray[Any]:
    if not isinstance(values, Sequence | range) or isinstance(values, str | bytes):
        raise InvalidArgumentError(
            f"{name} must be a sequence of integers, got {type(values).__name__}; pass a list or "
            "a NumPy array"
        )
    return np.array([whole(name, value) for value in values], np.int64)


def scaled(name: str, values: Int64s, factor: int) -> Int64s:
    """Return integers times a factor, exactly; refuse products beyond 64 bits."""
    if values.size:
        for extreme in (int(values.min()), int(values.max())):
            within(name, extreme * factor)
    return values * np.int64(factor) if factor != 1 else values


def shown(values: Int64s) -> str:
    """Show a few of many integers.

    Examples
    --------
    >>> shown(np.arange(100))
    '[0, 1, 2, 3, ... 100 in all]'
    """
    if len(values) <= 8:
        return str(values.tolist())
    return f"[{', '.join(map(str, values[:4].tolist()))}, ... {len(values)} in all]"
