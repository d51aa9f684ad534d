"""Methods of pandas frames and series are captured; results are those of plain pandas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spliter.pipeline import Rows, explain, lazy, options, pipeline, splittable, unknown
from spliter.pipeline._annotations import groups
from spliter.pipeline._annotations.groups import AGGREGATES, MAX_UNCOMBINED
from spliter.pipeline._annotations.pandas import (
    DATE_METHODS,
    DATE_NUMBERS,
    DATE_PROPERTIES,
    METHODS,
    OPERATOR_METHODS,
    TEXT_METHODS,
    TEXT_NUMBERS,
)

pytestmark = pytest.mark.filterwarnings("ignore:Series.dt")  # old names of properties

ROWS = 23
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "x": np.where(RNG.random(ROWS) < 0.2, np.nan, RNG.integers(-8, 9, ROWS) / 2),
        "y": RNG.integers(-4, 5, ROWS) / 4,
        "n": RNG.integers(0, 5, ROWS),
        "flag": RNG.random(ROWS) < 0.5,
        "key": RNG.choice(["a", "b", "c"], ROWS),
        "at": pd.to_datetime("2024-01-30") + pd.to_timedelta(RNG.integers(0, 10**6, ROWS), "s"),
        "text": pd.Series(RNG.choice([" Ab", "cd ", "", "x1"], ROWS)).mask(RNG.random(ROWS) < 0.2),
    }
)
PLACES = pd.DataFrame({"key": ["b", "a", "a", "d"], "height": [1.5, 2.5, np.nan, 4.0]})
LABELS = [
    pd.RangeIndex(ROWS),
    pd.RangeIndex(5, 5 + 3 * ROWS, 3, name="row"),
    pd.Index(RNG.integers(0, 9, ROWS)),  # with duplicates
    pd.date_range("2024-01-31", periods=ROWS, freq="ME"),
    pd.MultiIndex.from_arrays([np.arange(ROWS) % 4, np.arange(ROWS)], names=["a", "b"]),
]

ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "abs": lambda df: df["x"].abs(),
    "round": lambda df: df[["x", "y"]].round(1),
    "isna": lambda df: df.isna(),
    "isnull": lambda df: df["text"].isnull(),
    "notna": lambda df: df.notna(),
    "notnull": lambda df: df["text"].notnull(),
    "copy": lambda df: (df.copy(), df.copy()["x"] + 1),
    "mask": lambda df: df["x"].mask(df["n"] > 2, 7.0),
    "where": lambda df: df["text"].where(df["flag"]),
    "astype": lambda df: df["n"].astype("float32"),
    "isin": lambda df: df["key"].isin(["a", "z"]),
    "between": lambda df: df["x"].between(-1, df["y"], inclusive="left"),
    "clip": lambda df: df["x"].clip(lower=-1.0, upper=2.0),
    "fillna": lambda df: df["text"].fillna("none"),
    "drop": lambda df: (df.drop(columns=["x", "key"])["y"] + 1, df.drop("x", axis=1)),
    "rename": lambda df: (df.rename(columns={"x": "y2"})["y2"] + 1, df["x"].rename("z")),
    "dropna": lambda df: df.dropna(),
    "merge": lambda df: df.merge(PLACES, on="key", how="left"),
    "to_frame": lambda df: df["x"].to_frame(),
    "dt.to_period": lambda df: df["at"].dt.to_period("M"),
}


def operated(name: str, df: Any) -> Any:
    one, both = df["x"], df[["x", "y"]]
    return getattr(one, name)(df["y"]), getattr(one, name)(2), getattr(both, name)(other=both)


OPERATED: dict[str, Callable[[Any], Any]] = {
    name: functools.partial(operated, name) for name in (*OPERATOR_METHODS, "floordiv", "mod")
}
SERIES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda df: (df["x"].sum(), df["n"].sum(), df["flag"].sum()),
    "count": lambda df: df["text"].count(),
    "min": lambda df: (df["x"].min(), df["n"].min()),
    "max": lambda df: (df["x"].max(), df["n"].max()),
    "mean": lambda df: (df["x"].mean(), df["n"].mean(), df["flag"].mean()),
    "var": lambda df: (df["x"].var(), df["n"].var(ddof=0), df["flag"].var(ddof=99)),
    "std": lambda df: (df["x"].std(), df["n"].std(ddof=0), df["flag"].std()),
    "any": lambda df: (df["flag"].any(), (df["n"] > 99).any()),
    "all": lambda df: (df["flag"].all(), (df["n"] < 99).all()),
    "unique": lambda df: (df["x"].unique(), df["text"].unique()),
    "nunique": lambda df: df["text"].nunique(),
    "value_counts": lambda df: tuple(df[each].value_counts() for each in ("x", "n", "flag")),
}
ARGUMENTS = {
    "slice": (0, 1), "pad": (5,), "zfill": (4,), "ljust": (4,), "rjust": (4,), "center": (4,),
    "removeprefix": ("x",), "removesuffix": ("1",), "contains": ("b",), "startswith": ("x",),
    "endswith": ("1",), "replace": ("b", "XY"), "slice_replace": (0, 1, "z"), "repeat": (2,),
    "get": (0,), "extract": ("(x)([0-9])",), "match": ("x",), "fullmatch": ("x.",),
    "count": ("b",), "find": ("1",), "rfind": ("1",),
}  # fmt: skip
TEXTS: dict[str, Callable[[Any], Any]] = {
    f"str.{name}": functools.partial(
        lambda name, df: getattr(df["text"].str, name)(*ARGUMENTS.get(name, ())), name
    )
    for name in (*TEXT_METHODS, *TEXT_NUMBERS)
}
DATE_ARGUMENTS = {
    "floor": ("h",), "ceil": ("2h",), "round": ("D",), "strftime": ("%d.%m.%y",),
    "tz_localize": ("UTC",), "as_unit": ("s",),
}  # fmt: skip
SPANS = ("days", "seconds", "microseconds", "nanoseconds", "total_seconds")


def of_dates(name: str, df: Any) -> Any:
    series = df["at"] - pd.Timestamp(2024, 1, 1) if name in SPANS else df["at"]
    if name == "tz_convert":
        series = series.dt.tz_localize("UTC")
    if name in (*DATE_PROPERTIES, *DATE_NUMBERS):
        return getattr(series.dt, name)
    arguments = DATE_ARGUMENTS.get(name, ("CET",) if name == "tz_convert" else ())
    return getattr(series.dt, name)(*arguments)


DATES: dict[str, Callable[[Any], Any]] = {
    "date methods": lambda df: tuple(of_dates(name, df) for name in DATE_METHODS),
    "date properties": lambda df: tuple(of_dates(name, df) for name in DATE_PROPERTIES),
    "numbers of dates": lambda df: tuple(of_dates(name, df) for name in DATE_NUMBERS),
}


def total_of_set(df: Any) -> Any:
    df["z"] = df["x"] * 2
    return df.groupby("key")["z"].sum()


def infinite_sums(df: Any) -> Any:
    with np.errstate(invalid="ignore"):  # pandas warns where the rows of each group are together
        infinite = df.assign(q=df["x"] / 0.0)
        sums = infinite.groupby("key")["q"].agg("sum")
        return sums, infinite.groupby("key", as_index=False)[["q", "y"]].mean()


def busiest(df: Any) -> Any:
    high = df[df["x"] > -3].merge(PLACES, on="key")
    return high[high["y"] > -1].groupby("key")["height"].count()


OTHERS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda df: -(2 - df["x"]) * df["y"] ** 2 / (df["n"] + 1) % 3 // 1,
    "comparisons": lambda df: (df["x"] < 1) & ~df["flag"] | (df["text"] == "x1") ^ True,
    "frames": lambda df: df[["x", "y"]] * df[["y", "x"]] + 1,
    "ufunc": lambda df: np.hypot(df["y"], df["n"]),
    "filters": lambda df: df[df["n"] > 1][["x", "text"]],
    "loc": lambda df: (df.loc[df["n"] > 1], df["x"].loc[df["flag"]], df.loc[df["flag"], "x"]),
    "counts of texts": lambda df: df["text"].value_counts(),
    "loc of columns": lambda df: df.loc[df["x"] > 1, ["text", "n"]],
    "filtered twice": lambda df: df[df["n"] > 1].dropna()["text"].str.upper(),
    "merge": lambda df: df.merge(PLACES, on="key", suffixes=("", "_2")),
    "after a merge": lambda df: df.merge(PLACES, on=["key"])["height"] * 2,
    "filtered after a merge": lambda df: (m := df.merge(PLACES, on="key"))[m["height"] > 2],
    "array": lambda df: df["x"] + df["y"].to_numpy() * 2,
    "assigned": lambda df: df.assign(
        value=df["x"] * 2, w=lambda made: made.value + 1, top=df["y"].max(), one=1
    ),
    "mean for missing": lambda df: df["x"].fillna(df["y"].max()),
    "global": lambda df: (df["n"] - df["n"].min()) / (df["y"].mean() * df["n"].max()),
    "columns of a filter": lambda df: (m := df[df["n"] > 1])[["y", "x"]] * m[["x", "y"]].abs(),
    "column set after a filter": lambda df: total_of_set(df[df["n"] > 1]),
    "columns of a merge": lambda df: df.merge(PLACES, on="key").merge(PLACES, on="key")["height_x"],
    "groups after a merge": busiest,
    "extremes of few": lambda df: (df[df["n"] > 3]["n"].max(), df[df["flag"]]["n"].min()),
    "characters": lambda df: df["text"].str[0] + df["text"].str[1:].str[-1],
    "all rows": lambda df: ((df[["x", "y"]] + 1).loc[:, "x"], df.loc[:, ["y", "n"]] + 1),
    "along rows": lambda df: (
        df[["x", "n"]].sum(axis=1),
        (df[["x", "y"]] * 2).mean(axis="columns"),
        df[["y", "x"]].max(axis=1) - df[["y", "x"]].std(axis=1),
        df.count(axis=1) + 0,
        (df[["x", "y"]] > 0).all(axis=1) | (df[["n"]] > 3).any(axis=1),
    ),
    "infinite sums": infinite_sums,
    "sizes": lambda df: (
        df.groupby("key").size(),
        df.groupby("text", dropna=False, sort=False)["x"].size(),
        df.groupby(["key", "n"], as_index=False).size(),
    ),
    "groups": lambda df: df.groupby("key")["x"].sum(),
    "groups by a name": lambda df: df.groupby("key")["x"].agg("min"),
    "groups of an attribute": lambda df: df.groupby("key").x.max(),
    "groups of two": lambda df: df.groupby(["key", "flag"])[["x", "n"]].max(),
    "means as columns": lambda df: df.groupby(["key", "n"], as_index=False)["y"].mean(),
    "groups as columns": lambda df: df.groupby(["key", "n"], as_index=False)["y"].min(),
    "groups as they appear": lambda df: df.groupby("text", sort=False)["n"].sum(),
    "groups of missing keys": lambda df: df.groupby(["x", "text"], dropna=False)[["n"]].mean(),
    "counts": lambda df: df.groupby("text").count(),
    "means": lambda df: df.groupby("key")[["x", "n"]].mean().unstack(),
}


def of_some_rows(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda df: program(df[df["n"] > -3])  # columns that are there give numbers at once


PROGRAMS = (
    ELEMENTWISE
    | OPERATED
    | {name: of_some_rows(program) for name, program in SERIES.items()}
    | TEXTS
    | DATES
    | OTHERS
)


def same(found: Any, expected: Any, index: str = "exact", freq: bool = True) -> None:
    """Fail unless values, types, dtypes, names and labels are those of pandas."""
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other, index, freq)
    elif isinstance(expected, pd.DataFrame | pd.Series):
        check: Any = pd.testing.assert_series_equal
        if isinstance(expected, pd.DataFrame):
            check = pd.testing.assert_frame_equal
        freq = freq and index == "exact"
        check(found, expected, check_exact=True, check_index_type=index, check_freq=freq)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    elif isinstance(expected, np.ndarray | np.generic | int):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, pd.Index):
        pd.testing.assert_index_equal(found, expected)
    elif isinstance(expected, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, ROWS), st.integers(1, 9), st.sampled_from(LABELS))
def test_pieces_merged_are_the_whole(name: str, rows: int, batch: int, labels: Any) -> None:
    frame = FRAME.set_index(labels)[:rows]
    expected = PROGRAMS[name](frame)
    with options(batch=batch, threads=2):
        found = pipeline(PROGRAMS[name])(frame)
    # Labels after a second filter may be a range where pandas has the same values, or the other way
    # round after isocalendar, and dates after a filter have no freq, or another one.
    index = "equiv" if name in ("filtered twice", "date methods") else "exact"
    same(found, expected, index, freq=name not in OTHERS)


def test_every_annotation_is_tried() -> None:
    dates = {f"dt.{name}" for name in (*DATE_METHODS, *DATE_PROPERTIES, *DATE_NUMBERS)}
    assert METHODS.keys() <= PROGRAMS.keys() | dates


GROUPED = ("groups", "means", "counts", "sizes", "infinite sums")
"""Begin of the names of programs that group rows."""

EVALUATED_AT_ONCE = SERIES.keys() - {"value_counts"} | {"extremes of few"}
"""Programs whose results are arrays or numbers."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_annotated_methods_are_cut(name: str) -> None:
    with options(batch=5):
        shown = explain(PROGRAMS[name], FRAME)
    assert "23 items in batches of 5" in shown
    assert ("evaluated at" in shown) is (name in EVALUATED_AT_ONCE)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("batch", [1, 5, ROWS])
