"""What a pipeline keeps in memory: no result that is not needed, and few waiting calls."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

from spliter.pipeline import Rows, options, pipeline, splittable
from spliter.pipeline._running.program import MAX_TEMPORARY_NBYTES
from spliter.pipeline._values import capture

pytestmark = pytest.mark.usefixtures("small_batches")


def numbers() -> Any:
    return np.arange(1.0, 101)


def in_one_stage(x: Any) -> Any:
    for _ in range(20):
        x = x * 1.5 + 1
    return x.sum(keepdims=True)


def number_of_a_result(x: Any) -> Any:
    return (x * 1.5 + 1).sum()


def number_of_a_variable(x: Any) -> Any:
    y = x * 1.5 + 1
    return y.sum()


def in_many_stages(x: Any) -> Any:
    for _ in range(20):
        x[1:-1] += x[2:] - x[:-2]
    return x.sum()


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (in_one_stage, 0),
        (number_of_a_result, 0),
        (number_of_a_variable, 1),
        (in_many_stages, 2),
    ],
)
def test_results_that_nobody_holds_are_not_stored(body: Any, stored: int) -> None:
    n = 1 << 20
    x = np.ones(n)

    with options(threads=2, batch="auto"):
        run = pipeline(body)
        run(x)
        tracemalloc.start()
        run(x)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # Two threads; beside arrays there are Python's own objects.
    assert x.nbytes - 2**20 > 2 * MAX_TEMPORARY_NBYTES
    assert peak - 2**20 < 2 * MAX_TEMPORARY_NBYTES + stored * x.nbytes


def test_long_loops_are_evaluated_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_PENDING", 10)
    waiting = []

    def body(x: Any) -> Any:
        for _ in range(30):
            x = x + 1
            waiting.append(len(x._graph.pending))
        return x

    np.testing.assert_array_equal(pipeline(body)(numbers()), numbers() + 30)
    assert max(waiting) == 9


def diffuse(x: Any) -> Any:
    for _ in range(20):
        x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
    return x


def accumulate(x: Any) -> Any:
    for _ in range(20):
        x = np.cumsum(x)
    return x


def centre(x: Any) -> Any:
    for _ in range(20):
        x = x - x.mean()
    return x


@pytest.mark.parametrize("body", [diffuse, accumulate, centre])
def test_results_are_freed_after_the_last_stage_that_reads_them(body: Any) -> None:
    x = np.linspace(0, 1, 1 << 17)
    with options(threads=2, batch=1 << 13):
        tracemalloc.start()
        pipeline(body)(x)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * x.nbytes


def test_each_thread_gets_a_batch() -> None:
    seen: list[int] = []

    def doubled(x: Any) -> Any:
        seen.append(len(x))
        return x * 2

    x = np.arange(300_000.0)
    with options(threads=3, batch="auto"):
        found = pipeline(splittable(doubled, x=Rows(), returns=Rows()))(x)
    np.testing.assert_array_equal(found, x * 2)
    assert sorted(seen) == [100_000] * 3


def fail_on_batches(x: Any) -> Any:
    if len(x) > 1:
        raise ValueError("fails")
    return x


failing = splittable(fail_on_batches, x=Rows(), returns=Rows())


def of_values(x: Any) -> Any:
    with np.errstate(all="raise"):
        return 1 / (x - x)


def of_a_number(x: Any) -> Any:
    y = failing(x)
    return float((y * 2).sum())


def caught_in_the_body(x: Any) -> Any:
    y = failing(x)
    try:
        return float((y * 2).sum()), y
    except ValueError:
        return x + 1


def interrupted(x: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "body",
    [
        *(of_values, of_a_number, caught_in_the_body, lambda x: failing(x) * 2),
        lambda x: (failing(x), failing(x).sum()),
        splittable(interrupted, x=Rows(), returns=Rows()),
    ],
)
def test_errors_keep_no_values(body: Any) -> None:
    x = numbers()
    kept = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError, FloatingPointError, KeyboardInterrupt):
            pipeline(body)(x)
        del x
        assert kept() is None
    finally:
        gc.enable()
