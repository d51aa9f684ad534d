"""Threads that a body starts share its values, which are those of the plain program."""

from __future__ import annotations

import collections
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.pipeline import Rows, lazy, mut, options, pipeline, splittable
from spliter.pipeline._calls.graph import common_graph
from spliter.pipeline._running import evaluate
from spliter.pipeline._running.lost import lose as lose_calls
from spliter.pipeline._values import array_calls, capture, lazy_numbers
from spliter.pipeline._values.lazy import compute as compute_value

VALUES = np.arange(50.0)


def in_two_threads(first: Callable[[Any], Any], second: Callable[[], Any]) -> dict[str, Any]:
    """Run one function, and another one in the middle of it, or after its error."""
    found: dict[str, Any] = {}
    turn, end = threading.Event(), threading.Event()

    def wait() -> None:
        turn.set()
        assert end.wait(60)

    def one() -> None:
        try:
            found["first"] = first(wait)
        finally:
            turn.set()

    def other() -> None:
        assert turn.wait(60)
        try:
            found["second"] = second()
        finally:
            end.set()

    threads = [threading.Thread(target=each) for each in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def number_beside_an_error(x: Any) -> Any:
    def failing(wait: Callable[[], None]) -> Any:
        try:
            with np.errstate(all="raise"):
                root = np.sqrt(x - 5)
            wait()
            return root.sum()
        except FloatingPointError as error:
            return str(error)

    return in_two_threads(failing, lambda: np.max(x + 1))


def change_beside_an_error(x: Any) -> Any:
    def failing(wait: Callable[[], None]) -> Any:
        try:
            least = x[x > 99].min(axis=0, keepdims=True)
            wait()
            return float(least[0])
        except ValueError:
            return None

    def change() -> Any:
        x.__iadd__(1)
        return x * 2

    return in_two_threads(failing, change)


@pytest.mark.parametrize("body", [number_beside_an_error, change_beside_an_error])
@pytest.mark.parametrize("batch", [7, 100])
def test_errors_stay_in_their_thread(body: Callable[..., Any], batch: int) -> None:
    plain, ours = VALUES.copy(), VALUES.copy()
    expected = body(plain)
    with options(batch=batch, threads=2):
        found = pipeline(body)(ours)
    np.testing.assert_equal(found, expected)
    np.testing.assert_array_equal(ours, plain)


def test_errors_that_a_thread_has_not_raised_are_raised_on_return() -> None:
    def body(x: Any) -> Any:
        with np.errstate(all="raise"):
            x[:] = np.sqrt(x - 5)
        other = threading.Thread(target=np.max, args=(x,))
        other.start()
        other.join(60)
        return x

    with options(batch=7), pytest.raises(FloatingPointError, match="sqrt"):
        pipeline(body)(VALUES.copy())


def test_an_error_that_a_thread_gets_while_another_one_finds_it_is_raised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, caught = threading.Event(), threading.Event()

    def lose(*args: Any) -> None:
        real(*args)
        lost.set()
        assert caught.wait(60)

    def body(x: Any) -> Any:
        with np.errstate(all="raise"):
            root = np.sqrt(x - 5)
        other = threading.Thread(target=np.max, args=(x,))
        other.start()
        assert lost.wait(60)
        try:
            found = root + 1
        except FloatingPointError as error:
            found = str(error)
        caught.set()
        other.join(60)
        return found, x + 1

    real = lose_calls
    monkeypatch.setattr(evaluate, "lose", lose)
    with options(batch=7):
        found, more = pipeline(body)(VALUES.copy())
    assert "sqrt" in found
    np.testing.assert_array_equal(more, VALUES + 1)


def test_a_change_is_awaited_that_another_thread_runs() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slowly(x: Any) -> None:
        begun.set()
        may_end.wait(0.2)
        x += 1

    def body(x: Any, y: Any) -> Any:
        splittable(slowly, x=mut(Rows()), returns=None)(x)
        other = threading.Thread(target=lambda: float(y.max()))
        other.start()
        assert begun.wait(60)
        last = float(x[-1])
        may_end.set()
        other.join(60)
        return last

    with options(batch=7, threads=1):
        assert pipeline(body)(VALUES.copy(), VALUES.copy()) == VALUES[-1] + 1


def test_a_call_that_runs_at_once_does_not_run_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []
    came, ended = threading.Event(), threading.Event()

    def fail(x: Any) -> Any:
        raise KeyError("theirs")

    def body(x: Any) -> Any:
        def call_of_another() -> None:
            try:
                made = splittable(fail, x=Rows(), returns=Rows())(x)
                came.set()
                assert ended.wait(60)
                np.asarray(made)
            except KeyError as error:
                found.append(str(error))

        def evaluate_late(graph: Any) -> None:
            monkeypatch.undo()
            other.start()
            came.wait(0.2)  # it may not come in between
            real(graph)

        other = threading.Thread(target=call_of_another)
        real = evaluate.evaluate
        np.asarray(x)  # from now on, changes do not wait
        monkeypatch.setattr(capture, "evaluate", evaluate_late)
        x[:] = 2
        ended.set()
        other.join(60)
        return x

    with options(batch=7):
        np.testing.assert_array_equal(pipeline(body)(VALUES.copy()), np.full(50, 2.0))
    assert found == ["'theirs'"]


def meanwhile(work: Callable[[], Any]) -> threading.Thread:
    """Let another thread work, and wait a while: it may have to wait itself."""
    other = threading.Thread(target=work)
    other.start()
    other.join(0.2)
    return other


def test_a_number_is_computed_of_values_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[threading.Thread] = []

    def body(x: Any) -> Any:
        def change() -> None:
            x[...] = 1e9
            str(x)

        def compute(value: Any) -> Any:
            monkeypatch.undo()
            others.append(meanwhile(change))
            return real(value)

        real = compute_value
        y = x * 2
        monkeypatch.setattr(lazy_numbers, "compute", compute)
        greatest = y.max()
        others[0].join(60)
        return greatest, y

    with options(batch=7):
        greatest, y = pipeline(body)(VALUES.copy())
    assert greatest == 98
    np.testing.assert_array_equal(y, VALUES * 2)


def test_a_change_that_another_thread_finds_to_fail_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others: list[threading.Thread] = []

    def body(x: Any) -> Any:
        def capture_and_wait(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.undo()
            result = real(*args, **kwargs)
            others.append(meanwhile(lambda: str(x)))
            return result

        real = capture.capture
        y = x + 1
        try:
            monkeypatch.setattr(array_calls, "capture", capture_and_wait)
            with np.errstate(divide="raise"):
                y /= 0
            y.max()
        except FloatingPointError:
            y += 1
        others[0].join(60)
        return y

    with options(batch=7):
        np.testing.assert_array_equal(pipeline(body)(VALUES), VALUES + 2)


def test_an_error_is_caught_where_a_value_is_needed() -> None:
    def body(x: Any) -> Any:
        with np.errstate(divide="raise"):
            lost = x / 0
        other = threading.Thread(target=lambda: str(x + 1))
        other.start()
        other.join(60)
        try:
            found = repr(x)
        except FloatingPointError as error:
            found = str(error)
        return found, x + 1, id(lost)

    with options(batch=7):
        found, more, _ = pipeline(body)(VALUES)
    assert "divide by zero" in found
    np.testing.assert_array_equal(more, VALUES + 1)


def test_values_meet_while_another_thread_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lazy(VALUES)

    def body(y: Any) -> Any:
        def meet(graphs: Any) -> Any:
            monkeypatch.undo()
            graph = common_graph(graphs)
            sums.append(y + x)
            assert graph.merged_into is not None
            return graph

        sums: list[Any] = []
        monkeypatch.setattr(capture, "common_graph", meet)
        return x * 2, sums[0]

    with options(batch=7):
        found, total = pipeline(body)(VALUES)
    np.testing.assert_array_equal(found, VALUES * 2)
    np.testing.assert_array_equal(total, VALUES * 2)


def numbers_of_each(x: Any) -> Any:
    def one(by: int) -> Any:
        return float((x * by).sum())

    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(one, range(4)))


def lengths_of_each(x: Any) -> Any:
    def one(by: int) -> Any:
        y = x * by
        y[y > 60] = 5
        return y + len(y)

    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(one, range(4)))


