"""Annotated functions over a Split and after filters: positions, other axes, numbers, threads."""

from __future__ import annotations

import contextlib
import numbers
import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from spliter import InvalidArgumentError, WholeArrayError, split
from spliter.pipeline import (
    Axis,
    Reduction,
    Rows,
    SplitType,
    broadcast,
    options,
    pipeline,
    splittable,
    unknown,
)

ROWS = Rows()
VALUES = np.random.default_rng(5).standard_normal(60)
TABLE = np.random.default_rng(6).standard_normal((60, 3))
FRAME = pd.DataFrame({"a": VALUES, "k": [f"t{each % 4}" for each in range(60)]})
PARTS = [20, 40]


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(found, list) and not isinstance(expected, list):
        same(np.concatenate(found), expected)
    else:
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected)


@dataclass(frozen=True)
class Bag(SplitType):
    """Lists in a class of their own."""

    def length(self, value: Any) -> int:
        return len(value["items"])

    def split(self, value: Any, start: int, stop: int) -> Any:
        return {"items": value["items"][start:stop]}

    def merge(self, pieces: Any) -> Any:
        return {"items": [item for piece in pieces for item in piece["items"]]}


@pytest.mark.parametrize("swapped", [False, True])
def test_positions_beside_another_number(swapped: bool) -> None:
    kinds = (Reduction(merge=operator.add, takes_start=True), Reduction(merge=max))

    def positions(x: Any, start: int = 0) -> Any:
        found = [start + at for at, each in enumerate(x) if each > 1], float(x.max())
        return found[::-1] if swapped else found

    fn = splittable(positions, x=ROWS, returns=kinds[::-1] if swapped else kinds)
    with options(batch=7), split(np.split(VALUES, PARTS)) as parts:
        assert pipeline(fn)(parts) == positions(VALUES)
        assert pipeline(fn)(VALUES) == positions(VALUES)


outer = splittable(
    lambda x, by: np.array([[each * other for other in by] for each in x]),
    x=ROWS,
    by=broadcast,
    returns=ROWS,
)
positive = splittable(lambda x: np.array([each for each in x if each > 0]), x=ROWS, returns=unknown)
sums = splittable(lambda x: np.cumsum(x, axis=0), x=Axis(1), returns=Axis(1))
bag = splittable(lambda x: {"items": [*x]}, x=ROWS, returns=Bag())
unbag = splittable(lambda x: np.array(x["items"]) * 2, x=Bag(), returns=ROWS)
turned = splittable(lambda x: np.array([x, x * 2]), x=ROWS, returns=Axis(1))


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (lambda x: outer(x, positive(-x)).shape, VALUES),
        (lambda x: outer(x, x[x < 0]), VALUES),
        (lambda x: sums(x[x[:, 0] > 0]).shape, TABLE),
        (lambda x: sums(x[x[:, 0] > 0]), TABLE),
        (lambda x: unbag(bag(x[x > 0])), VALUES),
        (lambda x: turned(x[x > 0]).sum(axis=1), VALUES),
        (lambda x: positive(x - 2) * 2, VALUES),
    ],
)
def test_rows_of_filters_in_other_shapes(body: Any, values: Any) -> None:
    for batch in (7, 100):
        with options(batch=batch):
            same(pipeline(body)(values), body(values))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: positive(x - 2) * 2,
        lambda x: len(positive(x - 2)),
        lambda x: positive(x - 2).mean(),
        lambda x: positive(x - 99).size,
        lambda x: outer(x, x.sum(keepdims=True)),
        lambda x: unbag(bag(x * 1)),
        lambda x: unbag(bag(x[x > 0])),
    ],
)
def test_over_a_split_results_are_known_after_a_pass_at_the_latest(body: Any) -> None:
    with options(batch=7), split(np.split(VALUES, [0, 20, 40])) as parts:
        same(pipeline(body)(parts), body(VALUES))


def test_texts_and_sparse_rows_of_empty_blocks() -> None:
    several = splittable(
        lambda x: (x * 2, np.array([f"{each:.0f}" for each in x]), max(x.tolist())),
        x=ROWS,
        returns=(ROWS, ROWS, Reduction(merge=max)),
    )
    sparse = splittable(
        lambda x: scipy.sparse.csr_array(np.stack([[each, 0.0] for each in x])),
        x=ROWS,
        returns=ROWS,
    )
    totals = splittable(lambda x: x.sum(axis=1), x=ROWS, returns=ROWS)
    with options(batch=7), split(np.split(VALUES, [0, 20, 40])) as parts:
        doubled, texts, largest = pipeline(several)(parts)
        same((doubled, largest), (VALUES * 2, VALUES.max()))
        assert {block.dtype.kind for block in texts} == {"U"}
        same(pipeline(lambda x: totals(sparse(x * 1)))(parts), VALUES)
        same(pipeline(lambda x: totals(sparse(x[x > 1])))(VALUES), VALUES[VALUES > 1])


