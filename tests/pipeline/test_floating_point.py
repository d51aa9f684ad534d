"""Floating-point errors are handled as where the call was made: ignored, raised, told once."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.pipeline import pipeline

pytestmark = pytest.mark.usefixtures("small_batches")

N = 100


def numbers() -> Any:
    return np.arange(1.0, N + 1)


def test_floating_point_handling_is_that_of_the_call() -> None:
    def body(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / (x - 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline(body)(numbers())
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        pipeline(lambda x: 1 / (x - x))(numbers())
    calls: list[str] = []
    with np.errstate(all="call", call=lambda kind, flag: calls.append(kind)):
        pipeline(lambda x: 1 / (x - x))(numbers())
    assert calls == ["divide by zero"]


@pytest.mark.parametrize("mode", ["call", "log"])
def test_handlers_of_floating_point_errors_are_those_of_the_call(mode: Any) -> None:
    class Handler(list[str]):
        def __call__(self, kind: str, flag: int) -> None:
            self.append(kind)

        def write(self, message: str) -> None:
            self.append(message)

    def body(x: Any, first: Handler, second: Handler) -> Any:
        with np.errstate(divide=mode, call=first):
            y = 1 / (x - x)
        with np.errstate(all=mode, call=second):
            return np.sqrt(-x) + y, np.log(x - x)

    ours, plain = (Handler(), Handler()), (Handler(), Handler())
    pipeline(lambda x: body(x, *ours))(numbers())
    body(numbers(), *plain)
    assert ours == plain
    assert all(plain)


@pytest.mark.parametrize(("over", "caller"), [("raise", "ignore"), ("ignore", "raise")])
def test_partial_results_are_combined_under_the_handling_of_the_call(
    over: Any, caller: Any
) -> None:
    """Sums of pieces are finite here, and overflow when they are added."""

    def body(x: Any) -> Any:
        with np.errstate(over=over):
            found = x.sum(axis=0), x.mean(axis=0)
        return [np.asarray(each) for each in found]

    large = np.full((N, 2), 2e306)
    given = large, split(np.split(large, 25))
    for each in given:
        with np.errstate(over=caller):
            if over == "ignore":
                np.testing.assert_array_equal(pipeline(body)(each), body(large))
            else:
                with pytest.raises(FloatingPointError, match="overflow"):
                    pipeline(body)(each)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: 1 / (x - x), "divide by zero encountered in divide"),
        (
            lambda x: np.var(np.where(x == 50, np.inf, x), axis=0),
            "invalid value encountered in var",
        ),
    ],
)
def test_one_warning_per_call_at_the_users_line(fn: Any, message: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pipeline(fn)(numbers())
    (warning,) = found
    assert str(warning.message) == message
    assert (warning.filename, warning.lineno) == (__file__, fn.__code__.co_firstlineno)


def test_calls_before_one_that_fails_have_warned() -> None:
    def body(x: Any) -> Any:
        root = np.sqrt(np.sort(x))
        with np.errstate(invalid="raise"), contextlib.suppress(FloatingPointError):
            np.log(x).sum()
        return root

    with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt") as found:
        pipeline(body)(numbers() - 9.5)
    assert len(found) == 1


def test_errors_of_floating_point_are_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    with np.errstate(invalid="print"):
        pipeline(np.sqrt)(-numbers())
    assert capfd.readouterr().err == "Warning: invalid value encountered in sqrt\n"


@pytest.mark.parametrize("fn", [np.var, np.std])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_too_few_degrees_of_freedom_warn(fn: Any) -> None:
    for given in (numbers(), split(np.split(numbers(), [7]))):
        with pytest.warns(RuntimeWarning, match="Degrees of freedom <= 0"):
            found = pipeline(lambda x: float(fn(x, ddof=N)))(given)
        assert found == fn(numbers()) * np.inf
