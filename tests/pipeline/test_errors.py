"""Errors: the first one rises with a note, the pipeline is finished, and nothing runs twice."""

from __future__ import annotations

import contextlib
import gc
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import PipelineFailedError, SplIterError, split
from spliter.pipeline import Reduction, Rows, lazy, mut, options, pipeline, splittable
from tests.pipeline.checks import line_of, same

pytestmark = pytest.mark.usefixtures("small_batches")

N = 50
CALLS: list[tuple[float, int]] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def numbers() -> Any:
    return np.arange(float(N))


def refuse(x: Any) -> Any:
    """Refuse one row; note the first row and the rows of each call."""
    CALLS.append((float(x[0]), len(x)))
    if (x == 30).any():
        raise ZeroDivisionError("thirty")
    return x + 0


refusing = splittable(refuse, x=Rows(), returns=Rows(like="x"))


def at_return(x: Any) -> Any:
    return refusing(x * 1) + 1


def at_a_number(x: Any) -> Any:
    return float(refusing(x * 1).sum())


def at_iteration(x: Any) -> Any:
    return [*refusing(x * 1)]


def at_a_call(x: Any) -> Any:
    return np.convolve(refusing(x * 1), [1.0, 2.0])


@pytest.mark.parametrize("body", [at_return, at_a_number, at_iteration, at_a_call])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_rises_with_a_note_of_call_line_and_items(body: Any, threads: int) -> None:
    with options(threads=threads), pytest.raises(ZeroDivisionError, match="thirty") as caught:
        pipeline(body)(numbers())
    (note,) = caught.value.__notes__
    assert re.search(rf"refuse.*{line_of(body, 1)}.*items 28 to 35", note), note


def test_it_rises_at_the_place_of_evaluation() -> None:
    reached = []

    def body(x: Any) -> Any:
        y = refusing(x)
        reached.append("called")
        with pytest.raises(ZeroDivisionError):
            float(y.sum())
        reached.append("evaluated")
        return 5

    with contextlib.suppress(PipelineFailedError):
        pipeline(body)(numbers())
    assert reached == ["called", "evaluated"]


def test_nothing_runs_twice_and_nothing_is_undone() -> None:
    with options(threads=1), pytest.raises(ZeroDivisionError):
        pipeline(at_return)(numbers())
    assert CALLS == [(0, 7), (7, 7), (14, 7), (21, 7), (28, 7)]

    def change(x: Any) -> None:
        refuse(x)
        x += 100

    x = numbers()
    with options(threads=1), pytest.raises(ZeroDivisionError):
        pipeline(splittable(change, x=mut(Rows()), returns=None))(x)
    same(x, np.where(numbers() < 28, numbers() + 100, numbers()))


def test_a_reduction_that_fails_runs_once() -> None:
    total = splittable(
        lambda x: float(refuse(x).sum()), x=Rows(), returns=Reduction(merge=lambda a, b: a + b)
    )
    with options(threads=1), pytest.raises(ZeroDivisionError):
        pipeline(lambda x: total(x) + 1)(numbers())
    assert [rows for _, rows in CALLS] == [7] * 5


@pytest.mark.parametrize(
    "use",
    [
        float,
        np.asarray,
        repr,
        lambda y: y + 1,
        lambda y: np.sqrt(y).sum(),
        lambda y: [*y],
        lambda y: y[3],
        refusing,
    ],
)
def test_other_values_of_the_pipeline_raise_that_it_has_failed(use: Callable[..., Any]) -> None:
    seen: list[BaseException] = []

    def body(x: Any) -> Any:
        y, other = refusing(x), x * 2
        with pytest.raises(ZeroDivisionError):
            float(y.sum())
        try:
            float(np.asarray(use(other.sum() if use is float else other)).sum())
        except PipelineFailedError as error:
            seen.append(error)

    with contextlib.suppress(PipelineFailedError):
        pipeline(body)(numbers())
    (failed,) = seen
    assert isinstance(failed, SplIterError)
    assert isinstance(failed.__cause__, ZeroDivisionError)
    assert "refuse" in str(failed)


def test_a_body_that_catches_the_error_and_returns_values_has_failed() -> None:
    def body(x: Any) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            float(refusing(x).sum())
        return x * 2

    with pytest.raises(PipelineFailedError):
        pipeline(body)(numbers())
    same(pipeline(lambda x: x * 2)(numbers()), numbers() * 2)  # others are not touched


