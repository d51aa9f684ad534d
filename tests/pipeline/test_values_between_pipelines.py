"""Lazy values that one pipeline over a Split has made, or none, and another one uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, split
from spliter.pipeline import lazy, pipeline

TABLE = np.random.default_rng(4).normal(size=(76, 3))


def parts() -> Any:
    return split(np.split(TABLE, [5, 5, 45]))


def whole(found: Any) -> Any:
    return np.concatenate(found)


@pytest.mark.parametrize(
    "call",
    [
        lambda fn, parts, other: fn(parts, other),
        lambda fn, parts, other: fn(parts, other=other),
        lambda fn, parts, other: pipeline(lambda x, held: fn.__wrapped__(x, held[0]))(
            parts, [other]
        ),
        lambda fn, parts, other: pipeline(lambda x: fn.__wrapped__(x, other))(parts),
    ],
)
def test_lazy_values_are_used_beside_a_split(call: Callable[..., Any]) -> None:
    fn = pipeline(lambda x, other: (x - other) * other.max())
    for make in (lazy, lambda each: lazy(each) * 1, lambda each: lazy(each)[:]):
        other = make(np.arange(3.0))
        for _ in range(2):
            np.testing.assert_array_equal(
                whole(call(fn, parts(), other)), (TABLE - np.arange(3)) * 2
            )
        np.testing.assert_array_equal(fn(TABLE, other), (TABLE - np.arange(3)) * 2)
        np.testing.assert_array_equal(other + 1, [1, 2, 3])


def test_lazy_values_of_the_caller_stay_in_lists() -> None:
    other = lazy(np.arange(3.0))
    held = [other]
    made = pipeline(lambda x, held: held.append(x.sum(axis=0)) or x * held[0])(parts(), held)
    np.testing.assert_array_equal(whole(made), TABLE * np.arange(3))
    assert held[0] is other
    np.testing.assert_allclose(held[1], TABLE.sum(axis=0))
    assert isinstance(held[1], np.ndarray)


class Scaler:
    """Keeps what it has learned, as estimators do."""

    @pipeline
    def fit(self, x: Any) -> Any:
        self.mean, self.largest = x.mean(axis=0), np.abs(x).max()
        self.half, self.first = self.mean / 2, self.mean[:1]
        self.rows = x + 1
        return x.sum()

    @pipeline
    def transform(self, x: Any) -> Any:
        return (x - self.mean - self.half - self.first) / self.largest

    @pipeline
    def drift(self, x: Any) -> Any:
        shifted = x - self.mean
        self.mean += 1
        return shifted


def test_values_that_a_pipeline_keeps_are_used_by_the_next() -> None:
    scaler, plain = Scaler(), Scaler()
    plain.fit(TABLE)  # arrays this small run plain
    expected = plain.transform(TABLE)
    for _ in range(2):
        scaler.fit(parts())
        for _ in range(2):
            np.testing.assert_allclose(whole(scaler.transform(parts())), expected)
        np.testing.assert_allclose(scaler.transform(TABLE), expected)
        np.testing.assert_allclose(scaler.mean * 2, plain.mean * 2)
    np.testing.assert_allclose(whole(scaler.drift(parts())), TABLE - plain.mean)
    np.testing.assert_allclose(scaler.mean, plain.mean + 1)


def test_rows_that_a_pipeline_keeps_are_not_used_by_the_next() -> None:
    scaler = Scaler()
    scaler.fit(parts())
    with pytest.raises(InvalidArgumentError, match="rows that another pipeline has made"):
        pipeline(lambda x: x - scaler.rows)(parts())
    np.testing.assert_allclose(float(scaler.rows.sum()), (TABLE + 1).sum())


def test_a_pipeline_over_a_split_in_one_of_arrays() -> None:
    @pipeline
    def outer(x: Any) -> Any:
        before = x + 1
        inner = pipeline(lambda rows, by: rows * by.sum())(parts(), before)
        before *= 2
        return whole(inner), before

    found, changed = outer(np.arange(3.0))
    np.testing.assert_array_equal(found, TABLE * 6)
    np.testing.assert_array_equal(changed, [2, 4, 6])
