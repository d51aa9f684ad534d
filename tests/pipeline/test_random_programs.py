"""Random programs of 30 calls inside the contract give the plain program's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special
from hypothesis import given

from spliter import split
from spliter.pipeline import Rows, mut, options, pipeline, splittable, unknown
from tests.pipeline.checks import same

UNARY: list[Any] = [
    *(np.sqrt, np.exp, np.negative, np.sin, np.log1p, np.square, np.floor, np.abs, np.tanh),
    *(np.sinc, scipy.special.erf, np.isfinite, np.fix, lambda x: np.round(x, 1)),
]
BINARY: list[Any] = [
    *(np.add, np.subtract, np.multiply, np.maximum, np.divide, np.hypot, np.greater),
    *(np.copysign, np.fmod, np.not_equal),
]
DTYPES = ["f4", "f8", "i8", "i4"]
WIDTH = 3
EXACT = ["min", "max", "argmax", "argmin", "any", "all"]
"""Reductions whose bits do not depend on the batch."""

least = splittable(lambda a: np.maximum(a, 1), a=Rows(), returns=Rows(like="a"))
opaque = splittable(lambda a: a + 1, a=Rows(), returns=Rows())
summed = splittable(lambda a, b: a + b, a=Rows(), b=Rows(), returns=Rows())
large = splittable(lambda a: a[(a if a.ndim == 1 else a[:, 0]) > 0.2], a=Rows(), returns=unknown)
bump = splittable(lambda a: np.add(a, 1, out=a), a=mut(Rows()), returns=Rows(like="a"))

Step = tuple[str, int, int, int]
"""What is called, and three numbers that choose its function and its operands."""


class Program:
    """Runs steps on a pool of values: the same ones whether arrays are lazy or not."""

    def __init__(self, *values: Any) -> None:
        self.pool = [*values]
        self.found: list[Any] = []

    def run(self, steps: list[Step]) -> Any:
        for name, choice, left, right in steps:
            one, other = (self.pool[each % len(self.pool)] for each in (left, right))
            result = STEPS[name](self, choice, one, other)
            if result is not None:
                self.pool.append(result)
            if len(self.pool) > 9:
                del self.pool[3 + choice % 6]
        return self.pool, self.found


def fits(one: Any, other: Any) -> bool:
    """Return whether two values are combined: all tables and columns have the same rows."""
    return bool(one.shape == other.shape) or other.shape == (1, WIDTH)


def kind(value: Any) -> str:
    return str(value.dtype.kind)


def combined(program: Program, choice: int, one: Any, other: Any) -> Any:
    if not fits(one, other) or "b" in kind(one) + kind(other):
        return None
    return BINARY[choice % len(BINARY)](one, other)


def changed(program: Program, choice: int, one: Any, other: Any) -> None:
    """Change a value that the program made, as other names of it see."""
    value = one * 2 if kind(one) != "b" else one + 1
    program.pool.append(value)
    program.found.append(value)
    if (
        value.ndim >= other.ndim
        and fits(value, other)
        and np.can_cast(other.dtype, value.dtype, "same_kind")
    ):
        value += other
    value *= 1 + choice % 3


def unannounced(program: Program, choice: int, one: Any, other: Any) -> Any:
    """Return rows of which nothing is known before they are evaluated."""
    value = opaque(one)
    program.found.append(summed(value + 1, value) * 2)
    assert value.dtype is not None
    return value * 1


def filtered(program: Program, choice: int, one: Any, other: Any) -> None:
    mask = (one if one.ndim == 1 else one.max(axis=1)) > choice / 50
    few = one[mask]
    program.found += [few * 2, few[few < 3] if few.ndim == 1 else few.max(axis=1)]
    if one.shape[:1] == other.shape[:1] and kind(other) != "b":
        program.found.append(other[mask] + 1)


def reduced(program: Program, choice: int, one: Any, other: Any) -> Any:
    name = EXACT[choice % len(EXACT)]
    number = getattr(one, name)()
    program.found.append(number)
    return one * float(number) if name == "max" and kind(one) == "f" else None


def of_rows(program: Program, choice: int, one: Any, other: Any) -> None:
    if one.ndim == 2:
        name = EXACT[choice % 4]
        program.found.append(getattr(one, name)(axis=choice % 2))


STEPS: dict[str, Callable[[Program, int, Any, Any], Any]] = {
    "unary": lambda p, n, a, b: UNARY[n % len(UNARY)](a) if kind(a) != "b" else ~a,
    "binary": combined,
    "power": lambda p, n, a, b: a ** [2, 0.5, 3, 1.5][n % 4] if kind(a) == "f" else None,
    "number": lambda p, n, a, b: (a - n / 7) / (n + 1) if kind(a) != "b" else None,
    "reflected": lambda p, n, a, b: n - a if kind(a) != "b" else None,
    "compare": lambda p, n, a, b: a <= n / 50,
    "flags": lambda p, n, a, b: (a > 0.3) & ~(a > n / 40),
    "where": lambda p, n, a, b: np.where(a > 0.5, b, 2.0) if fits(a, b) else None,
    "clip": lambda p, n, a, b: np.clip(a, 0.25, 0.5 + n) if kind(a) != "b" else None,
    "roll": lambda p, n, a, b: np.roll(a, n - 50, n % a.ndim),
    "astype": lambda p, n, a, b: np.clip(np.nan_to_num(a), -9, 99).astype(DTYPES[n % 4]),
    "row": lambda p, n, a, b: np.minimum(a, a.max(axis=0)) if a.ndim == 2 else None,
    "column": lambda p, n, a, b: a.max(axis=1) if a.ndim == 2 else None,
    "table": lambda p, n, a, b: a[:, None] * np.ones(WIDTH) if a.ndim == 1 else None,
    "least": lambda p, n, a, b: least(a) if kind(a) != "b" else None,
    "summed": lambda p, n, a, b: summed(a, b) if a.shape == b.shape else None,
    "large": lambda p, n, a, b: p.found.append(large(a)),
    "sort": lambda p, n, a, b: p.found.append(np.sort(a, axis=-1)),
    "evaluated": lambda p, n, a, b: p.found.append(np.asarray(a).copy()),
    "slice": lambda p, n, a, b: p.found.append(a[n % 5 :: 1 + n % 3]),
    "item": lambda p, n, a, b: p.found.append(a[-1] * 1),
    **{each.__name__: each for each in (changed, unannounced, filtered, reduced, of_rows)},
}
LOCAL = ["roll", "sort", "evaluated", "slice", "item"]
"""Steps that need all rows at one place."""


def steps(names: list[str]) -> Any:
    step = st.tuples(st.sampled_from(names), *[st.integers(0, 99)] * 3)
    return st.lists(step, min_size=30, max_size=30)


def arguments(n: int, order: str = "C") -> list[Any]:
    draw = np.random.default_rng(n)
    return [
        np.asarray(draw.uniform(0.1, 1, (n, WIDTH)), order=order),  # type: ignore[call-overload]
        draw.uniform(0.1, 1, (2 * n, WIDTH)).astype("f4")[::2],
        draw.uniform(0.1, 1, n),
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    program=steps([*STEPS]),
    n=st.sampled_from([1, 3, 64, 301]),
    batch=st.sampled_from([1, 7, 64, 1000, "auto"]),
    threads=st.sampled_from([1, 2]),
    order=st.sampled_from(["C", "F"]),
)
def test_random_programs_equal_the_plain_ones_to_the_bit(
    program: list[Step], n: int, batch: Any, threads: int, order: str
) -> None:
    given = arguments(n, order)
    expected = Program(*arguments(n, order)).run(program)
    with options(batch=batch, threads=threads):
        found = pipeline(lambda *values: Program(*values).run(program))(*given)
    same(found, expected)
    same(given, arguments(n, order))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    program=steps([name for name in STEPS if name not in LOCAL]),
    cuts=st.lists(st.integers(0, 40), min_size=1, max_size=4).map(sorted),
    batch=st.sampled_from(["auto", 3, 100]),
)
def test_over_a_split_they_are_equal_too(program: list[Step], cuts: list[int], batch: Any) -> None:
    values = arguments(40)
    expected = Program(*arguments(40)).run(program)
    blocks = [np.split(each, cuts) for each in values]
    with options(batch=batch), split(*blocks) as parts:
        found = pipeline(lambda *values: Program(*values).run(program))(parts)
    for one, other in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
        same(np.concatenate(one) if isinstance(one, list) else one, other)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(n=st.integers(1, 50), batch=st.integers(1, 60), times=st.integers(1, 4))
def test_arguments_that_are_marked_change_as_in_the_plain_program(
    n: int, batch: int, times: int
) -> None:
    def body(x: Any) -> Any:
        return [bump(x) * 2 for _ in range(times)]

    ours, plain = np.arange(float(n)), np.arange(float(n))
    expected = body(plain)
    with options(batch=batch):
        found = pipeline(body)(ours)
    same([found, ours], [expected, plain])