def test_values_that_outlive_the_pipeline_have_failed_too() -> None:
    kept: list[Any] = []

    def body(x: Any) -> Any:
        kept.append(x * 2)
        return refusing(x)

    with pytest.raises(ZeroDivisionError):
        pipeline(body)(numbers())
    with pytest.raises(PipelineFailedError):
        np.asarray(kept[0])
    value = lazy(numbers())
    first, second = refusing(value), value + 1
    with pytest.raises(ZeroDivisionError):
        np.asarray(first)
    with pytest.raises(PipelineFailedError):
        np.asarray(second)


def test_of_several_calls_that_fail_one_error_rises() -> None:
    def other(x: Any) -> Any:
        if (x == 30).any():
            raise KeyError("another")
        return x

    second = splittable(other, x=Rows(), returns=Rows(like="x"))
    with options(threads=1), pytest.raises(ZeroDivisionError):  # the first call on these rows
        pipeline(lambda x: second(refusing(x)))(numbers())


def test_errors_of_the_body_are_its_own() -> None:
    def body(x: Any) -> Any:
        refusing(x)  # never needed
        raise LookupError("of the body")

    with pytest.raises(LookupError, match="of the body") as caught:
        pipeline(body)(numbers())
    assert not hasattr(caught.value, "__notes__")
    assert not CALLS


@pytest.mark.parametrize("kind", [StopIteration, AttributeError, RuntimeError, MemoryError])
def test_errors_of_any_class_keep_it(kind: type[Exception]) -> None:
    def fail(x: Any) -> Any:
        raise kind("as it is")

    failing = splittable(fail, x=Rows(), returns=Rows())
    for body in (failing, lambda x: failing(x) * 2):
        with pytest.raises(kind, match="as it is"):
            pipeline(body)(numbers())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("in_main", [True, False])
def test_interrupts_pass_and_other_threads_stop(kind: type[BaseException], in_main: bool) -> None:
    before, raised = threading.active_count(), threading.Event()
    later: list[int] = []

    def interrupt(x: Any) -> Any:
        if (threading.current_thread() is threading.main_thread()) == in_main:
            raised.set()
            raise kind
        assert raised.wait(timeout=60)
        later.append(len(x))
        return x

    marked = splittable(interrupt, x=Rows(), returns=Rows())
    for body in (marked, lambda x: float(marked(x).sum())):
        raised.clear()
        later.clear()
        with options(batch=1, threads=2), pytest.raises(kind) as caught:
            pipeline(body)(numbers())
        assert not hasattr(caught.value, "__notes__") or kind is not KeyboardInterrupt
        assert threading.active_count() == before
        assert len(later) < N - 1


def test_errors_keep_no_values() -> None:
    for body in (at_return, at_a_number):
        x = numbers()
        kept = weakref.ref(x)
        gc.collect()
        gc.disable()
        try:
            with contextlib.suppress(ZeroDivisionError):
                pipeline(body)(x)
            del x
            gc.collect()
            assert kept() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("in_body", [False, True])
def test_over_a_split_the_first_error_rises_with_its_note(in_body: bool) -> None:
    def body(x: Any) -> Any:
        y = refusing(x * 1)
        return float(y.sum()) if in_body else y

    with (
        split(np.split(numbers(), [20, 40])) as parts,
        pytest.raises(ZeroDivisionError, match="thirty") as caught,
    ):
        pipeline(body)(parts)
    notes = "\n".join(caught.value.__notes__)
    assert re.search(rf"refuse.*{line_of(body, 1)}", notes), notes


def test_over_a_split_nothing_runs_twice_and_others_have_failed() -> None:
    seen: list[BaseException] = []

    def body(x: Any) -> Any:
        y, doubled = refusing(x), x * 2
        with pytest.raises(ZeroDivisionError):
            float(y.sum())
        try:
            float(doubled.sum())
        except PipelineFailedError as error:
            seen.append(error)
        return doubled

    with options(batch="auto"), split(np.split(numbers(), [20, 40])) as parts:
        with pytest.raises(PipelineFailedError):
            pipeline(body)(parts)
        assert [rows for _, rows in CALLS].count(20) <= 2
        assert len(seen) == 1
        found = pipeline(lambda x: x + 1)(parts)
    same(np.concatenate(found), numbers() + 1)


def test_over_a_split_interrupts_pass() -> None:
    def interrupt(x: Any) -> Any:
        raise KeyboardInterrupt

    marked = splittable(interrupt, x=Rows(), returns=Rows(like="x"))
    with split(np.split(numbers(), [20])) as parts, pytest.raises(BaseException) as caught:  # noqa: PT011
        pipeline(lambda x: marked(x).sum() + 1)(parts)
    assert isinstance(caught.value, KeyboardInterrupt | SplIterError)
