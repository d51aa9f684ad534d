"""Compare results of functions: types, names and labels, and numbers by bits or a tolerance."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from spliter._reading.kinds import is_sparse


def equal(one: Any, other: Any, rtol: float = 0.0) -> bool:
    """Return whether two results are equal: arrays, frames, matrices, and containers of them.

    Floats by a relative tolerance; by default their bits must be equal. NaN equals any NaN.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k], rtol) for k in one)
    if isinstance(one, list | tuple):
        same = len(one) == len(other)
        return same and all(equal(a, b, rtol) for a, b in zip(one, other, strict=True))
    if hasattr(type(one), "iloc"):
        return _equal_frames(one, other, rtol)
    if is_sparse(one):
        one, other = one.toarray(), other.toarray()
    if isinstance(one, np.ndarray | np.generic | float | complex):
        return _equal_arrays(np.asarray(one), np.asarray(other), rtol)
    return one is other or bool(np.all(one == other))


def _equal_frames(one: Any, other: Any, rtol: float) -> bool:
    testing = sys.modules["pandas"].testing  # imported, as there is a frame
    check = testing.assert_series_equal if one.ndim == 1 else testing.assert_frame_equal
    try:
        check(one, other, check_exact=not rtol, rtol=rtol, atol=0, check_freq=False)
    except AssertionError:
        return False
    if one.ndim == 1:
        return _equal_arrays(one.to_numpy(), other.to_numpy(), rtol)  # pandas ignores zeros' signs
    pairs = zip(_columns(one), _columns(other), strict=True)
    return all(_equal_frames(*pair, rtol) for pair in pairs)


def _columns(frame: Any) -> list[Any]:
    return [frame.iloc[:, number] for number in range(frame.shape[1])]


def _equal_arrays(one: Any, other: Any, rtol: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.names:
        return all(_equal_arrays(one[name], other[name], rtol) for name in one.dtype.names)
    if one.dtype.kind == "O":
        return all(equal(a, b, rtol) for a, b in zip(one.flat, other.flat, strict=True))
    if one.dtype.kind not in "fc":
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "mM")
    if rtol:
        return np.allclose(one, other, rtol=rtol, atol=0, equal_nan=True)
    if one.dtype.kind == "c":
        return _equal_bits(one.real, other.real) and _equal_bits(one.imag, other.imag)
    return _equal_bits(one, other)


def _equal_bits(one: Any, other: Any) -> bool:
    signs, other_signs = (np.signbit(each) & ~np.isnan(each) for each in (one, other))
    return np.array_equal(one, other, equal_nan=True) and np.array_equal(signs, other_signs)
