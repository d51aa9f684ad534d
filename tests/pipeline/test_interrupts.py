"""Ctrl-C, time-outs and others that are no error of a call, and errors that are no exception."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from spliter import split
from spliter.pipeline import Rows, mut, options, pipeline, splittable

N = 1000


@pytest.fixture(autouse=True)
def _small_batches() -> Iterator[None]:
    with options(batch=100, threads=2):
        yield


def numbers() -> Any:
    return np.arange(float(N))


def is_in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def test_ctrl_c_stops_all_threads() -> None:
    before = threading.active_count()
    interrupted = threading.Event()

    def interrupt(x: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            interrupted.set()
            raise KeyboardInterrupt
        assert interrupted.wait(timeout=60)
        return x

    with pytest.raises(KeyboardInterrupt):
        pipeline(splittable(interrupt, x=Rows(), returns=Rows()))(numbers())
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_no_program_handles_as_an_error_rises_from_any_thread(
    kind: type[BaseException],
) -> None:
    raised = threading.Event()

    def interrupt(x: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            assert len(x) == 1 or raised.wait(timeout=60)  # the first row is tried alone
            return x
        raised.set()
        raise kind

    marked = splittable(interrupt, x=Rows(), returns=Rows())
    for body in (marked, lambda x: float(marked(x).sum())):
        raised.clear()
        with pytest.raises(kind):
            pipeline(body)(numbers())


@pytest.fixture
def fired() -> Iterator[list[int]]:
    """Numbers of the signals that a handler got, which then raised ``TimeoutError``."""
    found: list[int] = []

    def handler(number: int, _: object) -> None:
        found.append(number)
        raise TimeoutError("too late")

    before = signal.signal(signal.SIGALRM, handler)
    yield found
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 100])
def test_a_time_out_rises(fired: list[int], threads: int, rows: int) -> None:
    def slow(x: Any) -> Any:
        if is_in_main_thread() and len(x) == rows and not fired:
            signal.raise_signal(signal.SIGALRM)
        return x + 1

    marked = splittable(slow, x=Rows(), returns=Rows())
    bodies = [lambda x: float(marked(x).sum()), lambda x: marked(x) * 2]
    for body in (*bodies, *([marked] if rows > 1 else ())):  # a row is tried where it is needed
        fired.clear()
        with options(threads=threads), pytest.raises(TimeoutError, match="too late"):
            pipeline(body)(numbers())
        assert len(fired) == 1


@pytest.mark.parametrize("rows", [1, 100])
def test_a_time_out_that_the_function_has_caught_rises(fired: list[int], rows: int) -> None:
    def solve(x: Any) -> Any:
        try:
            if is_in_main_thread() and len(x) == rows and not fired:
                signal.raise_signal(signal.SIGALRM)
        except TimeoutError as error:
            raise RuntimeError("no convergence") from error
        return x

    marked = splittable(solve, x=Rows(), returns=Rows())
    with pytest.raises(RuntimeError, match="no convergence"):
        pipeline(lambda x: float(marked(x).sum()))(numbers())
    assert len(fired) == 1


def test_errors_after_a_time_out_are_those_of_calls(fired: list[int]) -> None:
    def of_several(x: Any) -> Any:
        if len(x) < 2:
            raise ValueError("too few rows")
        return x + 1

    @pipeline
    def body(x: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGALRM)
        except TimeoutError:
            return splittable(of_several, x=Rows(), returns=Rows())(x) * 2

    np.testing.assert_array_equal(body(numbers()), (numbers() + 1) * 2)


def test_functions_that_look_at_their_caller_are_no_handlers() -> None:
    def require(*values: Any, limit: int) -> None:
        caller = sys._getframe(1)
        if (values[0] > limit).any():
            raise ValueError(caller.f_code.co_name)

    def limited(x: Any) -> Any:
        require(x, limit=500)
        return x

    @pipeline
    def body(x: Any, y: Any) -> Any:
        with contextlib.suppress(ValueError):
            y += splittable(limited, x=Rows(), returns=Rows())(x)
            float(y.sum())
        y += 1
        return y * 2

    y = numbers()
    np.testing.assert_array_equal(body(numbers(), y), (numbers() + 1) * 2)
    np.testing.assert_array_equal(y, numbers() + 1)


class TimeOut:
    """Handlers of signals."""

    def method(self, number: int, frame: object) -> None:
        raise TimeoutError("too late")

    def of_any(self, *given: object) -> None:
        raise TimeoutError("too late")

    def __call__(self, number: int, frame: object) -> None:
        self.method(number, frame)


def once(number: int, frame: object) -> None:
    """Raise, and let the signal be ignored from now on."""
    signal.signal(number, signal.SIG_IGN)
    raise TimeoutError("too late")


@pytest.mark.parametrize(
    "handler",
    [
        *(once, TimeOut(), TimeOut().method, TimeOut().of_any),
        functools.partial(TimeOut.method, TimeOut()),
    ],
)
def test_handlers_of_any_kind(fired: list[int], handler: Any) -> None:
    signal.signal(signal.SIGALRM, handler)

    def slow(x: Any) -> Any:
        if is_in_main_thread() and len(x) == 100 and not fired:
            fired.append(1)
            signal.raise_signal(signal.SIGALRM)
        return x + 1

    with pytest.raises(TimeoutError, match="too late"):
        pipeline(splittable(slow, x=Rows(), returns=Rows()))(numbers())


def test_a_time_out_does_not_lose_values(fired: list[int]) -> None:
    def slow(x: Any) -> Any:
        if is_in_main_thread() and len(x) == 100 and not fired:
            signal.raise_signal(signal.SIGALRM)
        return x + 1

    marked = splittable(slow, x=Rows(), returns=Rows())

    @pipeline
    def body(x: Any) -> Any:
        y = marked(x)
        try:
            float(y.sum())
        except TimeoutError:
            return y
        raise AssertionError

    np.testing.assert_array_equal(body(numbers()), numbers() + 1)


def add_one(x: Any) -> None:
    x += 1


increase = splittable(add_one, x=mut(Rows()), returns=None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_no_batch_runs_after_an_interrupt_while_threads_begin(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        raise kind

    before, x = threading.active_count(), numbers()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with options(threads=3), pytest.raises(kind):
        pipeline(increase)(x)
    assert threading.active_count() == before
    np.testing.assert_array_equal(x, numbers())


class Panic(BaseException):
    """Such as that of libraries in Rust."""


def fail_at_500(x: Any) -> Any:
    if (x == 500).any():
        raise Panic
    return x


failing = splittable(fail_at_500, x=Rows(), returns=Rows())


def test_errors_that_are_no_exception_are_those_of_all_rows() -> None:
    def fail_below_2(x: Any) -> Any:
        if len(x) < 2:
            raise Panic
        return x

    marked = splittable(fail_below_2, x=Rows(), returns=Rows())
    np.testing.assert_array_equal(pipeline(lambda x: marked(x) * 2)(numbers()), numbers() * 2)


def test_errors_that_are_no_exception_rise_once() -> None:
    kept = []

    def body(x: Any, y: Any) -> Any:
        y += 1
        try:
            float(failing(x).sum())
        except Panic as error:
            kept.append(error)
            y += 10
        return y * 1

    y = numbers()
    np.testing.assert_array_equal(pipeline(body)(numbers(), y), numbers() + 11)
    np.testing.assert_array_equal(y, numbers() + 11)
    for threads in (1, 2):
        with options(threads=threads), pytest.raises(Panic):
            pipeline(failing)(numbers())


def test_what_they_leave_partly_written_is_said() -> None:
    def add_below_500(x: Any) -> None:
        fail_at_500(x)
        x += 1

    change = splittable(add_below_500, x=mut(Rows()), returns=None)

    @pipeline
    def body(x: Any) -> Any:
        try:
            change(x)
            np.asarray(x)
        except Panic:
            pass
        return x * 1

    with pytest.raises(Panic) as found:
        body(numbers())
    assert "partly written: an array of shape (1000,)" in found.value.__notes__[0]


def test_over_a_split_a_time_out_does_not_wait_for_tasks(fired: list[int]) -> None:
    begun, released = threading.Event(), threading.Event()
    ended: list[int] = []
    main = threading.main_thread().ident
    assert main is not None

    def wait(x: Any) -> Any:
        if len(x) > 1:
            begun.set()
            released.wait(timeout=60)
            ended.append(len(x))
        return x

    def interrupt() -> None:
        begun.wait(timeout=60)
        while not fired:  # Python may miss a signal that comes as its thread begins to wait
            signal.pthread_kill(main, signal.SIGALRM)
            time.sleep(0.1)

    marked = splittable(wait, x=Rows(), returns=Rows())
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(TimeoutError):
            pipeline(lambda x: marked(x) * 2)(split([numbers()]))
        assert not ended
        assert fired
    finally:
        released.set()


def test_what_the_body_drops_is_not_computed_after_an_interrupt() -> None:
    calls = []

    def interrupt(x: Any) -> Any:
        calls.append(len(x))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return x

    marked = splittable(interrupt, x=Rows(), returns=Rows())

    @pipeline
    def body(x: Any) -> Any:
        try:
            return np.asarray(marked(x))
        except KeyboardInterrupt:
            return x * 3

    with options(threads=1):
        np.testing.assert_array_equal(body(numbers()), numbers() * 3)
    assert len(calls) == 5
