"""What a program may rely on: order, aliasing, errors, warnings, threads, pickling."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spliter import InvalidArgumentError
from spliter.pipeline import (
    Generic,
    Rows,
    explain,
    lazy,
    mut,
    options,
    pipeline,
    splittable,
    unknown,
)
from spliter.pipeline._running.evaluate import evaluate
from spliter.pipeline._running.program import MAX_TEMPORARY_NBYTES
from spliter.pipeline._values.lazy import Lazy

pytestmark = pytest.mark.usefixtures("small_batches")

N = 100


def numbers() -> Any:
    return np.arange(1.0, N + 1)


class Named(np.ndarray):
    """A subclass of arrays."""


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "evaluating",
    [
        float,
        bool,
        int,
        repr,
        str,
        complex,
        "{:.3f}".format,
        copy.deepcopy,
    ],
)
def test_scalars_are_evaluated_where_python_needs_them(evaluating: Any) -> None:
    assert evaluating(lazy(numbers()).sum()) == evaluating(numbers().sum())


def test_arrays_are_evaluated_by_iteration_and_conversion_and_pickling() -> None:
    x = lazy(numbers())
    same(np.asarray(x + 1), numbers() + 1)
    same(pickle.loads(pickle.dumps(x + 1)), numbers() + 1)
    assert list(x + 1) == list(numbers() + 1)
    assert (x + 1).tolist() == (numbers() + 1).tolist()
    assert len(x[1:]) == N - 1


def test_shape_and_dtype_are_known_without_evaluation() -> None:
    x = lazy(numbers())
    y = np.sqrt(x.astype("f4")) > 3
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, y.itemsize) == ((N,), bool, 1, N, N, 1)
    assert y._node.is_pending
    total = x.reshape(10, 10).mean(axis=0)
    assert (total.shape, total.dtype) == ((10,), np.dtype("f8"))


def test_calls_that_are_not_annotated_see_plain_arrays() -> None:
    def body(x: Any) -> Any:
        return np.convolve(x + 1, [1.0, 2.0]) * 2, np.linalg.norm(x), np.column_stack([x, x + 1])

    for one, other in zip(pipeline(body)(numbers()), body(numbers()), strict=True):
        same(one, other)


def test_a_plain_out_is_an_evaluation_point_that_explain_names() -> None:
    seen = []

    def body(x: Any, out: Any) -> Any:
        plain = np.empty(N)
        assert np.add(x, 1, out=plain) is plain
        seen.append(plain.copy())
        return x * 2

    pipeline(body)(numbers(), 0)
    same(seen[0], numbers() + 1)
    assert "evaluated at" in explain(pipeline(body), numbers(), 0)


def test_stages_are_described_before_their_values_get_another_shape() -> None:
    def body(x: Any) -> Any:
        column = x[:, None] + 1
        column.shape = (N,)
        return column

    x = np.arange(float(N))
    same(pipeline(body)(x), body(x))
    text = explain(pipeline(body), x)
    assert "add" in text and "evaluated at" in text


def test_stages_that_fail_are_shown_with_the_line_that_needs_them() -> None:
    def body(x: Any) -> Any:
        with np.errstate(divide="raise"):
            y = 1 / (x * 0)
        with contextlib.suppress(FloatingPointError):
            float(y[3])
        return x + 1

    with options(batch=1000, threads=2):
        stages = explain(pipeline(body), np.ones(N)).splitlines()
    needed = [number for number, line in enumerate(stages) if line.startswith("evaluated at")]
    assert "divide" in "".join(stages[: needed[0]]) and "add" in stages[-1]


def test_arguments_are_changed_in_place_by_return() -> None:
    def body(x: Any, y: Any) -> None:
        x += y
        np.multiply(x, 2, out=y)
        x[5:50] -= y[:45]
        x[x > 150] = 0
        y[...] = x
        x **= 2

    one, other = (numbers(), numbers() * 3), (numbers(), numbers() * 3)
    assert pipeline(body)(*one) is None
    body(*other)
    for found, expected in zip(one, other, strict=True):
        same(found, expected)


def test_views_keep_aliasing() -> None:
    def body(x: Any) -> Any:
        view = x[::2]
        reversed_view = x[::-1]
        view += 1
        reversed_view *= 2
        x[3] = -1.0
        return x, view, reversed_view, x.reshape(10, 10).T

    found, expected = pipeline(body)(numbers()), body(numbers())
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    assert all(np.shares_memory(found[0], each) for each in found[1:])


def test_overlapping_arguments_one_of_which_is_written_end_the_stage() -> None:
    def body(x: Any, y: Any) -> Any:
        z = y * 2
        x += 1
        return z + y

    def arrays() -> Any:
        whole = numbers()
        return whole[1:], whole[:-1]

    same(pipeline(body)(*arrays()), body(*arrays()))
    text = explain(pipeline(body), *arrays())
    assert "accesses memory that is written in another order" in text


def test_changes_before_an_error_of_the_body_have_happened() -> None:
    def body(x: Any) -> Any:
        x += 1
        raise KeyError("here")

    x = numbers()
    with pytest.raises(KeyError, match="here"):
        pipeline(body)(x)
    same(x, numbers() + 1)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (lambda x: x + np.ones(N + 1), ValueError),
        (lambda x: np.add(x, 1j, out=x), TypeError),
        (lambda x: x.sum(axis=3), np.exceptions.AxisError),
        (lambda x: x[N], IndexError),
        (lambda x: np.bitwise_or(x, 1), TypeError),
    ],
)
def test_errors_of_shape_and_dtype_rise_at_the_call(operation: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as plain:
        operation(numbers())
    reached = []

    def body(x: Any) -> Any:
        try:
            return operation(x)
        finally:
            reached.append(True)

    with pytest.raises(kind) as found:
        pipeline(body)(numbers())
    assert str(found.value) == str(plain.value)
    assert reached


def refuse_fifty(x: Any) -> Any:
    if (x == 50).any():
        raise ZeroDivisionError(f"of {len(x)}")
    return x


def test_errors_of_batches_are_those_of_the_plain_program() -> None:
    refuse = splittable(refuse_fifty, x=Rows(), returns=Rows())
    with pytest.raises(ZeroDivisionError, match=f"of {N}"):
        pipeline(lambda x: refuse(x + 0) * 2)(numbers())


def test_a_failure_of_pieces_alone_gives_the_plain_result() -> None:
    def whole_only(x: Any) -> Any:
        if len(x) < N:
            raise ValueError("a piece")
        return x * 2

    same(pipeline(splittable(whole_only, x=Rows(), returns=Rows()))(numbers()), numbers() * 2)


def test_errors_after_changes_say_what_is_partly_written() -> None:
    def half(x: Any) -> None:
        if x[0] > 50:
            raise ZeroDivisionError("half")
        x *= 2

    with pytest.raises(ZeroDivisionError, match="half") as caught:
        pipeline(splittable(half, x=mut(Rows()), returns=None))(numbers())
    (note,) = caught.value.__notes__
    assert "half (" in note
    assert "on items" in note
    assert f"partly written: an array of shape ({N},)" in note


def adds_one(x: Any) -> None:
    x += 1


def adds_to_a_part(x: Any) -> None:
    x[5:] += x[5:]


def writes_where(x: Any) -> None:
    x[x > 3] = 0


@pytest.mark.parametrize("pedantic", [False, True])
@pytest.mark.parametrize("change", [adds_one, adds_to_a_part, writes_where])
def test_changes_of_read_only_arrays_fail_at_the_call(change: Any, pedantic: bool) -> None:
    x = numbers()
    x.flags.writeable = False

    def body(x: Any) -> Any:
        y = x * 2
        with pytest.raises(ValueError, match="read-only") as caught:
            change(x)
        assert not hasattr(caught.value, "__notes__")
        return y, str(caught.value)

    with options(pedantic=pedantic):
        found, message = pipeline(body)(x)
    same(found, x * 2)
    assert message == body(x)[1]
    assert not x.flags.writeable


def test_results_depend_on_the_batch_and_not_on_the_threads() -> None:
    x = np.random.default_rng(0).normal(size=10_000)
    found = set()
    for threads in (1, 2, 5):
        with options(threads=threads, batch=77):
            found.add(pipeline(lambda x: np.sin(x).sum())(x).tobytes())
    assert len(found) == 1


def test_programs_of_small_values_are_captured_once_and_then_run_plain() -> None:
    seen: list[Any] = []

    @pipeline
    def body(x: Any) -> Any:
        seen.append(issubclass(type(x), Lazy))
        return (x + 1) * 2

    with options(batch="auto"):
        for n in (N, N, N // 2, 2 * N, N):
            same(body(np.arange(n)), (np.arange(n) + 1) * 2)
        assert "all values are small" in explain(body, numbers())
    body(numbers())
    assert seen == [True, False, False, True, False, True, True]


def test_small_arguments_with_large_products_run_in_batches() -> None:
    x = np.arange(4000.0)
    seen: list[Any] = []

    @pipeline
    def pulls(x: Any) -> Any:
        seen.append(issubclass(type(x), Lazy))
        return np.sum(x - x[:, np.newaxis], axis=1)

    with options(batch="auto"):
        for _ in range(2):
            tracemalloc.start()
            found = pulls(x)
            assert tracemalloc.get_traced_memory()[1] < 2 * (MAX_TEMPORARY_NBYTES + 2**20)
            tracemalloc.stop()
    np.testing.assert_array_equal(found, np.sum(x - x[:, np.newaxis], axis=1))
    assert seen == [True, True]


def test_a_pipeline_in_a_pipeline_joins_its_stage() -> None:
    inner = pipeline(lambda x: x * 2)
    outer = pipeline(lambda x: inner(x + 1) - 1)
    assert explain(outer, numbers()).count("stage") == 1
    same(outer(numbers()), (numbers() + 1) * 2 - 1)


def test_a_value_that_another_thread_computes_is_waited_for() -> None:
    runs, goes_on = threading.Event(), threading.Event()

    def waiting(x: Any) -> Any:
        if len(x) > 1:  # else to find shape and dtype
            runs.set()
            assert goes_on.wait(60)
        return x * 2

    y = splittable(waiting, x=Rows(), returns=Rows())(lazy(numbers()))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(np.asarray(y))) for _ in range(2)]
    threads[0].start()
    assert runs.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    goes_on.set()
    for thread in threads:
        thread.join(60)
    for each in found:
        same(each, numbers() * 2)
    assert len(found) == 2


def test_lazy_values_in_other_threads() -> None:
    x = lazy(numbers())
    values = [x * number for number in range(8)]
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda at: found.update({at: values[at].sum()}), args=(at,))
        for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert {at: float(each) for at, each in found.items()} == {
        at: float(numbers().sum() * at) for at in range(8)
    }


def test_what_was_just_captured_is_held_when_another_thread_evaluates() -> None:
    x = lazy(numbers())
    graph = x._graph.root()
    lock, this = graph.lock, threading.current_thread()

    class Lock:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()
            if threading.current_thread() is this:
                other = threading.Thread(target=lambda: evaluate(graph))
                other.start()
                other.join()

    graph.lock = Lock()
    same(np.asarray((x * 2)[1:] + 1), numbers()[1:] * 2 + 1)


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_greater(numbers(), 50),
        numbers().astype(object),
        np.array(["a", "b"] * 50),
        np.array(3.0),
        np.empty(0),
        np.empty((0, 3)),
        numbers().view(Named),
    ],
    ids=["masked", "object", "str", "0-d", "empty", "no rows", "subclass"],
)
def test_other_arrays_keep_their_own_behaviour(value: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        return x + x, y * 2, (x + x).copy() if x.dtype.kind == "U" else x * 2

    for one, other in zip(pipeline(body)(value, numbers()), body(value, numbers()), strict=True):
        same(one, other)
    if isinstance(value, np.ma.MaskedArray):
        mixed = pipeline(lambda x, y: (x + y, y + x))(value, numbers())
        for each in mixed:
            assert isinstance(each, np.ma.MaskedArray)
            assert each.mask.sum() == 50


def test_generic_types_and_unknown_lengths() -> None:
    keep = splittable(lambda m: m[m % 3 == 0], m=Generic("S"), returns=unknown)
    twice = splittable(lambda m: m * 2, m=Generic("S"), returns=Generic("S"))
    chain = pipeline(lambda x: twice(keep(twice(x))))
    same(chain(numbers()), (numbers() * 2)[(numbers() * 2) % 3 == 0] * 2)
    assert explain(chain, numbers()).count("stage") == 1

    def mixed(x: Any) -> Any:
        return keep(x)[:5] + x[x > 95]

    same(pipeline(mixed)(numbers()), np.array([3.0, 6, 9, 12, 15]) + numbers()[95:])


def test_sparse_matrices_are_arguments() -> None:
    matrix = sparse.eye(N, 3, format="csr")
    totals = splittable(lambda m: m.sum(axis=1), m=Rows(), returns=Rows())
    np.testing.assert_array_equal(pipeline(totals)(matrix), matrix.sum(axis=1))
    with options(batch="auto"):
        np.testing.assert_array_equal(pipeline(totals)(matrix), matrix.sum(axis=1))


@pytest.mark.filterwarnings("ignore:invalid value encountered in")
@pytest.mark.parametrize(
    "value", ["x.sum()", "np.float64(3e9)", "np.datetime64(0, 's')", "7", "x[3]"]
)
def test_numbers_that_masks_assign_are_cast_as_by_numpy(value: str) -> None:
    def body(x: Any, a: Any) -> Any:
        a[a > 5] = eval(value)
        b = a * 2
        b[b > 4] = eval(value)
        return a, b

    x, a = numbers().astype("i8") - 100, np.arange(N).astype("i1")
    expected = body(x, a.copy())
    for one, other in zip(pipeline(body)(x, a), expected, strict=True):
        same(one, other)


def test_a_lazy_value_in_a_function_on_pieces_is_an_error_and_no_hang() -> None:
    def body(x: Any) -> Any:
        total = x * 2

        def add(v: Any) -> Any:
            nonlocal total
            total += v.sum()
            return v

        return splittable(add, v=Rows(), returns=Rows())(x)

    with pytest.raises(InvalidArgumentError, match="in a function that runs on pieces"):
        pipeline(body)(numbers())
