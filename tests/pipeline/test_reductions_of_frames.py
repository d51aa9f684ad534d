"""Reductions of whole frames, and frames combined with a value for each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import options, pipeline

ROWS = 23
SMALL = np.arange(ROWS) * 7 % 10
FRAME = pd.DataFrame(
    {
        **{dtype: SMALL.astype(dtype) for dtype in ("i1", "i4", "i8", "u8", "f4", "f8", "?")},
        "large": SMALL * 10**18,
        "gaps": np.where(SMALL > 4, np.nan, SMALL),
        "missing": np.full(ROWS, np.nan),
        "infinite": np.where(SMALL > 8, np.inf, SMALL),
        "boolean": pd.array(SMALL > 4, dtype="boolean"),
        "text": SMALL.astype(str),
    }
)
FRAME.columns.name = "names"
NUMBERS = ["f8", "gaps", "missing"]
MIXES: tuple[list[str], ...] = (
    *(["i1", "i8"], ["i8", "f8"], ["i4", "f4"], ["u8"], ["?"], ["f8", "f8"], NUMBERS),
    *(["i8", "large", "f8"], ["i8", "u8"], ["?", "i8"], ["text", "f8"], []),
    *(["f8", "infinite"], ["?", "boolean"], ["boolean"]),
)


def blocks(frame: Any) -> Any:
    return split([frame.iloc[:9], frame.iloc[9:9], frame.iloc[9:10], frame.iloc[10:]])


def outcome(fn: Callable[..., Any], frame: Any) -> Any:
    with options(batch=7, threads=2), np.errstate(invalid="ignore"):  # of infinities
        try:
            return fn(frame)
        except (TypeError, ValueError) as error:
            return type(error)


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected, rtol=1e-6)
    else:
        assert found is expected


@pytest.mark.parametrize("rows", [0, 1, ROWS])
@pytest.mark.parametrize("name", ["sum", "count", "min", "max", "mean", "var", "std", "any", "all"])
def test_each_column_is_reduced_as_pandas_does(name: str, rows: int) -> None:
    def reduced(df: Any) -> Any:
        return getattr(df, name)()

    for columns in MIXES:
        if name == "sum" and columns == ["i8", "large", "f8"]:
            continue  # pandas' sum of the second one overflows
        frame = FRAME.iloc[:rows][columns]
        expected = outcome(reduced, frame)
        same(outcome(pipeline(reduced), frame), expected)
        try:
            same(outcome(pipeline(reduced), blocks(frame)), expected)
        except WholeArrayError:
            supported = [["?"]] if name in ("any", "all") else [["i8", "f8"], ["f8", "f8"], NUMBERS]
            assert name != "count" and columns not in supported


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "standardized": lambda df: (df - df.mean()) / df.std(),
    "scaled": lambda df: (df - df.min()) / (df.max() - df.min()),
    "filled": lambda df: df.fillna(df.mean()) + 1,
    "compared": lambda df: (df > df.mean())["f8"],
}


def changed(df: Any) -> Any:
    mean = df.mean()
    result = df - mean
    mean[:] = 0
    mean.index.name = "other"
    return result


PROGRAMS["changed"] = changed


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_series_is_combined_with_the_columns(name: str) -> None:
    body, frame = PROGRAMS[name], FRAME[["f8", "gaps"]]
    expected = body(frame)
    with options(batch=7, threads=2):
        plain, blocked = pipeline(body)(frame), pipeline(body)(blocks(frame))
    check: Any = pd.testing.assert_frame_equal
    if name == "compared":
        check = pd.testing.assert_series_equal
    check(plain, expected)
    assert [len(block) for block in blocked] == [9, 0, 1, 13]
    check(pd.concat(blocked), expected)


@pytest.mark.parametrize(
    "body",
    [
        lambda df: df - df["f8"],
        lambda df: df.sort_values("f8") - df.mean(),
        lambda df: df.mean() - df,
        lambda df: df - df.mean()[["gaps", "f8"]],
        lambda df: df // df.mean(),
        lambda df: df.prod(axis=1),
        lambda df: df.median(),
    ],
)
def test_others_need_all_rows(body: Any) -> None:
    frame = FRAME[["f8", "gaps"]]
    with options(batch=7):
        found, expected = pipeline(body)(frame), body(frame)
    check: Any = pd.testing.assert_frame_equal
    if isinstance(expected, pd.Series):
        check = pd.testing.assert_series_equal
    check(found, expected)
    with pytest.raises(WholeArrayError):
        pipeline(body)(blocks(frame))