@pytest.mark.parametrize("body", [numbers_of_each, lengths_of_each])
def test_threads_over_a_split(body: Callable[..., Any]) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            with options(batch=7), split(np.split(VALUES, [20, 20, 45])) as parts:
                for found, expected in zip(pipeline(body)(parts), body(VALUES), strict=True):
                    whole = np.concatenate(found) if isinstance(found, list) else found
                    np.testing.assert_array_equal(whole, expected)
    finally:
        sys.setswitchinterval(interval)


def test_errors_over_a_split_are_those_of_a_thread() -> None:
    def fail(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("negative")
        return x

    def body(x: Any) -> Any:
        def one(by: int) -> Any:
            try:
                if by:
                    assert first.wait(60)
                found = splittable(fail, x=Rows(), returns=Rows())(x * 0 + by - 1)
                if by:
                    second.set()
                else:
                    first.set()
                    assert second.wait(60)
                return float(found.max())
            except ValueError:
                return None

        first, second = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(one, range(2)))

    with split(np.split(VALUES, [20])) as parts:
        assert pipeline(body)(parts) == [None, 0]


def test_threads_merge_values_in_any_order() -> None:
    with options(batch=7):
        for _ in range(20):
            values = [lazy(VALUES + at) for at in range(6)]
            found: dict[int, Any] = {}

            def add(first: int, values: list[Any] = values, found: dict[int, Any] = found) -> None:
                ring = collections.deque(values)
                ring.rotate(first)
                total = ring[0] + ring[1]
                for each in [*ring][2:]:
                    total = each + total
                found[first] = np.asarray(total)

            threads = [threading.Thread(target=add, args=(at,)) for at in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            for at in range(6):
                np.testing.assert_array_equal(found[at], 6 * VALUES + 15)
