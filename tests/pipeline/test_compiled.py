"""Inner loops without the interpreter lock: equal bits, errors, and who runs what."""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special

from spliter import _llvm
from spliter.pipeline import Rows, explain, mut, options, pipeline, splittable
from spliter.pipeline._running import compiled, inner_loops
from spliter.pipeline._running.inner_loops import loop_of, runner

pytest.importorskip("llvmlite")

N = 1000

UFUNCS = [
    *(one for one in vars(np).values() if isinstance(one, np.ufunc) and not one.signature),
    *(getattr(scipy.special, name) for name in ("erf", "ndtr", "gamma", "expit", "xlogy")),
]
"""All of NumPy's that work element by element, and the best known ones of SciPy."""


@pytest.fixture(autouse=True)
def small_batches() -> Iterator[None]:
    with options(batch=70, threads=2):
        yield


class Counted:
    """Counts the steps that ran as inner loops, and the groups that Python had to finish."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.unfinished = 0
        run = compiled.Group.run

        def counting(group: compiled.Group, *arguments: Any) -> int:
            ran = run(group, *arguments)
            self.steps += ran
            self.unfinished += group.table is not None and ran < len(group.steps)
            return ran

        monkeypatch.setattr(compiled.Group, "run", counting)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def bits(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return [(each.dtype, each.shape, each.tobytes()) for each in values]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the bits, the warnings and the error of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            result = bits(function(*arguments))
        except (FloatingPointError, TypeError, ValueError) as error:
            result = [(type(error), str(error))]
    return result, sorted((str(each.message), each.lineno) for each in found)


def strided(dtype: str, rng: np.random.Generator) -> Any:
    """Return an array with a random stride, some of its elements special."""
    step = int(rng.choice([-2, -1, 1, 2, 3]))
    values = rng.choice([0.0, 1.0, 2.0, -3.0, 0.25, 60.0], 3 * N) + rng.integers(-2, 3, 3 * N)
    if dtype != "i8":
        values[:: 3 * N // 4] = np.inf, np.nan, 1e300, -0.0
    with np.errstate(all="ignore"):
        return values.astype(dtype)[::step][:N]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_all_ufuncs_give_the_plain_bits_and_warnings(dtype: str, counted: Counted) -> None:
    rng = np.random.default_rng(3)
    ran = []
    for ufunc in UFUNCS:
        arguments = [strided(dtype, rng) for _ in range(ufunc.nin)]
        before = counted.steps
        assert outcome(pipeline(ufunc), *arguments) == outcome(ufunc, *arguments), ufunc
        ran.append(counted.steps > before)
    assert sum(ran) >= {"f4": 50, "f8": 50, "i8": 30}[dtype]


def test_all_ufuncs_row_by_row(counted: Counted) -> None:
    rng = np.random.default_rng(5)
    wide = rng.random((N // 5, 300))  # SciPy's loops move the pointers that they get
    for ufunc in UFUNCS:
        arguments = [wide[:, at : at + 80] for at in range(ufunc.nin)]
        assert outcome(pipeline(ufunc), *arguments) == outcome(ufunc, *arguments), ufunc
    assert counted.steps > 100


def test_rows_columns_and_numbers_are_broadcast(counted: Counted) -> None:
    rng = np.random.default_rng(4)
    matrix, rows, row = rng.random((N, 80)), rng.random((N, 1)), rng.random(80)

    def body(matrix: Any, rows: Any, row: Any) -> Any:
        return (matrix - row) * rows + 2, matrix.T + rows.T

    for order in (np.ascontiguousarray, np.asfortranarray):
        arguments = order(matrix), rows, row
        assert bits(pipeline(body)(*arguments)) == bits(body(*arguments))
    assert counted.steps and not counted.unfinished


def test_short_rows_and_other_dtypes_run_in_python(counted: Counted) -> None:
    def body(x: Any, y: Any) -> Any:
        return x * x[0], (y + 1.0) * y

    x, y = np.arange(3.0 * N).reshape(N, 3), np.arange(N, dtype=">f8")
    assert bits(pipeline(body)(x, y)) == bits(body(x, y))
    assert not counted.steps
    assert "Python driver" in explain(pipeline(body), x, y)


def with_zero_and_negative(x: Any) -> Any:
    y = x + 1
    z = np.log(y - 5.0)
    return 1.0 / (z * 0 + y - 3.0), np.sqrt(y - 9.0)


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise"])
@pytest.mark.parametrize("kind", ["divide", "invalid", "over", "under"])
def test_floating_point_errors_are_handled_as_by_the_plain_program(mode: Any, kind: str) -> None:
    x = np.arange(float(N))
    with np.errstate(all="ignore"), np.errstate(**{kind: mode}):
        expected = outcome(with_zero_and_negative, x)
        assert outcome(pipeline(with_zero_and_negative), x) == expected


def test_only_batches_with_errors_are_finished_in_python(counted: Counted) -> None:
    x = np.ones(N)
    x[500] = 0
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as found:
        result = pipeline(lambda x: 1 / x + 1)(x)
    assert len(found) == 1
    assert result[500] == np.inf
    assert counted.unfinished == 1
    assert counted.steps == 2 * (-(-N // 70) - 1)


def test_changes_in_place_are_not_repeated(counted: Counted) -> None:
    def body(x: Any) -> Any:
        x += 1
        y = x - 1
        y *= 2
        return 1 / y

    x = np.arange(float(N))
    with np.errstate(divide="ignore"):
        expected = body(x.copy())
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert bits(pipeline(body)(x)) == bits(expected)
    assert bits(x) == bits(np.arange(1.0, N + 1))
    assert counted.steps


def test_errors_that_inner_loops_raise() -> None:
    x = np.linspace(-3.0, 3.0, N)
    # SciPy's handling of errors is that of a thread.
    with (
        scipy.special.errstate(all="raise"),
        options(threads=1),
        pytest.raises(scipy.special.SpecialFunctionError),
    ):
        pipeline(lambda x: scipy.special.gammaln(np.floor(x)) + 1)(x)
    whole = np.arange(N)
    with pytest.raises(ValueError, match="negative integer powers"):
        pipeline(lambda x: np.power(x + 1, x - N // 2) + 1)(whole)


def test_errors_after_changes_in_place_name_the_call() -> None:
    def double(x: Any) -> None:
        if N // 2 in x:
            raise ValueError("half")
        x *= 2

    def body(x: Any) -> None:
        x += 1
        splittable(double, x=mut(Rows()), returns=None)(x)

    with options(batch=N // 4), pytest.raises(ValueError, match="half") as caught:
        pipeline(body)(np.arange(N))
    (note,) = caught.value.__notes__
    assert note.startswith("double (") and "partly written" in note


@pytest.mark.parametrize("number", [300, -1, 7])
def test_numbers_that_a_dtype_cannot_hold(number: int, counted: Counted) -> None:
    small = np.arange(N).astype("u1")
    assert bits(pipeline(lambda x: x < number)(small)) == bits(small < number)
    assert bool(counted.steps) == (number == 7)
    large = np.full(N, 2.0, "f4")
    with np.errstate(over="ignore"):
        expected = large * 1e300
        assert bits(pipeline(lambda x: x * 1e300)(large)) == bits(expected)


def test_reductions_alternate_with_inner_loops(counted: Counted) -> None:
    def body(x: Any) -> Any:
        return (x * x + 1).max(), np.where(x > 3, x, 0) * 2 + 1

    x = np.arange(float(N))
    assert "compiled and Python driver" in explain(pipeline(body), x)
    highest, rest = pipeline(body)(x)
    assert highest == body(x)[0]
    assert bits(rest) == bits(body(x)[1])
    assert counted.steps


def test_another_thread_runs_meanwhile() -> None:
    """Threads are not switched by time here: the other one runs if the lock is released."""
    x = np.linspace(1.0, 2.0, 1_000_000)
    run = runner()
    assert run is not None
    pipeline(lambda x: np.sin(np.exp(x)))(x)  # the inner loops are checked at their first use
    begin, ran_at = threading.Event(), []
    calls: list[int] = []

    def note() -> None:
        begin.wait()
        ran_at.append(len(calls))

    def watching(*arguments: Any) -> int:
        calls.append(len(ran_at))
        begin.set()
        return run(*arguments)

    other = threading.Thread(target=note)
    other.start()
    interval = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch, options(batch=len(x) // 20, threads=1):
        patch.setattr(inner_loops, "runner", lambda: watching)
        try:
            sys.setswitchinterval(1000)
            pipeline(lambda x: np.sin(np.exp(x)))(x)
        finally:
            sys.setswitchinterval(interval)
    other.join()
    assert len(calls) == 20
    assert calls[-1] == 1


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Forget what is known of inner loops, before and after."""
    caches = loop_of, runner, _llvm.is_installed
    for cache in caches:
        cache.cache_clear()
    yield
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


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("fault", [hidden, unlinked, unlike, renamed])
def test_what_is_missing_or_unexpected_leaves_the_python_driver(
    fault: Callable[[pytest.MonkeyPatch], None], counted: Counted
) -> None:
    x = np.arange(float(N))
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        assert "Python driver" in explain(pipeline(np.add), x, x)
        assert bits(pipeline(np.add)(x, x)) == bits(x + x)
    assert not counted.steps