def test_blocks_that_stand_side_by_side_are_no_collection() -> None:
    with split(np.split(VALUES, PARTS)) as parts:
        for body in (turned, lambda x: turned(x).shape, lambda x: len(turned(x).T)):
            with pytest.raises(WholeArrayError):
                pipeline(body)(parts)


total = splittable(lambda x: float(x.sum()), x=ROWS, returns=Reduction(merge=operator.add))


def test_numbers_of_annotated_functions_are_operands() -> None:
    def of_array(x: Any) -> Any:
        z = x * 2
        z /= total(np.abs(z))
        return z

    def of_frame(d: Any) -> Any:
        d["b"] = d["a"] - total(d["a"])
        return d["b"].sum(), d["a"].where(d["a"] > 0, total(d["a"])).sum()

    with options(batch=7):
        with split(np.split(VALUES, PARTS)) as parts:
            same(pipeline(of_array)(parts), of_array(VALUES))
        with split([FRAME[:20], FRAME[20:]]) as frames:
            same(pipeline(of_frame)(frames), of_frame(FRAME.copy()))
        same(pipeline(of_frame)(FRAME.copy()), of_frame(FRAME.copy()))


def reads_by_closure(x: Any) -> Any:
    mean = x.mean()
    return splittable(lambda part: part - mean, part=ROWS, returns=ROWS)(x)


def merges_by_closure(x: Any) -> Any:
    mean = x.mean()
    kind = Reduction(merge=lambda one, other: one + other + mean)
    return splittable(lambda part: float(part.sum()), part=ROWS, returns=kind)(x)


@pytest.mark.parametrize("body", [reads_by_closure, merges_by_closure])
def test_lazy_numbers_in_functions_that_run_in_tasks_are_refused(body: Any) -> None:
    with split(np.split(VALUES, PARTS)) as parts:
        with pytest.raises(InvalidArgumentError, match="uses a lazy value in a function that runs"):
            pipeline(body)(parts)
        same(pipeline(lambda x: x * 2)(parts), VALUES * 2)  # the tasks have ended


def test_an_error_that_was_caught_does_not_come_again_in_its_thread() -> None:
    def fail(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("negative")
        return x

    failing = splittable(fail, x=ROWS, returns=ROWS)
    doubled = splittable(lambda x: x * 2, x=ROWS, returns=ROWS)

    def body(x: Any, y: Any) -> Any:
        with ThreadPoolExecutor(1) as threads:
            value = threads.submit(lambda: failing(x - 9)).result()
            with pytest.raises(ValueError, match="negative"):
                float(value.sum())
            return threads.submit(lambda: doubled(y)).result()

    with split(np.split(VALUES, PARTS), np.split(-VALUES, PARTS)) as parts:
        same(pipeline(body)(parts), -2 * VALUES)


COUNTED = np.arange(400)
ids = splittable(lambda x: np.array([2**53 + 2 * int(v) + 1 for v in x]), x=ROWS, returns=ROWS)
found = splittable(
    lambda x: np.array([int(each) for each in x if each > 300]), x=ROWS, returns=unknown
)
stacked = splittable(lambda x: np.stack([[each, each * 2] for each in x]), x=ROWS, returns=ROWS)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: ids(x[x > 300]).sum(),
        lambda x: ids(x[x > 300]),
        lambda x: ids(x[x > 300]) & 7,
        lambda x: found(x).sum(),
        found,
        lambda x: stacked(found(x)).sum(axis=1),
        lambda x: stacked(x[x > 300] * 2),
    ],
)
def test_filters_that_leave_nothing_of_the_first_blocks(body: Any) -> None:
    with options(batch=7), split(np.split(COUNTED, [120, 240, 360])) as parts:
        result = pipeline(body)(parts)
    expected = body(COUNTED)
    for each in result if isinstance(result, list) else [result]:
        assert each.dtype == expected.dtype
    same(result, expected)


def test_blocks_without_rows_keep_their_dtype_after_a_caught_error() -> None:
    def fail(x: Any) -> Any:
        if (x > 350).any():
            raise ValueError("large")
        return x

    failing = splittable(fail, x=ROWS, returns=ROWS)

    def body(x: Any) -> Any:
        few = found(x)
        kept = few.dtype
        with contextlib.suppress(ValueError):
            float(failing(x).sum())
        return kept, few.sum().dtype, few.sum()

    with options(batch=7), split(np.split(COUNTED, [120, 240, 360])) as parts:
        assert pipeline(body)(parts) == body(COUNTED)


def test_filters_of_frames_that_find_nothing_in_the_first_rows() -> None:
    def late(d: Any) -> Any:
        kept = [each for each in d["a"] if each > 300]
        return pd.DataFrame({"a": [int(each) for each in kept], "t": [f"t{v}" for v in kept]})

    kept = splittable(late, d=ROWS, returns=unknown)
    frame = pd.DataFrame({"a": COUNTED})

    def body(d: Any) -> Any:
        return kept(d).groupby("t")["a"].sum(), kept(d)["t"].str.upper().nunique()

    with options(batch=7), split([frame[:150], frame[150:350], frame[350:]]) as parts:
        for result in (pipeline(body)(frame), pipeline(body)(parts)):
            pd.testing.assert_series_equal(result[0], body(frame)[0])
            assert result[1] == body(frame)[1]


