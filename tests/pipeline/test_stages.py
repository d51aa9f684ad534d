"""Stages: which calls run together, what ends one, and how results compare with the plain ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

from spliter.pipeline import Rows, broadcast, explain, module, options, pipeline, splittable

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


def stages(fn: Any, *args: Any) -> list[str]:
    """Return the functions of each stage of a pipeline."""
    found: list[str] = []
    with options(batch=99):
        text = explain(fn, *args)
    for line in text.splitlines():
        if line.startswith("stage"):
            found.append("")
        elif line.startswith("    "):
            found[-1] += " " + line.split()[0]
    return [each.strip() for each in found]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 7, 333, N])
def test_a_chain_of_ufuncs_is_one_stage_with_equal_bits(threads: int, batch: int) -> None:
    args = uniform((10, 50), (10, 50), (1, 2), (0.01, 0.2), (0.1, 0.5))
    with options(threads=threads, batch=batch):
        found = pipeline(black_scholes)(*args)
    for one, other in zip(found, black_scholes(*args), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(stages(pipeline(black_scholes), *args)) == 1


def test_a_value_needed_whole_ends_a_stage() -> None:
    (x,) = uniform((0, 1))
    table = x.reshape(-1, 4)
    centred = pipeline(lambda x: x - x.mean(axis=0))
    assert stages(centred, table) == ["mean", "subtract"]
    with options(batch=99):
        assert "needs the whole result of mean" in explain(centred, table)


def test_explain_names_the_calls_of_values_that_are_freed() -> None:
    (x,) = uniform((0, 1))
    assert stages(pipeline(lambda x: np.cumsum(x).max() + x), x) == ["cumsum", "max", "add"]


def test_a_number_runs_only_what_it_follows_from() -> None:
    (x,) = uniform((0, 1))
    waiting = []

    def distance(x: Any) -> Any:
        double, root = x * 2, np.sqrt(x)
        mean = root.mean()
        assert type(mean) is np.float64
        waiting.append((double._node.is_pending, root._node.is_pending))
        return double - mean, root

    assert stages(pipeline(distance), x) == ["sqrt mean", "multiply subtract"]
    with options(batch=99):
        found, root = pipeline(distance)(x)
    assert waiting == [(True, False), (True, False)]
    np.testing.assert_array_equal(root, np.sqrt(x))
    np.testing.assert_allclose(found, x * 2 - root.mean(), atol=1e-14)


def test_calls_on_a_result_of_which_nothing_was_known_are_captured() -> None:
    (x,) = uniform((0, 1))

    @pipeline
    def spread(x: Any) -> Any:
        middle = np.median(x)
        return np.sqrt(np.square(x - middle) / (middle + x))

    assert stages(spread, x) == ["median", "subtract square add divide sqrt"]


def test_calls_on_small_values_neither_cut_large_ones_nor_part_them() -> None:
    (x,) = uniform((0, 1), n=64 * 150)
    table = x.reshape(-1, 4)
    standardized = pipeline(lambda x: (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9))
    assert stages(standardized, table) == ["mean std", "add", "subtract divide"]
    weighted = pipeline(lambda x, w: ((x * (w * 2)) ** 2).sum(axis=1))
    assert stages(weighted, table, np.ones(4)) == ["multiply", "multiply pow sum"]
    with options(batch=99, threads=2):
        np.testing.assert_array_equal(weighted(table, np.ones(4)), ((table * 2) ** 2).sum(axis=1))


def test_small_operands_needed_whole_are_computed_before() -> None:
    (mass,) = uniform((0, 1))
    large = np.outer(mass, mass)

    def pulls(mass: Any, large: Any) -> Any:
        squared = large * large
        return 2.0 * mass / np.sqrt(squared)

    assert stages(pipeline(pulls), mass, large) == ["multiply", "multiply sqrt divide"]
    np.testing.assert_array_equal(pipeline(pulls)(mass, large), pulls(mass, large))


@pytest.mark.parametrize("shift", [-3, 0, 2, N + 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_shifts_of_arguments_are_part_of_their_stage(shift: int, axis: int) -> None:
    table = np.random.default_rng(2).uniform(size=(N, 7))

    def slope(x: Any) -> Any:
        return np.roll(x, shift, axis) - x * 2

    with options(batch=99):
        found = pipeline(slope)(table)
    np.testing.assert_array_equal(found, slope(table))
    assert stages(pipeline(slope), table) == ["roll multiply subtract"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: np.roll(x, 1) - x * 2, ["roll multiply subtract"]),
        (lambda x: x / np.median(x) + np.cumsum(x), ["median", "divide", "cumsum", "add"]),
    ],
)
def test_arrays_of_one_axis_need_not_name_it(body: Any, expected: list[str]) -> None:
    x = np.arange(1000.0)
    with options(batch=99):
        np.testing.assert_array_equal(pipeline(body)(x), body(x))
    assert stages(pipeline(body), x) == expected


def test_views_of_the_same_elements_count_once_for_the_batch() -> None:
    def sliced(x: Any) -> Any:
        return x[1:] + x[1:] * x[1:] - x[1:]

    def passed(x: Any) -> Any:
        return x + x * x - x

    x = np.ones(1_000_001)
    found = explain(pipeline(sliced), x).splitlines()[0]
    assert found == explain(pipeline(passed), x[1:]).splitlines()[0]


def test_shifts_of_results_along_the_axis_that_is_cut_end_the_stage() -> None:
    table = np.random.default_rng(2).uniform(size=(N, 7))

    def slope(x: Any) -> Any:
        y = x * x
        return np.roll(y, 1, axis=1) - np.roll(y, 1, axis=0), np.roll(y, 1)

    with options(batch=99):
        found = pipeline(slope)(table)
    for one, other in zip(found, slope(table), strict=True):
        np.testing.assert_array_equal(one, other)
    assert stages(pipeline(slope), table) == ["multiply roll", "roll subtract", "roll"]


def test_independent_lengths_are_stages_of_their_own_and_interleaved_calls_join_theirs() -> None:
    x, y = np.arange(10.0), np.arange(20.0)

    def interleaved(x: Any, y: Any) -> tuple[Any, Any]:
        a, b = x + 1, y + 1
        return a * 2, b * 2

    assert stages(pipeline(interleaved), x, y) == ["add multiply", "add multiply"]


def test_modules_capture_annotated_functions_only() -> None:
    color = module("skimage.color")
    picture = np.random.default_rng(1).uniform(size=(50, 4, 3))
    to_lab = pipeline(lambda picture: color.rgb2lab(picture) * 2)
    assert stages(to_lab, picture) == ["rgb2lab multiply"]
    with options(batch=7):
        np.testing.assert_array_equal(to_lab(picture), to_lab.__wrapped__(picture))  # type: ignore[attr-defined]
    assert color.label2rgb.__module__.startswith("skimage")


def test_functions_annotated_whole() -> None:
    def polar(x: Any, y: Any, unit: str) -> Any:
        assert isinstance(x, np.ndarray | float)
        return np.hypot(x, y), np.arctan2(y, x), unit

    by_batches = pipeline(
        splittable(polar, x=Rows(), y=Rows(), returns=(Rows(), Rows(), broadcast))
    )
    x, y = uniform((0, 1), (0, 1))
    with options(batch=99):
        radius, angle, unit = by_batches(x, y, unit="rad")
    np.testing.assert_array_equal(radius, np.hypot(x, y))
    np.testing.assert_array_equal(angle, np.arctan2(y, x))
    assert unit == "rad"
    assert by_batches(3.0, 4.0, "rad")[0] == 5.0


def counts_up(x: Any, y: Any, steps: int) -> None:
    for _ in range(steps):
        x += 1


def diffuses(x: Any, y: Any, steps: int) -> None:
    for _ in range(steps):
        x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])


def alternates(x: Any, y: Any, steps: int) -> None:
    for _ in range(steps):
        np.multiply(x, 0.5, out=y)
        np.add(y, 1, out=x)


def recurs(x: Any, y: Any, steps: int) -> None:
    table = x.reshape(100, 10)
    for row in range(1, steps):
        table[row] += table[row - 1]
    y += x


@pytest.mark.parametrize("body", [counts_up, diffuses, alternates, recurs])
def test_planning_takes_time_proportional_to_the_changes(body: Callable[..., None]) -> None:
    def counted(steps: int) -> int:
        found = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        ours, plain = [np.arange(1000.0), np.zeros(1000)], [np.arange(1000.0), np.zeros(1000)]
        body(*plain, steps)
        with options(batch=500, threads=1):
            sys.setprofile(count)
            try:
                pipeline(body)(*ours, steps)
            finally:
                sys.setprofile(None)
        np.testing.assert_array_equal(ours, plain)
        return found

    counted(50)  # fills the caches
    assert counted(50) < counted(100) < 2.2 * counted(50)
