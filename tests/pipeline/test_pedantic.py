"""``options(pedantic=True)``: arrays are read-only as long as calls on them are pending."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from spliter import AnnotationError, split
from spliter.pipeline import explain, lazy, options, pipeline

pytestmark = pytest.mark.usefixtures("small_batches")


def numbers() -> Any:
    return np.arange(1.0, 101)


def test_pedantic_locks_sources_until_the_return() -> None:
    x = numbers()

    def body(y: Any) -> Any:
        z = y + 1
        x[0] = 5.0
        return z

    with options(pedantic=True), pytest.raises(ValueError, match="read-only"):
        pipeline(body)(x)
    assert x.flags.writeable
    with options(pedantic=True), pytest.raises(AnnotationError, match="empty piece"):
        pipeline(lambda x: x[x > 50] * 2)(numbers())


def differs_from_views(x: Any) -> Any:
    return x[::-1] + x, x[1:] - x[:-1]


def changes_what_was_read(x: Any) -> Any:
    y = x * 2
    x -= y
    return x, y


def changes_a_view_of_what_was_read(x: Any) -> Any:
    y = x * 2
    view = x[1:]
    view += 1
    x[2:][::2] *= 3
    return y, view, x[:-1]


def interrupts(x: Any) -> Any:
    y = x * 2
    raise KeyboardInterrupt(y)


@pytest.mark.parametrize(
    "body",
    [differs_from_views, changes_what_was_read, changes_a_view_of_what_was_read, interrupts],
)
def test_pedantic_leaves_arrays_as_they_would_be(body: Any) -> None:
    x, other = numbers(), numbers()
    found, expected = (), ()
    with options(pedantic=True), contextlib.suppress(KeyboardInterrupt):
        found = pipeline(body)(x)
    with contextlib.suppress(KeyboardInterrupt):
        expected = body(other)
    for one, two in zip((x, *found), (other, *expected), strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.flags.writeable


def test_pedantic_unlocks_views_of_arrays_that_others_lock() -> None:
    whole = np.zeros((9, 2))
    column = whole[:, 0]
    whole.flags.writeable = False
    with options(pedantic=True):
        np.testing.assert_array_equal(pipeline(lambda column: column + 1)(column), np.ones(9))
        x = numbers()
        one, other = lazy(x[::-1]), lazy(x)
        later, last = one + 1, other + 1
        assert float(later.sum()) == float(last.sum())
    assert [each.flags.writeable for each in (column, whole, x)] == [True, False, True]


def test_pedantic_unlocks_what_is_never_computed() -> None:
    x, memory = numbers(), np.frombuffer(memoryview(numbers()))
    with options(pedantic=True):
        y = lazy(x) + memory
        assert not x.flags.writeable
        del y
        explain(pipeline(lambda x: x + 1), x)
        with split([numbers(), numbers()]) as parts:
            pipeline(lambda part: part[:, np.newaxis].sum(axis=0) + x[:1])(parts)
    assert x.flags.writeable
    assert memory.flags.writeable