def test_numbers_over_a_split_are_numbers() -> None:
    def body(x: Any) -> Any:
        mean, largest, is_any = x.mean(), (x > 1).sum(), (x > 2).any()
        match mean:
            case float():
                kind = "float"
            case _:
                kind = "object"
        return (
            kind,
            isinstance(mean, numbers.Number),
            isinstance(largest, np.integer),
            isinstance(is_any, np.bool_),
            np.isscalar(mean),
            pd.api.types.is_number(mean),
            isinstance(mean, np.ndarray),
        )

    with split(np.split(VALUES, PARTS)) as parts:
        assert pipeline(body)(parts) == body(VALUES)


@pytest.mark.parametrize(
    "body",
    [
        lambda q: np.where(q > 0, q, 0.0),
        lambda q: np.select([q > 3], [q], 0.0),
        lambda q: np.column_stack([q, q]),
        lambda q: np.where(np.isnan(q), q, 1.0),
    ],
)
@pytest.mark.parametrize("least", [0.0, 2.0, 2.5])
def test_functions_of_what_a_filter_leaves_of_later_blocks(body: Any, least: float) -> None:
    above = splittable(lambda x: x[x > least], x=Rows(), returns=unknown)
    values = np.array([1.0, 2.0, 3.0, 4.0])
    for _ in range(4):
        with split([values[:2], values[2:]]) as parts:
            found = pipeline(lambda x: body(above(x)))(parts)
        np.testing.assert_array_equal(np.concatenate(found), body(values[values > least]))


def test_functions_without_a_result_are_called_once_for_each_row() -> None:
    for given in (np.arange(40.0), split([np.arange(9.0), np.zeros(0), np.arange(31.0)])):
        seen: list[int] = []
        note = splittable(lambda x, seen=seen: seen.append(len(x)), x=Rows(), returns=None)

        def body(x: Any, note: Any = note) -> Any:
            chosen = x[x < 8]
            note(chosen * 2)
            note(x)
            return chosen

        with options(batch=4, threads=1):
            pipeline(body)(given)
        chosen = 8 if isinstance(given, np.ndarray) else 16
        assert sum(seen) == 40 + chosen


def test_lazy_numbers_in_containers_are_numbers() -> None:
    scaled = splittable(lambda x, by: x * by["m"][0], x=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        low, high = x.min(), x.max()
        return (
            scaled(x, {"m": [x.mean()]}),
            np.interp(x, [low, high], [0, 1]),
            np.digitize(x, [low, x.mean(), high]),
            np.where(x > 0, [x.mean()], [0.0]),
        )

    values = np.arange(40.0)
    with split([values[:9], values[9:]]) as parts:
        for found, expected in zip(pipeline(body)(parts), body(values), strict=True):
            np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-14)


@dataclass(frozen=True)
class Points(SplitType):
    """Lists of two arrays."""

    def length(self, value: Any) -> int:
        return len(value[0])

    def split(self, value: Any, start: int, stop: int) -> Any:
        return [each[start:stop] for each in value]

    def merge(self, pieces: Any) -> Any:
        return [np.concatenate(each) for each in zip(*pieces, strict=True)]


@pytest.mark.parametrize("blocks", [[[1.0, 2.0], []], [[-1.0, -2.0], [1.0, 2.0, 3.0]]])
def test_filters_of_types_of_the_user_in_blocks_without_rows(blocks: list[list[float]]) -> None:
    points = splittable(lambda x: [x, x + 1], x=Rows(), returns=Points())
    positive = splittable(lambda p: p[0][p[0] > 0], p=Points(), returns=unknown)

    def body(x: Any) -> Any:
        return np.sqrt(positive(points(x)) * 2), positive(points(x[x > 1])) + 1

    arrays = [np.array(each) for each in blocks]
    for found, expected in zip(
        pipeline(body)(split(arrays)), body(np.concatenate(arrays)), strict=True
    ):
        np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize("is_split", [False, True])
def test_masks_that_are_one_of_several_results(is_split: bool) -> None:
    signs = splittable(lambda x: (x < 0, x > 0), x=ROWS, returns=(ROWS, ROWS))

    def body(x: Any, y: Any) -> Any:
        below, above = signs(x)
        y[below] = x[below] * 2
        return x[above] + y[above], x[below] - y[below], y

    expected = body(VALUES, VALUES * 3)
    with options(batch=7):
        if is_split:
            given = split(np.split(VALUES, PARTS), np.split(VALUES * 3, PARTS))
            same(pipeline(body)(given), expected)
        else:
            same(pipeline(body)(VALUES, VALUES * 3), expected)

    def of_two(x: Any) -> Any:
        below, above = signs(x)
        return x[below] + x[above]

    with pytest.raises(WholeArrayError, match="add"):
        pipeline(of_two)(split(np.split(VALUES, PARTS)))
