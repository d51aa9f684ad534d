"""What is known of the results of annotated functions before they run, and what is not."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import AnnotationError, split
from spliter.pipeline import (
    Axis,
    Groups,
    Reduction,
    Rows,
    broadcast,
    mut,
    options,
    pipeline,
    splittable,
)
from spliter.testing import check_splittable

VALUES = np.random.default_rng(0).random(40) * 9
ROWS = Rows()


def annotated(fn: Callable[..., Any]) -> Any:
    return splittable(fn, x=ROWS, returns=ROWS)


pairs = annotated(lambda x: np.array([[each, each * each] for each in x]))
whole = annotated(lambda x: np.array([int(each) for each in x]))
masked = annotated(lambda x: np.ma.masked_less(x, 4))
texts = annotated(lambda x: np.array([str(each) for each in x]))
codes = annotated(lambda x: np.array([{int(v): v for v in VALUES}[int(each)] for each in x]))
total = splittable(lambda x: float(x.sum()), x=ROWS, returns=Reduction(merge=lambda a, b: a + b))


def norms(x: Any) -> Any:
    return np.sqrt((pairs(x - 1) ** 2).sum(axis=-1)), pairs(x).shape, pairs(x).mean(axis=1).shape


def flags(x: Any) -> Any:
    found = whole(x + 1)
    return found & 1, found.dtype, np.empty(3, found.dtype).dtype, ~(found > 3), found.max()


def hidden(x: Any) -> Any:
    found = masked(x * 1)
    return found.sum(), found.count(), found.copy().sum(), (found + 1).mean(), found.filled(0)


def others(x: Any) -> Any:
    return np.char.add(texts(x), "b"), codes(x * 1) + 1, codes(x).dtype


def assigned(x: Any) -> Any:
    y, z = x * 2, x * 2
    y[:] = total(x)
    z[1:3] = total(x)
    return y, z, np.where(x > 4, total(x), x)


@pytest.mark.parametrize("body", [norms, flags, hidden, others, assigned])
@pytest.mark.parametrize("batch", [7, 20, 100])
def test_results_are_those_of_the_plain_program(body: Callable[..., Any], batch: int) -> None:
    with options(batch=batch):
        found = pipeline(body)(VALUES)
    for each, expected in zip(found, body(VALUES), strict=True):
        assert type(each) is type(expected)
        if getattr(each, "dtype", np.dtype("O")).kind == "f":
            np.testing.assert_allclose(each, expected, rtol=1e-12)
        else:
            np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize("cuts", [[13], [5, 5, 31]])
def test_over_a_split_results_are_those_of_the_plain_program(cuts: list[int]) -> None:
    with options(batch=7), split(np.split(VALUES, cuts)) as parts:
        found = pipeline(lambda x: norms(x)[0])(parts)
        np.testing.assert_array_equal(np.concatenate(found), norms(VALUES)[0])
        assert pipeline(lambda x: whole(x).sum())(parts) == whole(VALUES).sum()


def test_results_that_differ_from_those_of_one_row_are_refused() -> None:
    mixed = annotated(lambda x: np.array([int(each) if each < 5 else each for each in x]))
    values = np.sort(VALUES)
    for batch in (7, 100):
        with (
            options(batch=batch),
            pytest.raises(AnnotationError, match=r"of float64 .* and an array of int64 .* one row"),
        ):
            pipeline(lambda x: mixed(x) + 1)(values)
    with (
        split(np.split(values, [20])) as parts,
        pytest.raises(AnnotationError, match=r"returned an array of"),
    ):
        list(pipeline(lambda x: mixed(x) + 1)(parts))
    named = annotated(lambda x: pd.DataFrame({f"a{len(x)}": x}))
    with options(batch=7), pytest.raises(AnnotationError, match=r"DataFrame of \['a7'\]"):
        pipeline(lambda x: named(x) + 1)(values)


def test_defaults_are_cut() -> None:
    weights = np.arange(40.0)

    def weighed(x: Any, by: Any = weights, scale: Any = None) -> Any:
        return x * by[: len(x)]

    fn = splittable(weighed, x=ROWS, by=ROWS, scale=ROWS, returns=ROWS)
    check_splittable(fn, VALUES)
    with options(batch=7):
        np.testing.assert_array_equal(pipeline(lambda x: fn(x * 1))(VALUES), VALUES * weights)
    kept = np.zeros(40)

    def fill(x: Any, out: Any = kept) -> None:
        out[: len(x)] = x

    with options(batch=7):
        pipeline(splittable(fill, x=ROWS, out=mut(ROWS), returns=None))(VALUES)
    np.testing.assert_array_equal(kept, VALUES)


def test_results_have_their_classes() -> None:
    describe = splittable(
        lambda x: (x.max(), "m", {"a": 1}, 5),
        x=ROWS,
        returns=(Reduction(merge=max), broadcast, broadcast, broadcast),
    )

    def body(x: Any) -> Any:
        most, unit, table, count = describe(x)
        kinds = isinstance(most, float), isinstance(unit, str), isinstance(table, dict)
        return *kinds, isinstance(count, int), json.dumps({"n": int(count)})

    with options(batch=7):
        assert pipeline(body)(VALUES) == (True, True, True, True, '{"n": 5}')


class Scaler:
    def __init__(self, by: float) -> None:
        self.by = by

    def scale(self, x: Any) -> Any:
        return x * self.by

    by_rows = splittable(scale, x=ROWS, returns=ROWS)


def test_methods_are_checked() -> None:
    check_splittable(Scaler(2).by_rows, VALUES)
    check_splittable(pipeline(Scaler(2).by_rows), VALUES)
    check_splittable(pipeline(functools.partial(Scaler(2).by_rows)), VALUES)


def test_wrong_types_are_refused() -> None:
    def first(x: Any) -> Any:
        return x, x

    for types, text in (
        ({"x": mut("a")}, "'a', which is not a split type"),  # type: ignore[arg-type]
        ({"x": mut(Rows)}, "which is not a split type"),  # type: ignore[arg-type]
        ({"x": mut(mut(ROWS))}, "which is not a split type"),  # type: ignore[arg-type]
        ({"x": Reduction(merge=max)}, "which is for results"),
        ({"x": Groups()}, "which is for results"),
        ({"x": ROWS, "returns": mut(ROWS)}, "which is not a split type"),
        ({"x": ROWS, "returns": (ROWS, Reduction(np.max, max))}, "would make one of them"),
    ):
        with pytest.raises(AnnotationError, match=text):
            splittable(first, **{"returns": ROWS, **types})
    with pytest.raises(AnnotationError, match="no function to merge, got 3"):
        Reduction(merge=3)  # type: ignore[arg-type]
    with pytest.raises(AnnotationError, match=r"axis is 1\.5; pass an int"):
        Axis(1.5)  # type: ignore[arg-type]
