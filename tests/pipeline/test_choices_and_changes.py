"""Choices between values, changes of some rows, columns by name: on batches, over a Split."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import explain, options, pipeline
from tests.pipeline.test_pandas import FRAME, PLACES, same
from tests.pipeline.test_pandas_over_split import cut, gathered

pytestmark = [
    pytest.mark.filterwarnings("ignore:Series.dt"),  # old names of properties
    pytest.mark.filterwarnings("ignore:Converting to PeriodArray"),  # without time zones
]

DATES = FRAME["at"].where(FRAME["n"] > 0)
MORE = FRAME.assign(
    date=DATES,
    zoned=DATES.dt.as_unit("s").dt.tz_localize("CET"),
    span=DATES - pd.Timestamp(2024, 2, 1),
    never=DATES.where(DATES.isna()),
    i1=FRAME["n"].astype("i1"),
    f4=FRAME["x"].astype("f4"),
)


def set_column(df: Any, column: str, value: Callable[[Any], Any]) -> Any:
    some = df[df["n"] >= 0]
    some.loc[some["flag"], column] = value(some)
    return some, some[column].count()


def set_series(series: Any, mask: Any, value: Any) -> Any:
    twice, before = series + series, series + series
    twice[mask(twice)] = value
    before.loc[mask(before)] = value
    return twice, before


def extremes(column: str, df: Any) -> Any:
    some = df[df["n"] < 9][column]
    return repr((some.min(), some.max()))  # NaT does not equal itself


def flagged(df: Any) -> Any:
    df["z"] = np.where(df["x"] > 0, 1, 0)
    df["w"] = np.where(df["z"] == 1, df["y"], df["n"])
    return df


CHOICES: dict[str, Callable[[Any], Any]] = {
    "where of series": lambda df: np.where(df["x"] > 0, df["y"], df["n"]),
    "where of numbers": lambda df: np.where(df["x"] > 0, 1, 0),
    "where of short numbers": lambda df: (
        np.where(df["flag"], df["i1"], 3),
        np.where(df["flag"], df["i1"], 300),
    ),
    "where of floats": lambda df: np.where(df["flag"], np.float64(0.5), df["f4"]),
    "where of flags": lambda df: np.where(df["x"] > 0, df["flag"], False),
    "where of frames": lambda df: np.where(df[["x", "y"]] > 0, df[["n", "x"]], np.nan),
    "where of a mean": lambda df: np.where(df["x"] > df["x"].mean(), df["x"].mean(), df["x"]),
    "where in some rows": lambda df: np.where((some := df[df["n"] > 1])["x"] > 0, some["y"], -1),
    "where after a merge": lambda df: np.where(
        (both := df.merge(PLACES, on="key"))["x"] > 0, both["height"], 0
    ),
    "where of dates": lambda df: np.where(df["flag"], df["date"].dt.hour, 7).astype(float),
    "select": lambda df: np.select([df["x"] > 2, df["flag"]], [df["n"], 2], default=df["y"]),
    "select of numbers": lambda df: np.select([df["x"] > 2, df["x"] > 0], [2, 1]),
    "select of flags": lambda df: np.select([df["n"] > 2], [df["flag"]], True),
    "columns": lambda df: flagged(df[["x", "y", "n"]] * 1),
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "doubles": lambda df: set_column(df, "x", lambda some: 7.5),
    "doubles of an integer": lambda df: set_column(df, "x", lambda some: 7),
    "doubles of a mean": lambda df: set_column(df, "x", lambda some: some["y"].mean()),
    "short floats": lambda df: set_column(df, "f4", lambda some: 0.1),
    "integers": lambda df: set_column(df, "n", lambda some: -1),
    "flags": lambda df: set_column(df, "flag", lambda some: False),
    "texts": lambda df: set_column(df, "text", lambda some: "none"),
    "missing": lambda df: set_column(df, "x", lambda some: np.nan),
    "series": lambda df: set_series(df["x"], lambda each: each > 1, 0.0),
    "series of integers": lambda df: set_series(df["i1"], lambda each: each == 2, 9),
    "series of texts": lambda df: set_series(df["text"], lambda each: each.notna(), "x"),
    "of a mask that was": lambda df: set_series(df["x"], lambda _: df["flag"], 0.0),
}
BY_COLUMN: dict[str, Callable[[Any], Any]] = {
    "dropna": lambda df: (df.dropna(subset="x"), df.dropna(subset=["x", "text"], how="all")),
    "dropna of columns": lambda df: df[["x", "text"]].dropna(how="all"),
    "fillna": lambda df: df.fillna({"x": 0, "text": "none", "other": 1}),
    "fillna of a mean": lambda df: df.fillna(value={"x": df["x"].mean(), "y": df["y"].max()}),
    "astype": lambda df: df.astype({"x": "float32", "n": str, "flag": "int8"}),
    "astype of dates": lambda df: df.fillna({"x": 0}).astype(dtype={"date": "int64", "x": int}),
    "to_frame": lambda df: (df["x"].to_frame(), (df["n"] + 1).to_frame("m")["m"] * 2),
}
OF_TIME = ("at", "date", "zoned", "span", "never")
OF_DATES: dict[str, Callable[[Any], Any]] = {
    "days": lambda df: tuple(
        getattr(df[column].dt, name).astype(float)
        for name in ("dayofweek", "weekday", "dayofyear", "day_of_year")
        for column in ("date", "zoned", "never")
    ),
    "periods": lambda df: (df["date"].dt.to_period("M"), df["never"].dt.to_period(freq="W")),
    "spans from the first": lambda df: (
        (some := df[df["n"] < 9])["date"] - some["date"].min(),
        some["at"].max() - some["at"],
    ),
    **{f"extremes of {column}": functools.partial(extremes, column) for column in OF_TIME},
    "extremes of no rows": lambda df: repr(((none := df[df["n"] > 9]["date"]).min(), none.max())),
}
PROGRAMS = CHOICES | CHANGES | BY_COLUMN | OF_DATES
NEW_CALLS = "where|select|with_values|dropna|fillna|to_frame|to_period|min|max"
UNIQUE = MORE.set_axis(pd.RangeIndex(5, 5 + 3 * len(MORE), 3))


def joined(found: Any, expected: Any) -> Any:
    """Put the blocks of collections together, in the order of the labels of frames."""
    if isinstance(found, tuple):
        return tuple(map(joined, found, expected))
    if isinstance(found, list) and isinstance(expected, np.ndarray):
        return np.concatenate(found)
    return gathered(found)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("frame", [MORE, MORE.set_axis(MORE["n"]), UNIQUE[:1]])
def test_pieces_merged_are_the_whole(name: str, frame: Any) -> None:
    with options(batch=4, threads=2):
        found = pipeline(PROGRAMS[name])(frame)
        shown = explain(PROGRAMS[name], frame)
    same(found, PROGRAMS[name](frame.copy()))
    calls = "fillna|weekday" if name in ("astype of dates", "days") else "astype|" + NEW_CALLS
    assert re.search(rf"\b({calls})\b", shown)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_over_a_split_are_those_of_all_rows(name: str) -> None:
    expected = PROGRAMS[name](UNIQUE.copy())
    found = pipeline(PROGRAMS[name])(split(cut(UNIQUE), partitions_per_location=2))
    same(joined(found, expected), expected, index="equiv")


def test_rows_are_set_of_a_series_over_a_split() -> None:
    def body(df: Any) -> Any:
        df.loc[df["flag"], "x"] = df["y"] * 2
        df["n"] += 1
        df.loc[df["n"] > 3, "n"] = df["n"] * 5
        return df

    expected = body(UNIQUE.copy())
    for frame in (UNIQUE, MORE.set_axis(MORE["n"])):  # pandas refuses repeated labels
        found = gathered(pipeline(body)(split(cut(frame))))
        same(found, expected.set_axis(frame.index), index="equiv")


def test_changes_of_the_frame_of_the_caller() -> None:
    def body(df: Any) -> Any:
        df.loc[df["flag"], "x"] = 3.0
        series = df["y"]
        series[series > 0] = 0.0
        df["z"] = np.where(df["x"] > 0, 1, 0)
        return series, df["x"] + 1

    one, other = UNIQUE.copy(), UNIQUE.copy()
    with options(batch=4):
        found = pipeline(body)(one)
    same(found, body(other))
    same(one, other)
    blocks = cut(UNIQUE.copy())
    same(gathered(pipeline(body)(split(blocks))), body(UNIQUE.copy()), index="equiv")
    same(pd.concat(blocks), UNIQUE, index="equiv")


REFUSED: dict[str, Callable[[Any], Any]] = {
    "texts": lambda df: np.where(df["x"] > 0, "a", "b"),
    "objects": lambda df: np.where(df["x"] > 0, df["x"], None),
    "choice of texts": lambda df: np.where(df["x"] > 0, df["key"], "z"),
    "choice of dates": lambda df: np.where(df["x"] > 0, df["at"], df["date"]),
    "mixed columns": lambda df: np.where(df[["x", "n"]] > 0, df[["flag", "n"]], 0),
    "numbers as flags": lambda df: np.where(df["n"], 1, 0),
    "positions": lambda df: np.where(df["flag"]),
    "selected texts": lambda df: np.select([df["x"] > 0], ["a"], "b"),
    "as a function": lambda df: np.sort(df["x"]),
    "periods of zones": lambda df: df["at"].dt.tz_localize("UTC").dt.to_period("M"),
    "filled dates": lambda df: df.fillna({"date": pd.Timestamp(2024, 1, 1)}),
    "filled by a series": lambda df: df.fillna({"x": df["y"]}),
    "filled by labels": lambda df: df["x"].fillna({1: 0.0, 2: 1.0}),
    "flags for floats": lambda df: df["y"].fillna(True),
    "doubles for short floats": lambda df: df["f4"].where(df["flag"], np.float64(0.5)),
    "category": lambda df: df.astype({"key": "category"}),
    "texts of dates": lambda df: df.astype({"x": "float32", "date": str}),
    "numbers of dates": lambda df: df.assign(h=df["date"].dt.hour).astype({"h": str}),
    "dropped columns": lambda df: df.dropna(axis=1),
    "enough": lambda df: df.dropna(thresh=2),
    "first date": lambda df: df["at"].min(skipna=True),
}


def set_with(indexer: str, key: Callable[[Any], Any], df: Any) -> Any:
    getattr(df, indexer)[key(df)] = 0.0
    return df


def set_only(column: str, value: Callable[[Any], Any], df: Any) -> Any:
    return set_column(df, column, value)[0]


REFUSED_CHANGES: dict[str, Callable[[Any], Any]] = {
    "new column": functools.partial(set_only, "new", lambda some: 1.0),
    "another dtype": functools.partial(set_only, "x", lambda some: some["n"]),
    "a frame": functools.partial(set_only, "x", lambda some: some[["x"]]),
    "no rows": functools.partial(set_only, "x", lambda some: some[some["flag"]]["x"]),
    "list": functools.partial(set_only, "x", lambda some: [1.0] * int(some["flag"].sum())),
    "several columns": functools.partial(set_with, "loc", lambda df: (df["flag"], ["x", "y"])),
    "labels": functools.partial(set_with, "loc", lambda df: (3, "x")),
    "positions": functools.partial(set_with, "iloc", lambda df: (df["flag"].to_numpy(), 0)),
}
CALLS = REFUSED | {f"set {name}": program for name, program in REFUSED_CHANGES.items()}


@pytest.mark.parametrize("name", CALLS)
def test_others_evaluate_and_are_refused_over_a_split(name: str) -> None:
    program, frame = CALLS[name], MORE.copy()
    with options(batch=4):
        same(pipeline(program)(frame.copy()), program(frame.copy()))
    with pytest.raises(WholeArrayError):
        pipeline(program)(split(cut(frame)))


WRONG: list[Callable[[Any], Any]] = [
    lambda df: df.dropna(subset="missing"),
    lambda df: df.astype({"missing": int}),
    lambda df: np.where(df["x"][df["n"] > 1] > 0, df["y"][df["n"] > 2], 0),
    lambda df: df["at"].dt.to_period(),
    lambda df: set_column(df.set_axis(df["n"]), "x", lambda some: some["y"]),  # labels repeat
    lambda df: set_column(df, "n", lambda some: 1.5),
    lambda df: set_series(df["i1"], lambda each: each == 2, 1000),
    lambda df: set_series(df["i1"], lambda each: each > 99, 1000),  # by loc only
    lambda df: set_column(df, "flag", lambda some: 2),
    lambda df: set_column(df, "i1", lambda some: 1000),
    lambda df: set_column(df, "text", lambda some: 1.0),
    lambda df: df["x"].dt.to_period("M"),
    lambda df: np.select([df["flag"]], [1, 2]),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_those_of_pandas(wrong: Any) -> None:
    with pytest.raises(Exception) as plain:  # noqa: PT011 -- of any type
        wrong(MORE.copy())
    with options(batch=4), pytest.raises(type(plain.value)) as found:
        pipeline(wrong)(MORE.copy())
    assert str(found.value) == str(plain.value)
