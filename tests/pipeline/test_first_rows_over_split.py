"""Over a Split: annotated functions that fail on ones, and reductions that refuse no rows."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import split
from spliter.pipeline import Reduction, Rows, options, pipeline, splittable

COUNTED = np.arange(2, 42)
FRAME = pd.DataFrame({"a": COUNTED, "b": COUNTED * 0.5})
SQUARES = {int(each): int(each) ** 2 for each in COUNTED}
CUTS = pytest.mark.parametrize("cuts", [[10, 20], [0, 0, 13, 39]])

squares = splittable(
    lambda x: np.array([SQUARES[int(each)] for each in x]), x=Rows(), returns=Rows()
)
tables = splittable(
    lambda x: np.array([[SQUARES[int(each)], 0.5] for each in x]), x=Rows(), returns=Rows()
)
of_frames = splittable(
    lambda frame: np.array([SQUARES[each] for each in frame["a"]]), frame=Rows(), returns=Rows()
)
framed = splittable(
    lambda frame: pd.DataFrame(
        {"s": [SQUARES[each] for each in frame["a"]], "b": frame["b"].to_numpy()}, frame.index
    ),
    frame=Rows(),
    returns=Rows(),
)
doubled = splittable(lambda frame: frame.assign(c=frame["a"] * 2), frame=Rows(), returns=Rows())
largest = splittable(
    lambda x: max(x.tolist()), x=Rows(), returns=Reduction(merge=max, commutative=True)
)
longest = splittable(
    lambda x, by: max(x.tolist()) * by,
    x=Rows(),
    returns=Reduction(lambda x, by: [max(x.tolist()) * by], operator.add, max),
)
extremes = splittable(
    lambda x: (max(x.tolist()), min(x.tolist())),
    x=Rows(),
    returns=(Reduction(merge=max), Reduction(merge=min)),
)
highest = splittable(
    lambda frame: max(frame["b"].tolist()), frame=Rows(), returns=Reduction(merge=max)
)


@pytest.mark.parametrize("count", [10, 60])
def test_values_that_follow_from_many_calls_are_known(count: int) -> None:
    scaled = splittable(lambda x: x * 1.0, x=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        y = x + 0
        for number in range(count):
            y[x > 20] = number
        found = scaled(y)
        found[x > 30] = -1
        return found

    found = pipeline(body)(split(np.split(COUNTED, [10, 20])))
    np.testing.assert_array_equal(np.concatenate(found), body(COUNTED))


@pytest.mark.parametrize("is_split", [False, True])
def test_the_first_row_is_made_once_by_each_call(is_split: bool) -> None:
    rows: list[int] = []

    def counted(x: Any) -> Any:
        rows.append(len(x))
        return x + 1

    fn = splittable(counted, x=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        for _ in range(30):
            x = fn(x)
        return x.sum()

    with options(batch=7):
        found = pipeline(body)(split(np.split(COUNTED, [10, 20])) if is_split else COUNTED)
    assert found == COUNTED.sum() + 30 * len(COUNTED)
    assert rows.count(1) == 30


def of_look_ups(x: Any) -> Any:
    found = squares(x)
    return found.dtype, found.ndim, np.empty(2, found.dtype).dtype, (found + 1).sum()


def of_tables(x: Any) -> Any:
    found = tables(x * 1)
    return found.dtype, found.shape[1], found.sum(axis=1).max(), (found[:, 0] - 1).sum()


def of_filters(x: Any) -> Any:
    few = x[x > 25]
    return tables(few).sum(), squares(few - 1).max(), few.sum()


def of_numbers(x: Any) -> Any:
    return squares(x - x.min() + 2).sum(), squares(x).sum()


@CUTS
@pytest.mark.parametrize("body", [of_look_ups, of_tables, of_filters, of_numbers])
def test_functions_that_fail_on_ones_are_tried_on_a_row(body: Any, cuts: list[int]) -> None:
    with options(batch=7), split(np.split(COUNTED, cuts)) as parts:
        assert pipeline(body)(parts) == body(COUNTED)


def of_results_of_frames(frame: Any) -> Any:
    few = frame[frame["b"] > 7]
    found = of_frames(few)
    return found.dtype, found.sum(), framed(few)["s"].sum(), doubled(few)["c"].sum()


@CUTS
def test_functions_of_frames_are_tried_on_a_row(cuts: list[int]) -> None:
    edges = [0, *cuts, len(FRAME)]
    blocks = [FRAME.iloc[start:stop] for start, stop in itertools.pairwise(edges)]
    with options(batch=7), split(blocks) as parts:
        assert pipeline(of_results_of_frames)(parts) == of_results_of_frames(FRAME)
        assert pipeline(lambda d: highest(d[d["b"] > 18]))(parts) == 20.5


def test_errors_of_functions_and_of_calls_before_them_are_theirs() -> None:
    with split(np.split(COUNTED, [10])) as parts:
        with pytest.raises(KeyError, match="1003"):
            pipeline(lambda x: squares(x + 1001).sum())(parts)
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
            pipeline(lambda x: squares(1 / (x - 2)).sum())(parts)
    with split([COUNTED[:0], COUNTED[:0]]) as nothing:
        assert pipeline(lambda x: squares(x).dtype)(nothing) == squares(COUNTED[:0]).dtype


@CUTS
@pytest.mark.parametrize("above", [25, 30, 40])
def test_reductions_leave_out_blocks_without_rows(above: int, cuts: list[int]) -> None:
    def body(x: Any) -> Any:
        few = x[x > above]
        return largest(few), longest(few * 2, 3), extremes(few), largest(few - few.max())

    with options(batch=7), split(np.split(COUNTED, cuts)) as parts:
        assert pipeline(body)(parts) == body(COUNTED)


@pytest.mark.parametrize("fn", [largest, extremes])
def test_reductions_of_no_rows_raise_what_the_function_raises(fn: Any) -> None:
    with (
        split(np.split(COUNTED, [10])) as parts,
        pytest.raises(ValueError, match="empty"),
    ):
        pipeline(lambda x: fn(x[x > 99]))(parts)


@pytest.mark.backend("dask")
def test_on_dask_the_first_row_is_sent(client: Any) -> None:
    import dask.array as da

    array = client.persist(da.from_array(COUNTED, chunks=8))
    with split(array) as parts:
        assert pipeline(of_look_ups)(parts) == of_look_ups(COUNTED)
        assert pipeline(of_filters)(parts) == of_filters(COUNTED)
