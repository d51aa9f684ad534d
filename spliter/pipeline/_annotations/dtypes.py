"""Checks of the dtypes of frames and series; imports nothing of pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def is_number(dtype: Any) -> bool:
    """Return whether a dtype is one of NumPy's numbers or flags; pandas groups no longdouble."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iufb" and dtype.itemsize <= 8


def has_double_mean(dtype: Any) -> bool:
    """Return whether pandas averages values of a dtype in doubles: not those of shorter floats."""
    return is_number(dtype) and (dtype.kind != "f" or dtype.itemsize == 8)


def dtypes_of(value: Any) -> list[Any]:
    """Return the dtypes of the columns of a frame; that of a series, an array or a number."""
    return list(value.dtypes) if value.ndim == 2 else [value.dtype]


def is_text(dtype: Any) -> bool:
    """Return whether a dtype is one of pandas' texts."""
    return str(dtype) in ("str", "string")


def all_are(check: Callable[[Any], bool], value: Any) -> bool:
    """Return whether dtypes pass a check, and are of one kind, or integers and floats."""
    dtypes = {*dtypes_of(value)}
    kinds = {getattr(dtype, "kind", None) for dtype in dtypes}
    return all(map(check, dtypes)) and (len(kinds) == 1 or kinds == {"i", "f"})


def has_numbers(value: Any) -> bool:
    """Return whether all columns are numbers of NumPy of one kind, or integers and floats."""
    return all_are(is_number, value)


def has_flags(value: Any) -> bool:
    """Return whether all columns are flags of NumPy."""
    return all_are(lambda dtype: bool(dtype == np.dtype(bool)), value)
