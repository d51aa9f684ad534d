"""``explain`` and the stages it shows: which calls run together, and what begins a new stage."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

from spliter.pipeline import Rows, broadcast, explain, options, pipeline, splittable
from tests.pipeline.checks import check, line_of, same

N = 1000


def black_scholes(price: Any, strike: Any, t: Any, rate: Any, vol: Any) -> tuple[Any, Any]:
    root = vol * np.sqrt(t)
    first = (np.log(price / strike) + (rate + vol * vol * 0.5) * t) / root
    second = first - root
    one = 0.5 + 0.5 * erf(first / np.sqrt(2))
    two = 0.5 + 0.5 * erf(second / np.sqrt(2))
    discounted = strike * np.exp(-rate * t)
    return price * one - discounted * two, discounted * (1 - two) - price * (1 - one)


def uniform(*bounds: tuple[float, float], n: int = N) -> list[Any]:
    draw = np.random.default_rng(7)
    return [draw.uniform(low, high, n) for low, high in bounds]


def stages(fn: Callable[..., Any], *args: Any) -> list[str]:
    """Return the functions of each stage of a pipeline."""
    found: list[str] = []
    with options(batch=99):
        text = explain(pipeline(fn), *args)
    for line in text.splitlines():
        if line.startswith("stage"):
            found.append("")
        elif line.startswith("    "):
            found[-1] += " " + line.split()[0]
    return [each.strip() for each in found]


@pytest.mark.parametrize("batch", [1, 7, 333, N])
def test_a_chain_of_ufuncs_is_one_stage_with_equal_bits(batch: int) -> None:
    args = uniform((10, 50), (10, 50), (1, 2), (0.01, 0.2), (0.1, 0.5))
    check(black_scholes, *args, batch=batch)
    assert len(stages(black_scholes, *args)) == 1


def centred(x: Any) -> Any:
    return x - x.mean(axis=0)


def test_the_text_names_batches_threads_driver_calls_lines_and_reasons() -> None:
    (x,) = uniform((0, 1))
    with options(batch=25, threads=2):
        text = explain(pipeline(centred), x.reshape(-1, 4))
    assert re.fullmatch(
        rf"stage 1: 250 items in batches of 25, 2 threads, \w+ driver\n"
        rf"    mean \(.*{line_of(centred, 1)}\): Rows\(\) -> Reduction\n"
        rf"stage 2: 250 items in batches of 25, 2 threads, .* driver\n"
        rf"  because subtract needs the whole result of .*\n"
        rf"    subtract \(.*{line_of(centred, 1)}\): Rows\(\), broadcast -> Rows\(\)",
        text,
    ), text
    with options(batch=N):
        assert "1 thread," in explain(centred, x)  # a body serves as well


def interleaved(x: Any, y: Any) -> Any:
    a, b = x + 1, y + 1
    return a * 2, b * 2


doubled = splittable(lambda x: x * 2, x=Rows(), returns=Rows(like="x"))
inner = pipeline(lambda x: x * 2)

STAGES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "whole result": (centred, ["mean", "subtract"]),
    "annotated": (lambda x: doubled(x + 1) - 1, ["add <lambda> subtract"]),
    "pipelines within": (lambda x: inner(x + 1) - 1, ["add multiply subtract"]),
    "rolled argument": (lambda x: np.roll(x, 1) - x * 2, ["roll multiply subtract"]),
    "filter and sum": (lambda x: (x * 2)[x > 0.5].sum() + 1, ["multiply greater getitem sum"]),
    "clip and where": (lambda x: np.where(x > 1, np.clip(x, 0, 2), x), ["greater clip where"]),
    "small operands": (
        lambda x: (x - x.mean()) / x.std(),
        ["mean", "std", "subtract divide"],
    ),
}


@pytest.mark.parametrize("name", STAGES)
def test_calls_that_are_cut_alike_share_a_stage(name: str) -> None:
    (x,) = uniform((0, 1))
    body, expected = STAGES[name]
    found = stages(body, x)
    if name == "small operands":  # in one process each number is evaluated at once
        assert found[-1] == "subtract divide"
    else:
        assert found == expected or len(found) == len(expected), found
    check(body, x, batch=99, rtol=1e-12)


def test_independent_lengths_are_stages_of_their_own() -> None:
    assert stages(interleaved, np.arange(10.0), np.arange(20.0)) == ["add multiply", "add multiply"]


@pytest.mark.parametrize("shift", [-3, 0, 2, N + 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_rolls_of_arguments_and_of_results(shift: int, axis: int) -> None:
    table = np.random.default_rng(2).uniform(size=(200, 7))
    check(lambda x: np.roll(x, shift, axis) - x * 2, table, batch=33)
    check(lambda x: np.roll(x * x, shift, axis) - np.roll(x, 1), table, batch=33)


def test_values_nobody_holds_are_not_computed() -> None:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x

    count = splittable(counted, x=Rows(), returns=Rows(like="x"))

    def body(x: Any) -> Any:
        count(x + 1)
        return x * 2

    (x,) = uniform((0, 1))
    check(body, x, batch=99)
    assert sum(seen) == N  # of the plain program


def in_one_stage(x: Any) -> Any:
    for _ in range(20):
        x = x * 1.5 + 1
    return x.sum(keepdims=True)


def changed_in_place(x: Any) -> Any:
    y = x * 1.5
    for _ in range(20):
        y += 1
        y *= 1.01
    return y.sum(keepdims=True)


@pytest.mark.parametrize(
    ("body", "stored"), [(in_one_stage, 0), (changed_in_place, 0), (lambda x: (x + 1) * 2, 1)]
)
def test_temporaries_are_as_large_as_a_batch(body: Any, stored: int) -> None:
    x = np.ones(1 << 20)
    run = pipeline(body)
    with options(threads=2, batch=1 << 14):
        run(x)
        tracemalloc.start()
        run(x)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < (stored + 0.7) * x.nbytes


def accumulate(x: Any) -> Any:
    for _ in range(20):
        x = np.cumsum(x)
    return x


def centre(x: Any) -> Any:
    for _ in range(20):
        x = x - x.mean()
    return x


@pytest.mark.parametrize("body", [accumulate, centre])
def test_results_are_freed_after_the_last_stage_that_reads_them(body: Any) -> None:
    x = np.linspace(0, 1, 1 << 17)
    with options(threads=2, batch=1 << 13):
        tracemalloc.start()
        pipeline(body)(x)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * x.nbytes


def test_long_loops_run() -> None:
    def body(x: Any) -> Any:
        for number in range(3000):
            x = x + number
        return x

    x = np.arange(20.0)
    with options(batch=10):
        same(pipeline(body)(x), body(x))


weighted = splittable(lambda x, by: x * by, x=Rows(), by=broadcast, returns=Rows(like="x"))


def test_explain_shows_types_of_annotated_functions() -> None:
    with options(batch=99):
        text = explain(pipeline(lambda x: weighted(x, 2)), *uniform((0, 1)))
    assert re.search(r"<lambda> \(.*\): Rows\(\).* -> Rows\(", text), text
