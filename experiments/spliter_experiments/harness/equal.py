"""Compare results of programs: arrays, frames, numbers, and lists and tuples of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

Array: TypeAlias = npt.NDArray[Any]

RELATIVE, ABSOLUTE = 1e-9, 1e-9
"""Differences allowed where a way may round otherwise: other libraries have other functions."""


def same(left: Any, right: Any, exact: bool, relative: float = RELATIVE) -> bool:
    """Return whether two results are equal: in each bit, or within `relative` and `ABSOLUTE`.

    Results are arrays, frames, numbers, or lists and tuples of them.

    >>> same((1.0, [2.0]), (1.0, [2.0 + 1e-12]), exact=False)
    True
    >>> same(1.0, 1.0 + 1e-12, exact=True)
    False
    """
    left, right = _parts(left), _parts(right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(same(*pair, exact, relative) for pair in pairs)
    return _same_values(np.asarray(left), np.asarray(right), exact, relative)


def _parts(value: Any) -> Any:
    """Return index, columns and values of a frame or series, and other values as they are."""
    if isinstance(value, pd.DataFrame):
        return [np.asarray(value.index.tolist()), [*value.columns], value.to_numpy()]
    if isinstance(value, pd.Series):
        return [np.asarray(value.index.tolist()), value.to_numpy()]
    return value


def _same_values(left: Array, right: Array, exact: bool, relative: float) -> bool:
    if left.shape != right.shape or (exact and left.dtype != right.dtype):
        return False
    if left.dtype.kind not in "fc":
        return bool(np.all((left == right) | (pd.isna(left) & pd.isna(right))))
    if exact:
        return left.tobytes() == right.tobytes()
    return np.allclose(left, right, relative, ABSOLUTE, equal_nan=True)
