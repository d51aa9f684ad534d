"""A body that catches an error goes on as the plain program does: the failed call is given up."""

from __future__ import annotations

import contextlib
import operator
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import (
    Reduction,
    Rows,
    lazy,
    mut,
    options,
    pipeline,
    splittable,
)
from spliter.testing._equality import equal

VALUES = np.arange(50.0)


def in_a_loop(x: Any) -> Any:
    found: list[Any] = []
    for shift in range(3):
        try:
            with np.errstate(divide="raise"):
                y = np.log(x - shift)
            found.append(float(y.sum()))
        except FloatingPointError as error:
            found.append(str(error))
        shifted = (x + shift) * 2
        found.append(float(shifted.max()))
    return found


def before_the_failed_call(x: Any) -> Any:
    centred = x - x.mean()
    try:
        with np.errstate(divide="raise"):
            y = np.log(x)
            z = y + 1
            z *= 2
        if y.sum() > 0:
            return y, z
    except FloatingPointError:
        pass
    return centred * 2


def changed_by_the_failed_call(x: Any) -> Any:
    with np.errstate(invalid="raise"):
        try:
            x[:] = np.sqrt(x - 20)
            return float(x.sum())
        except FloatingPointError:
            return None


def changed_before_and_after(x: Any) -> Any:
    x += 1
    with np.errstate(all="raise"):
        doubled = x * 2
        try:
            y = np.sqrt(x - 20)
            x *= 3
            x /= y
            return float(x.sum())
        except FloatingPointError:
            x -= 1000
    x *= doubled
    return doubled


def set_anew(x: Any) -> Any:
    result = np.zeros_like(x)
    with np.errstate(all="raise"):
        try:
            result[:] = 1 / x
            float(result[0])
        except FloatingPointError:
            result[:] = 5
    return result


def as_before(x: Any) -> Any:
    y = x + 1
    y *= 2
    largest = float(y.max())
    with np.errstate(all="raise"):
        for shift in range(3):
            try:
                y += np.log(x + shift - 1)
                y *= 2
                largest += float(y.max())
            except FloatingPointError:
                y += 1
    return y, largest


def changed_in_an_earlier_stage(x: Any) -> Any:
    x += 1
    y = x * 2
    try:
        with np.errstate(all="raise"):
            z = np.log(x - 1)
        y *= 5
        repr(z)
    except FloatingPointError:
        pass
    return y


def tried_again(x: Any) -> Any:
    y = x * 1
    with np.errstate(all="raise"):
        for shift in range(3):
            try:
                z = 1 / (x - x.min() - 5 + shift * 5)
                y *= 2
                float(z.max())
                break
            except FloatingPointError:
                pass
    return y


def two_that_fail(x: Any) -> Any:
    found: list[Any] = []
    for function in (np.log, np.sqrt):
        try:
            with np.errstate(all="raise"):
                y = function(x - x.mean())
                z = np.reciprocal(x)
            found.append(float(y.max() + z.max()))
        except FloatingPointError as error:
            found.append(str(error))
    return found, x + 1


def other_errors(x: Any) -> Any:
    scale = x.max() - x.min()
    widths: tuple[Any, ...] = ("a", 0)
    for width in widths:
        try:
            float(np.round(x, width).sum())
        except TypeError as error:
            return x / scale, str(error)
    return None


def extremes_of_nothing(x: Any) -> Any:
    sums, doubled, found = np.cumsum(x), x * 2, [0.0]
    sums += 1
    for none in (x[x > 99], sums[sums < 0]):
        with contextlib.suppress(ValueError):
            found.append(none.max())
        with contextlib.suppress(ValueError):
            found += [none.sum(), none.min()]
    return sums, doubled, found


def refused(parts: Any) -> Any:
    raise ValueError("no result")


def totals_without_a_result(x: Any) -> Any:
    returns = Reduction(merge=operator.add, finish=refused)
    total = splittable(lambda x: x.sum(), x=Rows(), returns=returns)
    sums = np.cumsum(x)
    sums *= 2
    with contextlib.suppress(ValueError):
        refused(float(total(x * 3)))
    return sums


