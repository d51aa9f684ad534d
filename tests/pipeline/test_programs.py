"""Random programs of array calls give the plain program's bits, in results and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from spliter.pipeline import options, pipeline

Program = Callable[..., list[Any]]

UNARY = [np.sqrt, np.exp, np.negative, np.sin, np.log1p, np.square, np.floor, np.abs, np.tanh]
BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.divide, np.hypot, np.greater]
WIDTH = 3

Call = tuple[str, int, int, int]
"""Kind of a call, and three numbers that choose its function and its operands."""

KINDS = [
    "unary", "binary", "unary", "binary", "out", "inplace", "power", "view", "stride", "column",
    "row", "assign", "mask", "where", "astype", "minimum", "slice", "reversed", "float", "argmax",
    "partial out", "where out", "transpose", "roll", "halves", "sums", "sums in shape", "chosen",
]  # fmt: skip
calls = st.lists(
    st.tuples(st.sampled_from(KINDS), *[st.integers(0, 99) for _ in range(3)]),
    min_size=30,
    max_size=30,
)


def run(program: list[Call], first: Any, second: Any, flat: Any) -> list[Any]:
    """Run a program on a pool of values; return those that are left."""
    pool = [first, second, flat]
    for kind, choice, left, right in program:
        one, other = pool[left % len(pool)], pool[right % len(pool)]
        result = step(kind, choice, one, other)
        if result is not None:
            pool.append(result)
        if len(pool) > 9:
            del pool[3 + choice % 6]
    return pool


def compatible(one: Any, other: Any) -> bool:
    """Return whether two values can be combined, with the shape of the first one."""
    return (
        bool(np.broadcast_shapes(one.shape, other.shape) == one.shape)
        if fits(one, other)
        else False
    )


def fits(one: Any, other: Any) -> bool:
    pairs = zip(one.shape[::-1], other.shape[::-1], strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def step(kind: str, choice: int, one: Any, other: Any) -> Any:
    unary, binary = UNARY[choice % len(UNARY)], BINARY[choice % len(BINARY)]
    if one.dtype == bool and kind not in ("where", "astype"):
        return None
    if kind == "unary":
        return unary(one)
    if kind == "power":
        return one ** [2, 0.5, 3, -1, 1.5][choice % 5]
    if kind == "view":
        return one[:, None] if one.ndim == 1 else one[..., 0]
    if kind == "slice":
        return one[choice % 5 :]
    if kind == "stride":
        return one[:: 1 + choice % 3]
    if kind == "reversed":
        return one[::-1]
    if kind == "transpose":
        return one.T.copy().T
    if kind == "roll":
        return np.roll(one, choice - 50, choice % one.ndim) if one.ndim else None
    if kind == "halves":
        return np.array_split(one, 2)[choice % 2]
    if kind == "sums":
        return np.cumsum(one)
    if kind == "sums in shape":
        return np.cumsum(one).reshape(one.shape[::-1]).T
    if kind == "chosen":
        return one[one[:, 0] > choice / 200] if one.ndim == 2 and one.shape[1] else None
    if kind == "row":
        return one[choice % len(one)] * 1.0 if one.ndim > 1 and len(one) else None
    if kind == "column":
        return one[:, choice % one.shape[1]] if one.ndim == 2 and one.shape[1] else None
    if kind == "astype":
        return one.astype("f4" if choice % 2 else "f8")
    if kind == "minimum":
        return np.minimum(one, one.min(axis=0)) if len(one) else None
    if kind == "argmax":
        return one - one[one.argmax(axis=0)] if one.ndim == 1 and len(one) else None
    if kind == "float":
        return one * float(one.max()) if one.size else None
    if kind == "mask":
        one[one > one.dtype.type(choice / 20)] = 0.25
        return None
    if kind == "assign":
        one[choice % 4 :: 2] = 0.5 + choice
        return None
    if not fits(one, other) or (other.dtype == bool and kind != "binary"):
        return None
    if kind == "binary":
        return binary(one, other)
    if kind == "where":
        return np.where(one > 0.5, other, 2.0)
    if not compatible(one, other) or other.dtype == np.float64 != one.dtype:
        return None
    if kind == "inplace":
        one += other
    elif kind == "out" and binary is not np.greater:
        np.add(other, 0.5, out=one)
    elif kind == "partial out" and len(one) > 4 and one.ndim == 1 and one.shape == other.shape:
        np.multiply(other[1:], 0.5, out=one[:-1])
    elif kind == "where out":
        np.subtract(one, other, out=one, where=other > 0.3)
    return None


def arguments(n: int, order: str) -> list[Any]:
    draw = np.random.default_rng(n)
    return [
        np.asarray(draw.uniform(0.1, 1, (n, WIDTH)), order=order),  # type: ignore[call-overload]
        draw.uniform(0.1, 1, (2 * n, WIDTH)).astype("f4")[::2],
        draw.uniform(0.1, 1, n),
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    program=calls,
    n=st.sampled_from([1, 3, 64, 301]),
    batch=st.sampled_from([1, 7, 64, 1000, "auto"]),
    threads=st.sampled_from([1, 2]),
    order=st.sampled_from(["C", "F"]),
)
def test_random_programs_equal_the_plain_ones_to_the_bit(
    program: list[Call], n: int, batch: Any, threads: int, order: str
) -> None:
    plain, cut = arguments(n, order), arguments(n, order)
    expected = run(program, *plain)
    with options(batch=batch, threads=threads):
        found = pipeline(run)(program, *cut)
    assert len(found) == len(expected)
    for one, other in zip([*found, *cut], [*expected, *plain], strict=True):
        assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
