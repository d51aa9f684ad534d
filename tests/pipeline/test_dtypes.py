"""Dtypes are NumPy's for numbers of any type, whatever was called before with equal ones."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter.pipeline import options, pipeline
from tests.pipeline.checks import same

NUMBERS = [2, 2.0, np.float32(2), np.float64(2), np.int8(2), np.int64(2), np.array(2.0)]
NUMBERS += [1, True, np.float32(1), np.float64(1), 300, np.float64(300), np.int64(300)]

CALLS: list[Callable[[Any, Any], Any]] = [
    lambda x, n: x + n,
    lambda x, n: n - x,
    lambda x, n: x**n,
    lambda x, n: x > n,
    lambda x, n: np.where(x > 2, x, n),
    lambda x, n: np.clip(x, None, n),
]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", ["f4", "i4", "u2"])
def test_numbers_of_other_types_that_are_equal(call: Any, dtype: str) -> None:
    """np.float32(2) == np.float64(2) == 2, but not what they make of an array."""
    x = np.arange(1, 30).astype(dtype)
    for number in itertools.chain(NUMBERS, reversed(NUMBERS)):
        seen: list[Any] = []

        def body(x: Any, number: Any = number, seen: list[Any] = seen) -> Any:
            found = call(x, number)
            seen.append(found.dtype)
            return found

        expected = call(x, number)
        with options(batch=7):
            same(pipeline(body)(x), expected)
        assert seen == [expected.dtype]


@pytest.mark.parametrize("name", ["std", "var"])
def test_to_ask_for_a_dtype_does_not_warn(name: str) -> None:
    with warnings.catch_warnings(), options(batch=7):
        warnings.simplefilter("error")
        x = np.arange(30.0).reshape(10, 3)
        found = pipeline(lambda x: getattr(x, name)(axis=0, ddof=1))(x)
    same(found, getattr(x, name)(axis=0, ddof=1), 1e-12)
