"""What is known of the results of annotated functions before they run, and what is not."""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from spliter import AnnotationError, split
from spliter.pipeline import (
    Axis,
    Generic,
    Groups,
    Reduction,
    Rows,
    SplitType,
    broadcast,
    mut,
    options,
    pipeline,
    splittable,
    unknown,
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


codes_of = {number: number * 10 for number in range(20) if number != 1}
looked_up = annotated(lambda x: np.array([codes_of[int(each)] for each in x]))


def count_digits(x: Any, base: Any) -> Any:
    found = []
    for value, by in zip(x, base, strict=True):
        digits, left = 0, value
        while left:  # for ever, for a base of 1
            left //= by
            digits += 1
        found.append(digits)
    return np.array(found)


digits = splittable(count_digits, x=ROWS, base=ROWS, returns=ROWS)
times = splittable(lambda x, y: x * y, x=ROWS, y=ROWS, returns=ROWS)
negated = splittable(lambda x: np.cumsum(x, axis=0), x=Axis(-1), returns=Axis(-1))
columns = splittable(lambda x: np.cumsum(x, axis=0), x=Axis(1), returns=Axis(1))
generic = splittable(lambda x: x + 1, x=Generic("S"), returns=Generic("S"))
positive = splittable(lambda x: np.array([each for each in x if each > 3]), x=ROWS, returns=unknown)
listed = splittable(lambda x: [str(each) for each in x], x=ROWS, returns=ROWS)
counted = np.arange(2, 20)


def first_rows_of_filters(x: Any) -> Any:
    few = looked_up(x[x % 2 == 0])
    return few, few.max(), looked_up(x[x > 99]).shape, looked_up(x + 0)[::2], listed(x[x > 9])


def of_unequal_lengths(x: Any) -> Any:
    found = times(x[:1] * 1, x)
    return found, found.shape, found.sum(), times(x[x > 10], x[x > 10] + 1)


def beside_filters(x: Any) -> Any:
    few = x[x > 10]
    return times(few, x[: len(few)]), times(x[: len(few)], few * 2)


def along_axes(x: Any) -> Any:
    table = np.outer(x[:3], x)
    found = generic(columns(table))
    return negated(table) * 2, found, found.shape, found.sum(axis=1)


def of_filters(x: Any) -> Any:
    found = positive(x - 2)
    return found, found * 2, positive(x * 0 + 2).size, found.sum()


def of_loops(x: Any) -> Any:
    return digits(x, x * 0 + 2), digits(x + 1, x + 0).max()


@pytest.mark.parametrize(
    "body",
    [first_rows_of_filters, of_unequal_lengths, beside_filters, along_axes, of_filters, of_loops],
)
@pytest.mark.parametrize("batch", [4, 100])
def test_results_of_more_annotations_are_those_of_the_plain_program(
    body: Callable[..., Any], batch: int
) -> None:
    with options(batch=batch):
        found = pipeline(body)(counted)
    for each, expected in zip(found, body(counted), strict=True):
        assert type(each) is type(expected)
        assert getattr(each, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_array_equal(each, expected)


def test_over_a_split_rows_come_with_numbers() -> None:
    both = splittable(
        lambda x: (x * 2 if len(x) else [], float(x.sum()), None),
        x=ROWS,
        returns=(ROWS, Reduction(merge=lambda a, b: a + b), broadcast),
    )

    def body(x: Any) -> Any:
        doubled, number, nothing = both(x)
        return doubled * 2, doubled.sum(), number, nothing, positive(x)

    with options(batch=4), split(np.split(counted, [5, 5, 12])) as parts:
        found, expected = pipeline(body)(parts), body(counted)
    assert found[1:4] == expected[1:4]
    for at in (0, 4):
        np.testing.assert_array_equal(np.concatenate(found[at]), expected[at])


def test_results_of_functions_that_change_their_argument_are_kept_after_an_error() -> None:
    change = splittable(lambda x: x.__iadd__(1) * x, x=mut(ROWS), returns=ROWS)

    def fail(x: Any) -> Any:
        if (x > 9).any():
            raise ValueError("large")
        return x

    def body(x: Any) -> Any:
        found = change(x)
        with contextlib.suppress(ValueError):
            float(annotated(fail)(x).sum())
        return annotated(lambda x: x * 2)(found)

    one, other = counted.copy(), counted.copy()
    with options(batch=4):
        np.testing.assert_array_equal(pipeline(body)(one), body(other))
    np.testing.assert_array_equal(one, other)


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
        ({"x": unknown}, "which is for results"),
        ({"x": ROWS, "returns": mut(ROWS)}, "which is not a split type"),
        ({"x": ROWS, "returns": (ROWS, Reduction(np.max, max))}, "would make one of them"),
    ):
        with pytest.raises(AnnotationError, match=text):
            splittable(first, **{"returns": ROWS, **types})
    with pytest.raises(AnnotationError, match="no function to merge, got 3"):
        Reduction(merge=3)  # type: ignore[arg-type]
    with pytest.raises(AnnotationError, match=r"axis is 1\.5; pass an int"):
        Axis(1.5)  # type: ignore[arg-type]
    with pytest.raises(AnnotationError, match="Groups has the aggregate 'mean'"):
        Groups("mean")


@pytest.mark.parametrize("base", [Rows, Axis, Groups, Reduction])
def test_types_of_the_package_are_not_derived_from(base: type) -> None:
    with pytest.raises(AnnotationError, match=f"Sorted is derived from {base.__name__}"):
        type("Sorted", (base,), {"merge": lambda self, pieces: np.sort(np.concatenate(pieces))})


@pytest.mark.parametrize("rows", [8, 3_000_000])
def test_arguments_that_are_read_once(rows: int) -> None:
    def repeated(x: Any, by: Any) -> Any:
        return x * next(by)

    made = pipeline(splittable(repeated, x=ROWS, returns=ROWS))(np.ones(rows), iter([3.0]))
    np.testing.assert_array_equal(made, np.full(rows, 3.0))


Pair = collections.namedtuple("Pair", "one other")


def changed_list(x: Any) -> Any:
    weights = [2.0] * len(VALUES)
    found = splittable(np.multiply, x1=ROWS, x2=ROWS, returns=ROWS)(x, weights)
    weights.append(9.0)
    return found


def changed_containers(x: Any) -> Any:
    given: Any = [{"k": [2.0]}, (np.ones(1), np.ones(9)), collections.deque([3.0]), {4.0}]
    pair, buffer = Pair(np.ones(1), 5.0), array.array("d", [6.0])
    scaled = splittable(
        lambda x, g, p, b: x * g[0]["k"][0] * g[1][0] * g[2][0] * sum(g[3]) * p.one[0] + b[0],
        x=ROWS,
        returns=ROWS,
    )
    found = scaled(x, given, pair, buffer)
    given[0]["k"][0] = given[1][0][0] = given[2][0] = pair.one[0] = buffer[0] = 9.0
    given[3].clear()
    return found


def changed_sparse(x: Any) -> Any:
    eye, series = scipy.sparse.eye_array(1, format="csr") * 2.0, pd.Series([2.0])
    gaps = np.ma.masked_less(np.ones(2), 0)
    scaled = splittable(
        lambda x, *whole: x * sum(each.sum() for each in whole), x=ROWS, returns=ROWS
    )
    found = scaled(x, eye, series, gaps)
    eye.data[:] = gaps[:] = 9.0
    series.iloc[0] = 9.0
    return found


def changed_objects(x: Any) -> Any:
    held = np.array([[2.0], None], dtype=object)
    found = splittable(lambda x, held: x * held[0][0], x=ROWS, returns=ROWS)(x, held)
    held[0][0] = 9.0
    return found


def read_once(x: Any) -> Any:
    return splittable(lambda x, it: x * next(it), x=ROWS, returns=ROWS)(x, iter([2.0]))


@pytest.mark.parametrize(
    "body", [changed_list, changed_containers, changed_sparse, changed_objects, read_once]
)
def test_arguments_are_as_they_are_at_the_call(body: Callable[..., Any]) -> None:
    expected = body(VALUES)
    with options(batch=7):
        np.testing.assert_array_equal(pipeline(body)(VALUES), expected)
    if body in (
        changed_containers,
        changed_sparse,
        changed_objects,
    ):  # the others are whole at the client
        with split([VALUES[:9], VALUES[9:]]) as parts:
            np.testing.assert_array_equal(np.concatenate(pipeline(body)(parts)), expected)


def set_small(x: Any) -> None:
    x[x < 10] = 10


def replace_by(x: Any) -> None:
    x[...] = x + 10


def add_ten(x: Any) -> None:
    x += 10


CHANGES: dict[str, Callable[[Any], Any]] = {
    "operator": add_ten,
    "out": lambda x: np.add(x, 10, out=x),
    "view": lambda x: add_ten(x[::-1]),
    "mask": set_small,
    "all": replace_by,
    "function": splittable(set_small, x=mut(ROWS), returns=None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_cut", [False, True])
def test_functions_are_not_tried_on_rows_before_a_change(change: Any, is_cut: bool) -> None:
    least = []

    def logs(x: Any, y: Any) -> Any:
        least.append(y.min())
        return np.emath.log(y[0] - 9) + x

    marked = splittable(logs, x=ROWS, y=ROWS if is_cut else broadcast, returns=ROWS)

    def body(x: Any, y: Any) -> Any:
        change(y)
        found = marked(x, y)
        return found * 2, found.dtype

    with options(batch=7):
        found, dtype = pipeline(body)(VALUES, np.zeros(40))
    assert min(least) == 10
    np.testing.assert_array_equal(found, VALUES * 2)
    assert dtype == np.float64


@dataclass(frozen=True)
class Lines(SplitType):
    """Items of some numbers each."""

    width: int = 2

    def length(self, value: Any) -> int:
        return len(value) // self.width

    def split(self, value: Any, start: int, stop: int) -> Any:
        return value[self.width * start : self.width * stop]


@pytest.mark.parametrize("kind", [Lines(), Lines(4)])
def test_items_can_be_of_several_numbers(kind: Lines) -> None:
    def totals(x: Any) -> Any:
        return x.reshape(-1, kind.width).sum(axis=1)

    check_splittable(splittable(totals, x=kind, returns=ROWS), VALUES)
    assert Lines(4) != Lines()


@dataclass(frozen=True)
class Columns(SplitType):
    """Dicts of arrays of one length."""

    def length(self, value: Any) -> int:
        return len(value["x"])

    def split(self, value: Any, start: int, stop: int) -> Any:
        return {name: each[start:stop] for name, each in value.items()}

    def merge(self, pieces: Any) -> Any:
        return {name: np.concatenate([each[name] for each in pieces]) for name in pieces[0]}


def double(columns: Any) -> None:
    for each in columns.values():
        np.multiply(each, 2, out=each)


def test_dicts_of_lazy_arrays_are_cut() -> None:
    doubling = splittable(double, columns=mut(Columns()), returns=None)
    sums = splittable(lambda columns: sum(columns.values()), columns=Columns(), returns=ROWS)

    def body(columns: Any) -> Any:
        before, first = columns["x"] * 3, sums(columns)
        columns["x"] += 1
        doubling(columns)
        return before, first, sums(columns), columns["y"].sum()

    given, plain = ({"x": VALUES.copy(), "y": VALUES * 2} for _ in range(2))
    with options(batch=7):
        found = pipeline(body)(given)
    for one, other in zip((*found, *given.values()), (*body(plain), *plain.values()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_a_tuple_of_one_result_is_refused() -> None:
    with pytest.raises(AnnotationError, match=r"returns=\(Rows\(\),\), and a tuple has two"):
        splittable(lambda x: (x,), x=ROWS, returns=(ROWS,))
    with pytest.raises(AnnotationError, match=r"returns=\(\), .*; pass returns=None"):
        splittable(lambda x: None, x=ROWS, returns=())