def extremes_beside_changes(x: Any) -> Any:
    y, found = np.cumsum(x), []
    before = x + y
    y *= 2
    with contextlib.suppress(ValueError):
        found.append(before[before < 0].max())
    table = np.stack([x, y], axis=1)
    with contextlib.suppress(ValueError):
        least = table[x > 99].min(axis=0)
        x += 1
        found.append(float(least[0]))
    with contextlib.suppress(ValueError):
        total = x[x > 9] + y[y > 0]
        x *= 3
        found.append(float(total[0]))
    return before, y, found


BODIES = [
    *(in_a_loop, before_the_failed_call, changed_by_the_failed_call, changed_before_and_after),
    *(set_anew, as_before, changed_in_an_earlier_stage, tried_again, two_that_fail),
    *(other_errors, extremes_of_nothing, totals_without_a_result, extremes_beside_changes),
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("batch", [7, 100])
def test_an_error_that_is_caught_does_not_rise_again(body: Callable[..., Any], batch: int) -> None:
    plain, ours = VALUES.copy(), VALUES.copy()
    expected = body(plain)
    with options(batch=batch, threads=2):
        found = pipeline(body)(ours)
    np.testing.assert_equal(found, expected)
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("body", [in_a_loop, before_the_failed_call])
@pytest.mark.parametrize("lengths", [[50], [3, 40, 7]])
def test_over_a_split_neither(body: Callable[..., Any], lengths: list[int]) -> None:
    blocks = np.split(VALUES, np.cumsum(lengths)[:-1])
    with split(blocks) as parts:
        found = pipeline(body)(parts)
    if body is before_the_failed_call:
        assert [len(each) for each in found] == lengths
        found = np.concatenate(found)
    np.testing.assert_equal(found, body(VALUES))


def test_values_of_a_failed_pass_are_computed_when_they_are_needed() -> None:
    def body(x: Any) -> Any:
        positive = x.max() > 0
        total = (x - x.mean()).sum()
        with pytest.raises(WholeArrayError, match="sort"):
            np.sort(x)[0].item()
        return float(positive), total

    with split(np.split(VALUES, [3, 43])) as parts:
        assert pipeline(body)(parts) == (1.0, 0.0)


@pytest.mark.parametrize("batch", [7, 100])
def test_a_value_without_result_raises_its_error_wherever_it_is_used(batch: int) -> None:
    x = lazy(VALUES)
    with np.errstate(divide="raise"):
        y = np.log(x)
    after = x + 1
    depths = []
    with options(batch=batch):
        for use in (y.sum, y.sum, lambda: after * 2, lambda: repr(after), y.tolist):
            with pytest.raises(FloatingPointError, match="divide by zero") as caught:
                float(use())
            depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
        assert depths[-1] <= max(depths[:3])  # tracebacks do not add up
        (note,) = caught.value.__notes__
        assert note.startswith(f"first raised by log ({__file__}:")
        np.testing.assert_array_equal(x + 1, VALUES + 1)


def test_an_error_from_before_the_try_is_not_swallowed() -> None:
    def body(x: Any) -> Any:
        with np.errstate(divide="raise"):
            np_log = np.log(x)
        doubled = x * 2
        with contextlib.suppress(FloatingPointError):
            assert float(doubled.sum() + np_log.max())
        return doubled

    with options(batch=7), pytest.raises(FloatingPointError, match="divide by zero"):
        pipeline(body)(VALUES)


def test_a_second_number_of_rows_raises_its_error() -> None:
    def body(x: Any) -> Any:
        none = x[x > 200]
        total = (none * none).sum()
        return total, np.percentile(none, 30)

    with options(batch=7), pytest.raises(IndexError, match="out of bounds"):
        pipeline(body)(VALUES)


def test_changes_before_a_call_that_fails_are_complete() -> None:
    def third_piece_fails(x: Any) -> Any:
        if 14 in x:
            raise ValueError("fourteen")
        return x

    def body(x: Any, y: Any) -> Any:
        sums = np.cumsum(y)
        sums += 1
        y += 1
        with contextlib.suppress(ValueError):
            repr(splittable(third_piece_fails, x=Rows(), returns=Rows())(x + sums * 0))
        return sums

    one, other = VALUES.copy(), VALUES.copy()
    with options(batch=7, threads=1):
        np.testing.assert_array_equal(pipeline(body)(VALUES, one), body(VALUES, other))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("exponent", [lambda i: i - 3, lambda i: (i - 3).astype("i2")])
def test_changes_before_integers_to_negative_integers_are_complete(exponent: Any) -> None:
    def body(x: Any, i: Any) -> Any:
        x += 1
        with contextlib.suppress(ValueError):
            repr(i ** exponent(-i))
        x *= 2
        return x.sum(), (i**2).sum(), 2.0 ** (-i)

    one, other, powers = np.zeros(20), np.zeros(20), np.arange(20)
    with options(batch=7, threads=1):
        found = pipeline(body)(one, powers)
    for each, expected in zip(found, body(other, powers), strict=True):
        np.testing.assert_array_equal(each, expected)
    np.testing.assert_array_equal(one, other)


def test_arrays_are_changed_up_to_the_failed_call_and_once() -> None:
    def increment(values: Any) -> None:
        values += 1

    def body(x: Any, counts: Any) -> Any:
        splittable(increment, values=mut(Rows()), returns=None)(counts)
        try:
            with np.errstate(divide="raise"):
                y = np.log(x)
            late = y[:5] * 2
            if late.sum() > 0:
                return None
        except FloatingPointError:
            return counts[:3] * 2
        return None

    for batch in (7, 100):
        counts = np.zeros(20)
        with options(batch=batch):
            np.testing.assert_array_equal(pipeline(body)(VALUES, counts), [2, 2, 2])
        np.testing.assert_array_equal(counts, np.ones(20))


def above(x: Any) -> None:
    if (x > 30).any():
        raise KeyError("above")
    x *= 0.5


@pytest.mark.parametrize("of_views", [False, True])
def test_after_half_a_change_the_error_comes_again(of_views: bool) -> None:
    def increment(x: Any, by: Any) -> None:
        x += by

    halve = splittable(above, x=mut(Rows()), returns=None)
    add = splittable(increment, x=mut(Rows()), by=Rows(), returns=None)
    used = []

    def body(x: Any, counts: Any) -> Any:
        kept = counts[2:] if of_views else counts
        doubled = x * 2
        add(counts, x)
        halve(doubled)
        try:
            float(doubled.sum())
        except KeyError:
            for use in (lambda: kept + 1, counts.sum, lambda: repr(doubled)):
                with pytest.raises(KeyError, match="above"):
                    use()
                used.append(use)
        return 0

    with options(batch=7), pytest.raises(KeyError, match="above") as caught:
        pipeline(body)(VALUES, np.zeros(50))
    assert len(used) == 3
    assert len(caught.value.__notes__) == 1


def of_other_dtype(frame: Any, x: Any) -> Any:
    lengths = frame["text"].str.len()  # of batches with missing values: floats
    x += 1
    x *= 2
    return lengths


def of_a_caught_conversion(frame: Any, x: Any) -> Any:
    x *= 2
    try:
        total = float(frame["number"].astype("int64").sum())
    except ValueError:
        total = -1.0
    x += 1
    return total


def of_a_conversion(frame: Any, x: Any) -> Any:
    numbers = frame["number"].astype(float)
    x *= 2
    return numbers


@pytest.mark.parametrize("body", [of_other_dtype, of_a_caught_conversion, of_a_conversion])
@pytest.mark.parametrize("last", ["1", "x"])
def test_frames_that_do_not_convert_beside_changes_of_arrays(body: Any, last: str) -> None:
    frame = pd.DataFrame({"text": ["ab", None, "c"] * 20, "number": [*["1"] * 59, last]})

    def result(fn: Any) -> Any:
        x = np.ones(60)
        try:
            return fn(frame, x), x
        except ValueError as error:
            return str(error), x

    expected = result(body)
    with options(batch=7, threads=2):
        assert equal(result(pipeline(body)), expected)
