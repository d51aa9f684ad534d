"""Annotated functions where a filter, or a block, leaves no rows of some pieces."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import AlignmentError, WholeArrayError, split
from spliter.pipeline import (
    Groups,
    Reduction,
    Rows,
    options,
    pipeline,
    splittable,
    unknown,
)

ROWS = Rows()
VALUES = np.random.default_rng(3).standard_normal(60)
FRAME = pd.DataFrame(
    {
        "a": VALUES,
        "k": np.arange(60) % 4,
        "t": [f"t{each % 7}" for each in range(60)],
    },
    index=np.arange(60) * 2,
)
CUTS = pytest.mark.parametrize("cuts", [[20, 40], [0, 13, 13, 50, 60]])


def of_rows(fn: Callable[..., Any]) -> Any:
    return splittable(fn, x=ROWS, returns=ROWS)


def reduced(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return splittable(fn, x=ROWS, returns=Reduction(*args, **kwargs))


def blocks(values: Any, cuts: list[int]) -> list[Any]:
    edges = [0, *cuts, len(values)]
    return [values[start:stop] for start, stop in itertools.pairwise(edges)]


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == pytest.approx(expected)


def joined(found: Any) -> Any:
    """Join the blocks of a result over a Split."""
    if not isinstance(found, list):
        return found
    join: Any = np.concatenate if isinstance(found[0], np.ndarray) else pd.concat
    return join([each for each in found if len(each)] or found)


def check(body: Callable[[Any], Any], values: Any, cuts: list[int]) -> None:
    """Compare a pipeline in this process, and over a Split, with the plain program."""
    expected = body(values)
    with options(batch=7):
        same(pipeline(body)(values), expected)
        with split(blocks(values, cuts)) as parts:
            same(joined(pipeline(body)(parts)), expected)


lowest = reduced(lambda x: float(x.min()) if len(x) else 0.0, merge=min)
strict = reduced(
    lambda x: None if (x > 2).any() else float(x.sum()),
    merge=lambda a, b: None if a is None or b is None else a + b,
)
finished = reduced(
    lambda x: -1.0 if (x > 2).any() else float(x.sum()),
    lambda x: None if (x > 2).any() else float(x.sum()),
    lambda a, b: None if a is None or b is None else a + b,
    lambda last: -1.0 if last is None else last,
)
several = splittable(
    lambda x: (None if (x > 2).any() else 1, float(x.max())),
    x=ROWS,
    returns=(
        Reduction(merge=lambda a, b: None if a is None or b is None else 1),
        Reduction(merge=max),
    ),
)
stacked = of_rows(lambda x: np.stack([np.array([each, 2 * each]) for each in x]))
with_largest = splittable(
    lambda x: (x * 2, max(x.tolist())), x=ROWS, returns=(ROWS, Reduction(merge=max))
)
texts = of_rows(lambda x: np.array([f"{each:.0f}" for each in x], dtype="U3"))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: lowest(x[x > 1.5]),
        strict,
        finished,
        lambda x: several(x)[0],
        lambda x: several(x[x < 1])[1],
        lambda x: stacked(x[x > 1]).sum(axis=1),
        lambda x: stacked(x) + 1,
        lambda x: with_largest(x[x > 1])[0],
        lambda x: with_largest(x[x > 1])[1],
        lambda x: texts(x[x > 1]),
    ],
)
@CUTS
def test_functions_of_arrays_are_not_called_for_no_rows(body: Any, cuts: list[int]) -> None:
    check(body, VALUES, cuts)


@CUTS
def test_reductions_of_what_a_function_leaves_get_no_rows(cuts: list[int]) -> None:
    keep = splittable(lambda x, above: x[x > above], x=ROWS, returns=unknown)
    check(lambda x: lowest(keep(x, 9)), VALUES, cuts)
    check(lambda x: lowest(keep(x, above=1)) + lowest(x), VALUES, cuts)


def test_what_there_is_besides_no_rows_at_all() -> None:
    numbered = splittable(
        lambda x: (x * 2, float(x.sum()), len(x)),
        x=ROWS,
        returns=(ROWS, Reduction(merge=operator.add), Reduction(merge=operator.add)),
    )
    body = pipeline(lambda x: numbered(x[x > 99]))
    with options(batch=7), split(blocks(VALUES, [20])) as parts:
        for found in (body(VALUES), body(parts)):
            assert joined(found[0]).size == 0
            assert found[1:] == (0.0, 0)


first_largest = reduced(
    lambda x: int(x.argmax()),
    lambda x, start: (x.max(), start + int(x.argmax())),
    lambda one, other: max(one, other, key=lambda each: each[0]),
    lambda last: last[1],
    takes_start=True,
)


@CUTS
def test_positions_are_those_among_the_rows_of_a_filter(cuts: list[int]) -> None:
    def body(x: Any) -> Any:
        few = x[x > 0]
        return few[first_largest(few)], first_largest(few)

    with options(batch=7):
        assert pipeline(body)(VALUES) == body(VALUES)
        with split(blocks(VALUES, cuts)) as parts:
            assert pipeline(first_largest)(parts) == first_largest(VALUES)
            with pytest.raises(WholeArrayError):
                pipeline(body)(parts)


halves = splittable(lambda x: (x[x > 0], x[x <= 0]), x=ROWS, returns=(unknown, unknown))
product = splittable(
    lambda x, y: float(sum(map(operator.mul, x, y))),
    x=ROWS,
    y=ROWS,
    returns=Reduction(merge=operator.add),
)
products = splittable(
    lambda x, y: np.array([*map(operator.mul, x, y)]), x=ROWS, y=ROWS, returns=ROWS
)


def test_two_results_of_one_function_may_have_other_rows() -> None:
    values = np.concatenate([VALUES, -VALUES])  # in all, as many of both

    def body(x: Any) -> Any:
        above, below = halves(x)
        return product(above, below), products(above, below), above.sum()

    with options(batch=7):
        for found, expected in zip(pipeline(body)(values), body(values), strict=True):
            np.testing.assert_allclose(found, expected)
        with (
            split(blocks(values, [11, 50])) as parts,
            pytest.raises(AlignmentError, match=r"of \d+ and of \d+ rows for a batch"),
        ):
            pipeline(lambda x: product(*halves(x)))(parts)


counted = of_rows(lambda x: x.assign(n=np.array([int(each) for each in x["a"]])))
named = of_rows(lambda x: x.assign(q=np.array([f"q{each:.1f}" for each in x["a"]])))
dated = of_rows(
    lambda x: pd.Series(
        [pd.Timestamp("2024-01-01") + pd.Timedelta(days=int(each)) for each in x["k"]], x.index
    )
)
flagged = of_rows(lambda x: x["t"].map(lambda each: each > "t3"))
by_key = splittable(
    lambda x: pd.DataFrame(
        [(key, len(rows), rows["a"].sum()) for key, rows in x.groupby("k")], columns=["k", "n", "s"]
    ).set_index("k"),
    x=ROWS,
    returns=Groups("sum"),
)
applied = splittable(
    lambda x: x.groupby("k").apply(lambda rows: pd.Series({"s": rows["a"].sum()})),
    x=ROWS,
    returns=Groups("sum"),
)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: counted(x[x["a"] > 1.2]),
        lambda x: counted(x)["n"] & 1,
        lambda x: (counted(x[x["a"] > 1.2])["n"] * 3).sum(),
        lambda x: named(x[x["a"] > 1.2])["q"].str.len(),
        lambda x: dated(x[x["a"] > 1.2]),
        lambda x: dated(x) > pd.Timestamp("2024-01-02"),
        lambda x: flagged(x[x["a"] > 1.2]),
        lambda x: flagged(x).sum(),
        lambda x: by_key(x[x["a"] > 1.2]),
        lambda x: applied(x[x["a"] > 1.2]),
    ],
)
@CUTS
def test_functions_of_frames_are_not_called_for_no_rows(body: Any, cuts: list[int]) -> None:
    check(body, FRAME, cuts)


def test_rows_of_a_filter_are_of_the_class_of_the_results() -> None:
    records = of_rows(lambda x: np.rec.fromarrays([x, x * 2], dtype=[("a", "f8"), ("b", "f8")]))

    def body(x: Any) -> Any:
        return records(x[x > 0])

    with options(batch=7):
        found = pipeline(body)(VALUES)
    same(found, body(VALUES))
    np.testing.assert_array_equal(found.b, body(VALUES).b)
