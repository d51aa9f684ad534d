"""Random programs over a Split give the plain program's values, in results and in views."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from spliter import WholeArrayError, split
from spliter.pipeline import Rows, options, pipeline, splittable

ROWS = 37
WEIGHTS = np.random.default_rng(1).normal(size=(3, 3))
doubled = splittable(lambda a: a * 2.0, a=Rows(), returns=Rows())

Step = tuple[str, int, int, int, int]
"""What is done: its name, the table, two columns, and a number of a column or for a factor."""


class Pool:
    """Tables of three columns, columns, masks, and numbers of a program."""

    def __init__(self, table: Any, column: Any) -> None:
        self.tables, self.columns, self.masks = [table], [column], [column > 0]
        self.found: list[Any] = []


def attempt(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    with contextlib.suppress(FloatingPointError), np.errstate(invalid="raise"):
        pool.found.append(float(np.sqrt(p).sum()))


def misfit(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    with contextlib.suppress(ValueError):
        a[:, j] = np.ones((2, 2))


def of_changed_sums(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    total = a.mean(axis=0)
    pool.tables.append(a - total)
    total[j] = 0
    pool.tables.append(a + total)


def swap(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    a[:, j], a[:, 0] = a[:, 0] * 1, a[:, j] * 1


def at_mask(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    mask = pool.masks[-1 - j % len(pool.masks)]
    p[mask] = q[mask] * 0.5
    a[mask] += 1
    a[~mask] *= 0.5


def views(pool: Pool, a: Any, p: Any, q: Any, j: int) -> None:
    some = a[:, ::-1]
    one = some[:, j]
    pool.columns.append(one)
    some[:, 1] -= 1
    one *= 0.5


STEPS: dict[str, Callable[[Pool, Any, Any, Any, int], Any]] = {
    "column": lambda pool, a, p, q, j: pool.columns.append(a[:, j]),
    "copy": lambda pool, a, p, q, j: pool.tables.append(a * 1),
    "add": lambda pool, a, p, q, j: np.add(a, 0.5 * j, out=a),
    "multiply": lambda pool, a, p, q, j: np.multiply(a[:, j], 0.5, out=p),
    "set column": lambda pool, a, p, q, j: a.__setitem__((slice(None), j), p),
    "set all": lambda pool, a, p, q, j: p.__setitem__(..., q - 1),
    "centre": lambda pool, a, p, q, j: np.subtract(p, p.mean(), out=p),
    "mask": lambda pool, a, p, q, j: pool.masks.append(p > 0.3 * j),
    "filter": lambda pool, a, p, q, j: pool.found.append(a[p > 0.2 * j].sum()),
    "join": lambda pool, a, p, q, j: pool.tables.append(np.column_stack([p, a[:, :2]])),
    "product": lambda pool, a, p, q, j: pool.tables.append(np.tanh(a @ WEIGHTS)),
    "dot": lambda pool, a, p, q, j: pool.found.append(p @ q),
    "norm": lambda pool, a, p, q, j: pool.found.append(np.linalg.norm(a)),
    "float": lambda pool, a, p, q, j: pool.found.append(float(p.max())),
    "where": lambda pool, a, p, q, j: pool.columns.append(np.where(p > q, p, 0.0)),
    "annotated": lambda pool, a, p, q, j: pool.tables.append(doubled(a)),
    "dropped": lambda pool, a, p, q, j: pool.tables.pop(0) if len(pool.tables) > 1 else None,
    **{each.__name__: each for each in (attempt, misfit, of_changed_sums, swap, at_mask, views)},
}
steps = st.lists(
    st.tuples(st.sampled_from([*STEPS]), *[st.integers(0, 11) for _ in range(4)]),
    min_size=3,
    max_size=12,
)


def run(program: list[Step], table: Any, column: Any) -> Any:
    pool = Pool(table, column)
    for name, one, left, right, number in program:
        a = pool.tables[one % len(pool.tables)]
        p, q = (pool.columns[each % len(pool.columns)] for each in (left, right))
        STEPS[name](pool, a, p, q, number % 3)
    return pool.tables, pool.columns, pool.found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=4 * settings().max_examples)
@given(
    program=steps,
    cuts=st.lists(st.integers(0, ROWS), min_size=1, max_size=4).map(sorted),
    batch=st.sampled_from([3, 100]),
)
def test_random_programs_equal_the_plain_ones(
    program: list[Step], cuts: list[int], batch: int
) -> None:
    draw = np.random.default_rng(3)
    table, column = draw.normal(size=(ROWS, 3)), draw.normal(size=ROWS)
    expected = run(program, table.copy(), column.copy())
    try:
        with options(batch=batch), split(np.split(table, cuts), np.split(column, cuts)) as parts:
            found = pipeline(run)(program, parts)
    except WholeArrayError:
        return
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            whole = np.concatenate(one) if isinstance(one, list) else one
            np.testing.assert_allclose(whole, other, rtol=1e-9, atol=1e-9)
