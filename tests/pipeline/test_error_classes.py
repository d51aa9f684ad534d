"""Errors of classes that refuse attributes, are no exception, or mean something to Python."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter.pipeline import (
    Reduction,
    Rows,
    broadcast,
    mut,
    options,
    pipeline,
    splittable,
)

VALUES = np.arange(50.0)


class SlottedError(ValueError):
    __slots__ = ("code",)


@dataclass(frozen=True)
class EmptyError(Exception):
    pass


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("kind", [ValueError, SlottedError])
def test_an_error_that_comes_again_is_like_the_first_one(
    kind: Any, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_replaced:  # as packages of Dask and Ray do
        tblib = pytest.importorskip("tblib.pickling_support")
        monkeypatch.setitem(copyreg.dispatch_table, kind, tblib.pickle_exception)

    def fail(x: Any) -> Any:
        if (x == 30).any():
            error = kind("thirty")
            error.code = 7
            raise error from KeyError("cause")
        return x

    @pipeline
    def body(x: Any) -> None:
        y = splittable(fail, x=Rows(), returns=Rows())(x)
        found = []
        for number in range(3):
            with pytest.raises(kind, match="thirty") as caught:
                float(y.sum())
            found.append(caught.value)
            found[-1].add_note(f"use {number}")
        for number, error in enumerate(found):
            assert error.code == 7
            assert repr(error.__cause__) == "KeyError('cause')"
            if kind is ValueError:  # others are not copied
                assert error.__notes__[-1] == f"use {number}"
                assert len(error.__notes__) <= 2

    with options(batch=7):
        body(VALUES)


def test_an_error_that_refuses_attributes_can_be_caught() -> None:
    def fail(x: Any) -> Any:
        if (x == 30).any():
            raise EmptyError
        return x

    def body(x: Any) -> Any:
        try:
            return np.asarray(splittable(fail, x=Rows(), returns=Rows())(x))
        except EmptyError:
            return x * 2

    with options(batch=7):
        np.testing.assert_array_equal(pipeline(body)(VALUES), VALUES * 2)


class Panic(BaseException):
    """Such as that of libraries in Rust."""


@pytest.mark.parametrize("kind", [ValueError, Panic])
def test_an_error_of_a_merge_comes_once(kind: type[BaseException]) -> None:
    def fail(one: float, other: float) -> float:
        raise kind

    largest = splittable(np.max, a=Rows(), returns=Reduction(merge=fail))

    def body(x: Any, y: Any) -> Any:
        doubled = y * 2
        with pytest.raises(kind):
            repr(largest(x))
        return [float(value.sum()) for value in (doubled, doubled + 1)]

    with options(batch=7):
        assert pipeline(body)(VALUES, VALUES) == body_of_sums(VALUES)


def body_of_sums(y: Any) -> Any:
    return [float((y * 2).sum()), float((y * 2 + 1).sum())]


@dataclass(frozen=True)
class FrozenError(Exception):
    """An error that refuses attributes."""

    value: int


def test_errors_that_refuse_attributes_get_notes() -> None:
    def fail(x: Any) -> None:
        raise FrozenError(3)

    with options(batch=7), pytest.raises(FrozenError) as caught:
        pipeline(splittable(fail, x=mut(Rows()), returns=None))(VALUES.copy())
    assert "partly written" in caught.value.__notes__[0]


class SilentError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise AttributeError


@pytest.mark.parametrize("kind", [IndexError, SilentError, StopIteration])
@pytest.mark.parametrize("use", [reversed, iter, float])
def test_errors_that_python_takes_for_others(kind: type[Exception], use: Any) -> None:
    def fail(x: Any) -> Any:
        if len(x) > 1:
            raise kind
        return x

    failing = splittable(fail, x=Rows(), returns=Rows())
    with options(batch=7), pytest.raises(kind):
        pipeline(lambda x: list(use(failing(x))))(VALUES)


def test_rows_from_the_last_one() -> None:
    with options(batch=7):
        found = pipeline(lambda x: [*reversed(x * 2)])(VALUES)
        series = pipeline(lambda s: [*reversed(s * 2)])(pd.Series(VALUES))
    assert found == series == [*reversed(VALUES * 2)]


@pytest.mark.parametrize("returns", [broadcast, Reduction(merge=max)])
def test_isinstance_does_not_swallow_an_error(returns: Any) -> None:
    def fail(x: Any) -> Any:
        if (x > 30).any():
            raise AttributeError("missing")
        return 1.0

    failing = splittable(fail, x=Rows(), returns=returns)
    with options(batch=7), pytest.raises(RuntimeError, match="raised AttributeError"):
        pipeline(lambda x: isinstance(failing(x), dict))(pd.Series(VALUES))