@pytest.mark.parametrize("most", [4, MAX_UNCOMBINED])
def test_groups_of_categories(
    observed: bool, name: str, batch: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_UNCOMBINED", most)
    kinds = FRAME["text"].astype("category").cat.set_categories(["x1", "none", " Ab", ""])
    assert kinds.hasnans
    frame = FRAME.assign(kind=kinds)

    def program(df: Any) -> Any:
        grouped = df.groupby(["kind", "flag"], observed=observed)
        return getattr(grouped[["n", "y"]], name)()

    with options(batch=batch, threads=2):
        assert "evaluated at" not in explain(program, frame)
        same(pipeline(program)(frame), program(frame))


@pytest.mark.parametrize("name", [name for name in OTHERS if name.startswith(GROUPED)])
def test_rows_of_many_groups_are_combined_on_the_way(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_UNCOMBINED", 4)
    with options(batch=3, threads=2):
        same(pipeline(OTHERS[name])(FRAME), OTHERS[name](FRAME))


def test_filters_and_merges_copy_only_columns_that_are_read(monkeypatch: Any) -> None:
    seen = []
    select = pd.DataFrame.__getitem__

    def spied(frame: Any, key: Any) -> Any:
        if isinstance(key, pd.Series) and len(frame):
            seen.append(list(frame.columns))
        return select(frame, key)

    expected = busiest(FRAME)
    monkeypatch.setattr(pd.DataFrame, "__getitem__", spied)
    with options(batch=ROWS):
        same(pipeline(busiest)(FRAME), expected)
        assert [each for each in seen if len(each) < len(FRAME.columns)] == [
            ["y", "key"],
            ["key", "height"],
        ]
        seen.clear()
        pipeline(lambda df: (large := df[df["x"] > 0], large["y"] + 1))(FRAME)
        assert {len(each) for each in seen} == {len(FRAME.columns)}


def test_columns_and_dtypes_are_known_without_evaluation() -> None:
    seen = []

    def body(frame: Any) -> Any:
        half = frame[["x", "n"]] / 2
        half["text"] = frame["text"].str.strip()
        seen.append((list(half.columns), list(half.dtypes), half["x"].name, half.shape))
        assert isinstance(half, pd.DataFrame)
        assert isinstance(half.text, pd.Series)
        return half

    with options(batch=7):
        assert "evaluated at" not in explain(body, FRAME)
    expected = body(FRAME)
    assert seen[0] == seen[1]
    with options(batch=7):
        same(pipeline(body)(FRAME), expected)


def changed(frame: Any) -> Any:
    frame["z"] = frame["x"] * 2
    series = frame["y"]
    series += 1
    frame.loc[frame["z"] > 0, "z"] = 0.0
    other = frame[frame["flag"]]
    other["w"] = other["z"] + 1
    frame.columns = [*"abcdefgh"]
    return series, other, frame["g"]


def test_changes_reach_the_frame_of_the_caller() -> None:
    one, other = FRAME.copy(), FRAME.copy()
    expected = changed(one)
    with options(batch=5):
        same(pipeline(changed)(other), expected)
    same(other, one)


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "sorted": lambda df: (df["x"] * 2).sort_values(),
    "cumsum": lambda df: (df["y"] + 1).cumsum(),
    "mask of integers": lambda df: df["n"].mask(df["n"] == 3),
    "quotient of integers": lambda df: df["n"] // df["n"],
    "other labels": lambda df: df["x"] + df["y"][::-1],
    "two filters": lambda df: df["x"][df["n"] > 1] + df["y"][df["n"] > 2],
    "a function": lambda df: df["x"].map(lambda x: x + 1),
    "loc of labels": lambda df: (df["x"] + 1).loc[[3, 1]],
    "shares": lambda df: df["key"].value_counts(normalize=True),
    "row": lambda df: (df["x"] + 1).iloc[3],
    "rows": lambda df: (df[["x"]] + 1).loc[2:4],
    "standard deviation": lambda df: df.groupby("key")["y"].std(),
    "median of all": lambda df: df[["x", "y"]].median(),
    "category": lambda df: df["key"].astype("category"),
    "by columns": lambda df: df[["x", "y"]] - df["x"][:2].set_axis(["x", "y"]),
    "product of matrices": lambda df: df["n"] @ df["n"] + df[["n"]].T @ df[["n"]],
    "plain series": lambda df: FRAME["y"] + df["x"],
    "sorted array": lambda df: np.sort(df["x"]),
    "assigned arrays": lambda df: df.assign(z=np.arange(len(FRAME)), w=lambda made: made.z + 1),
    "dropped rows": lambda df: df.drop([3, 5]),
    "renamed rows": lambda df: df.rename(index={3: 4}),
    "concatenated": lambda df: pd.concat([df["x"], df["y"]]),
    "missing": lambda df: pd.isna(df["x"]),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_calls_evaluate(name: str) -> None:
    with options(batch=4):
        same(pipeline(UNKNOWN[name])(FRAME), UNKNOWN[name](FRAME))


WRONG: list[Callable[[Any], Any]] = [
    lambda df: df["missing"],
    lambda df: df.missing,
    lambda df: df["x"].str.lower(),
    lambda df: df["text"] + 1,
    lambda df: df["x"].dt.year,
    lambda df: df["at"].dt.missing,
    lambda df: df.loc[df["flag"], "missing"],
    lambda df: df.loc[df["flag"], ["missing"]],
    lambda df: df.loc[df["x"]],
    lambda df: df.loc[df["flag"][1:]],
    lambda df: df["text"].astype(float),
    lambda df: df.groupby("missing")["x"].sum(),
    lambda df: df.merge(PLACES, on="x"),
    lambda df: df["x"] if df["flag"] else 0,
    lambda df: df["x"].mask(),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_those_of_pandas(wrong: Any) -> None:
    with pytest.raises(Exception) as plain:  # noqa: PT011 -- of any type
        wrong(FRAME)
    with options(batch=4), pytest.raises(type(plain.value)) as found:
        pipeline(wrong)(FRAME)
    assert str(found.value) == str(plain.value)


def test_pieces_with_other_dtypes_run_whole() -> None:
    frame = pd.DataFrame({"big": np.array([1, 2, 3, 4], dtype=object)})
    frame.loc[3, "big"] = "x"
    with options(batch=1):
        same(pipeline(lambda df: df["big"] * 2)(frame), frame["big"] * 2)


def test_small_frames_run_plain() -> None:
    seen = []
    body = pipeline(lambda df: seen.append(type(df)))
    body(FRAME)
    body(FRAME)
    assert seen[1:] == [pd.DataFrame]


def test_lazy_frames_and_annotated_functions() -> None:
    doubled = lazy(FRAME)["x"] * 2
    assert type(doubled) is not pd.Series
    same(doubled.cumsum(), (FRAME["x"] * 2).cumsum())
    keep = splittable(lambda df: df[df["n"] > 1], df=Rows(), returns=unknown)
    with options(batch=4):
        same(pipeline(lambda df: keep(df)["x"] + 1)(FRAME), FRAME[FRAME["n"] > 1]["x"] + 1)