def test_functions_that_may_loop_for_minutes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(inner_loops, "_gives_equal_bits", lambda ufunc, _: tried.append(ufunc))
    loop_of.cache_clear()
    for ufunc in (scipy.special.obl_cv, scipy.special.xlogy, scipy.special.j0, np.hypot):
        loop_of(ufunc, (np.dtype("f4"),) * ufunc.nin)
    loop_of.cache_clear()
    assert tried == [scipy.special.j0, np.hypot]


def test_pedantic_pieces_are_checked_in_python(counted: Counted) -> None:
    with options(pedantic=True):
        pipeline(np.add)(np.ones(N), 1.0)
    assert not counted.steps
    pipeline(np.add)(np.ones(N), 1.0)
    assert counted.steps


VIEWS = {
    "reversed": lambda x: x[::-1],
    "reversed along rows": lambda x: x[:, ::-1],
    "reversed along both": lambda x: x[::-1, ::-1],
    "transposed": lambda x: x.T[:, ::-1],
    "gaps": lambda x: x[:, ::2],
    "columns": lambda x: x[:, :90],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("batch", [1, 7])
def test_tables_with_strides_have_equal_bits(name: str, dtype: str, batch: int) -> None:
    draw = np.random.default_rng(3)
    tables = [VIEWS[name](draw.normal(size=(70, 170)).astype(dtype) * 3) for _ in range(2)]
    for ufunc in UFUNCS:
        given = tables[: ufunc.nin]
        with np.errstate(all="ignore"):
            try:
                expected = ufunc(*given)
            except TypeError:  # not for this dtype, or it takes more arguments
                continue
            with options(batch=batch, threads=1):
                np.testing.assert_array_equal(pipeline(ufunc)(*given), expected, ufunc.__name__)


def opposed(ufunc: Any, x: Any) -> Any:
    """Return results that are written, or chosen, in the other direction."""
    written, chosen = np.zeros_like(x), np.zeros_like(x)
    ufunc(x, out=written[::-1])
    return written, ufunc(x, where=(x > 0.5)[::-1], out=chosen)


ARRANGED: dict[str, Callable[[Any, Any], Any]] = {
    "opposed": opposed,
    "rolled": lambda ufunc, x: ufunc(np.roll(x, 1)),
    "rolled rows": lambda ufunc, x: ufunc(np.roll(x, 3, axis=0)),
    "reversed filter": lambda ufunc, x: ufunc(x[x[:, 0] > 0.3][:, ::-1]),
}


@pytest.mark.parametrize("name", ARRANGED)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("batch", [1, 10])  # the last one of the rows has one item
def test_rearranged_values_have_equal_bits(name: str, dtype: str, batch: int) -> None:
    table = np.random.default_rng(4).uniform(0, 1, (101, 150)).astype(dtype)
    body = ARRANGED[name]
    for ufunc in (np.exp, np.log1p, np.arcsin, np.cbrt):
        for x in (table, table[::-1, ::-1], table[:, ::-1]):
            expected = body(ufunc, x)
            with options(batch=batch, threads=1):
                found = pipeline(functools.partial(body, ufunc))(x)
            np.testing.assert_equal(found, expected, ufunc.__name__)
    vector = table[:, 0][::-1] if name in ("opposed", "rolled") else table
    expected = body(np.exp, vector)
    with options(batch=batch, threads=1):
        np.testing.assert_equal(pipeline(functools.partial(body, np.exp))(vector), expected)


SQUARED: dict[str, Callable[[Any, Any], Any]] = {
    "column": lambda x, by: np.power(x, by[:, None]),
    "operator": lambda x, by: x ** by[:, None],
    "row": lambda x, by: np.power(x.T, by),
    "stretched": lambda x, by: np.power(x[:, ::2], np.broadcast_to(by[:, None], x[:, ::2].shape)),
    "pending": lambda x, by: np.power(x, x.max(axis=1, keepdims=True) * 0 + 2),
    "number": lambda x, by: x ** by[0],
}


@pytest.mark.parametrize("name", SQUARED)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_exponents_that_stand_for_several_elements(name: str, batch: int) -> None:
    x = np.random.default_rng(0).integers(1, 9, (200, 150)) / 3  # of rounded squares
    by = np.full(200, 2.0)
    with options(batch=batch):
        found = pipeline(SQUARED[name])(x, by)
    np.testing.assert_array_equal(found, SQUARED[name](x, by))
