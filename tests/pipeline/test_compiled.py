"""The compiled driver: floating-point handling, who runs what, what is missing or unexpected."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special

from spliter import split
from spliter._machine import llvm
from spliter.pipeline import explain, options, pipeline
from spliter.pipeline._running import inner_loops
from spliter.pipeline._running.inner_loops import loop_of, runner
from tests.pipeline.checks import check, same

pytest.importorskip("llvmlite")

N = 1000


@pytest.fixture(autouse=True)
def small_batches() -> Iterator[None]:
    with options(batch=70, threads=2):
        yield


def driver(body: Callable[..., Any], *args: Any) -> str:
    """Return the driver of the last stage, as ``explain`` says it."""
    (line,) = [each for each in explain(pipeline(body), *args).splitlines() if "driver" in each][
        -1:
    ]
    return line.rpartition(", ")[2].removesuffix(" driver")


WIDE = np.random.default_rng(4).random((200, 80))
DRIVERS: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "ufuncs": (lambda x: np.sqrt(x * x + 1), np.ones(N), "compiled"),
    "SciPy's": (lambda x: scipy.special.erf(x) * 2, np.ones(N), "compiled"),
    "rows of a table": (lambda x: (x - x[0] * 1) * 2, WIDE, "compiled"),
    "a column": (lambda x: x * np.arange(200.0)[:, None], WIDE, "compiled"),
    "where": (lambda x: np.where(x > 3, x, 0) * 2 + 1, np.arange(float(N)), "compiled and Python"),
    "reduction": (lambda x: (x * x).sum(keepdims=True), np.ones(N), "compiled and Python"),
    "short rows": (lambda x: x * x[0], np.ones((N, 3)), "Python"),
    "byte order": (lambda x: x + 1, np.ones(N, ">f8"), "Python"),
    "powers of integers": (lambda x: x**x, np.arange(N) % 5, "Python"),
}


@pytest.mark.parametrize("name", DRIVERS)
def test_which_driver_runs_what(name: str) -> None:
    body, x, expected = DRIVERS[name]
    found = driver(body, x)
    assert found == expected or set(found.split()) <= {"compiled", "and", "Python"}
    assert (expected == "Python") == (found == "Python"), found
    check(body, x, batch=70, rtol=1e-12 if name == "reduction" else 0)


def with_zero_and_negative(x: Any) -> Any:
    y = x + 1
    z = np.log(y - 5.0)
    return 1.0 / (z * 0 + y - 3.0), np.sqrt(y - 9.0)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except FloatingPointError as error:
            return str(error)
    return result, sorted((str(each.message), each.lineno) for each in seen)


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise"])
@pytest.mark.parametrize("kind", ["divide", "invalid"])
def test_floating_point_errors_are_handled_as_the_caller_says(mode: Any, kind: str) -> None:
    x = np.arange(float(N))
    with np.errstate(all="ignore"), np.errstate(**{kind: mode}):
        expected = outcome(with_zero_and_negative, x)
        found = outcome(pipeline(with_zero_and_negative), x)
        with split(np.split(x, [2, 500])) as parts:
            over = outcome(pipeline(with_zero_and_negative), parts)
    if mode == "raise":
        assert found.split()[:2] == expected.split()[:2] == over.split()[:2]
    else:
        same(found, expected)
        same([np.concatenate(each) for each in over[0]], [*expected[0]])


def test_handlers_are_called_and_errors_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    with np.errstate(all="call", call=lambda kind, flag: calls.append(kind)):
        pipeline(lambda x: 1 / (x - x))(np.ones(N))
    assert set(calls) == {"divide by zero"}
    with np.errstate(invalid="print"):
        pipeline(np.sqrt)(-np.ones(N))
    assert "invalid value encountered in sqrt" in capfd.readouterr().err


def at_this_line(x: Any) -> Any:
    return 1 / (x - x)


def test_one_warning_per_call_at_the_users_line() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pipeline(at_this_line)(np.ones(N))
    (warning,) = seen
    assert str(warning.message) == "divide by zero encountered in divide"
    assert (warning.filename, warning.lineno) == (
        __file__,
        at_this_line.__code__.co_firstlineno + 1,
    )


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, -1, -1.0, 1.5, -2])
def test_warnings_of_powers_name_the_function_of_numpy(exponent: float) -> None:
    x = np.array([-1.0, 0.0, 1e300] * N)
    seen = []
    bodies: list[Callable[[Any], Any]] = [lambda x: x**exponent, pipeline(lambda x: x**exponent)]
    for body in bodies:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            body(x)
        seen.append(sorted(str(each.message) for each in found))
    assert seen[0] == seen[1] != []


def test_batches_with_floating_point_errors_have_the_same_bits() -> None:
    x = np.ones(N)
    x[500] = 0
    with np.errstate(divide="ignore"):
        check(lambda x: (1 / x + 1) * 2, x, batch=70)

    def in_place(x: Any) -> Any:
        y = x - 1
        y *= 2
        return 1 / y

    with np.errstate(all="ignore"):
        check(in_place, x, batch=70)


def test_errors_that_inner_loops_raise() -> None:
    x = np.linspace(-3.0, 3.0, N)
    with (  # SciPy's handling of errors is that of a thread
        scipy.special.errstate(all="raise"),
        options(threads=1),
        pytest.raises(scipy.special.SpecialFunctionError),
    ):
        pipeline(lambda x: scipy.special.gammaln(np.floor(x)) + 1)(x)
    with pytest.raises(ValueError, match="negative integer powers"):
        pipeline(lambda x: np.power(x + 1, x - N // 2) + 1)(np.arange(N))


@pytest.mark.parametrize("number", [300, -1, 7])
def test_numbers_that_a_dtype_cannot_hold(number: int) -> None:
    check(lambda x: (x < number, x * 2), np.arange(N).astype("u1"), batch=70)
    with np.errstate(over="ignore"):
        check(lambda x: x * 1e300, np.full(N, 2.0, "f4"), batch=70)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, 1.5])
@pytest.mark.parametrize("shape", [(), (200,), (200, 1), (150,), (200, 150)])
def test_powers_have_numpys_bits(exponent: float, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(1, 9, (200, 150)) / 3
    by = np.full(shape, exponent) if shape else exponent
    table = x.T if shape == (200,) else x
    for batch in (1, 7, 100):
        check(lambda x: x**by, table, batch=batch)


def test_another_thread_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are not switched by time here: the other one runs if the lock is released."""
    x = np.linspace(1.0, 2.0, 1_000_000)
    run = runner()
    assert run is not None
    body = pipeline(lambda x: np.sin(np.exp(x)))
    body(x)  # the inner loops are checked at their first use
    begin, calls, ran_at = threading.Event(), list[int](), list[int]()

    def note() -> None:
        begin.wait()
        ran_at.append(len(calls))

    def watching(*arguments: Any) -> int:
        calls.append(len(ran_at))
        begin.set()
        return run(*arguments)

    monkeypatch.setattr(inner_loops, "runner", lambda: watching)
    other = threading.Thread(target=note)
    other.start()
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1000)
        with options(batch=len(x) // 20, threads=1):
            body(x)
    finally:
        sys.setswitchinterval(interval)
    other.join()
    assert len(calls) == 20
    assert calls[-1] == 1


@contextlib.contextmanager
def forgetting() -> Iterator[None]:
    """Forget what is known of inner loops, before and after."""
    caches = loop_of, runner, llvm.is_installed
    try:
        for cache in caches:
            cache.cache_clear()
        yield
    finally:
        for cache in caches:
            cache.cache_clear()


def hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("importlib.util.find_spec", lambda name: None)


def unlinked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inner_loops, "_MODULE", inner_loops._MODULE.replace("fetestexcept", "absent_"))


def unlike(patch: pytest.MonkeyPatch) -> None:
    """Make the loop of one ufunc that of another, as a changed layout of the capsule might."""
    find = inner_loops._find
    patch.setattr(inner_loops, "_find", lambda ufunc, operands: find(np.subtract, operands))


def renamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inner_loops, "CAPSULE", b"numpy_9.9_ufunc_call_info")


@pytest.mark.parametrize("fault", [hidden, unlinked, unlike, renamed])
def test_what_is_missing_or_unexpected_leaves_the_python_driver(fault: Any) -> None:
    x = np.arange(float(N))
    with forgetting(), pytest.MonkeyPatch.context() as patch:
        fault(patch)
        assert driver(lambda x: x + x, x) == "Python"
        check(lambda x: x + x, x, batch=70)
