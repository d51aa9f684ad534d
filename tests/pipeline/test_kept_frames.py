"""Frames and arrays that a program keeps, groups, or gives to functions of pandas and SciPy."""

from __future__ import annotations

import collections
import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from spliter import WholeArrayError, split
from spliter.pipeline import Rows, options, pipeline, splittable
from tests.pipeline.test_pandas import same
from tests.pipeline.test_pandas_over_split import cut, gathered

ROWS = 23
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {
        "k": RNG.choice(["a", "b", "c"], ROWS),
        "x": RNG.integers(-8, 9, ROWS) / 2,
        "n": RNG.integers(0, 5, ROWS),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta([*range(ROWS - 1), 9.5], "D"),
        "name": RNG.choice(["ab", "cd"], ROWS),
        "dtype": RNG.integers(0, 9, ROWS),
        "unique": RNG.integers(0, 9, ROWS),
    }
)


def check(fn: Callable[[Any], Any]) -> None:
    plain, ours = FRAME.copy(), FRAME.copy()
    expected = fn(plain)
    with options(batch=7, threads=2):
        same(pipeline(fn)(ours), expected, index="equiv")
    same(ours, plain)


def key_replaced(df: Any) -> Any:
    groups = df.groupby("k")
    df["k"] = "z"
    return groups["x"].sum()


def selected_column_replaced(df: Any) -> Any:
    selected = df.groupby("k")["x"]
    df["x"] = df["x"] * 2
    return selected.sum(), df.groupby("k")["x"].sum()


def key_changed(df: Any) -> Any:
    groups = df.groupby("k")
    df.loc[df["n"] > 1, "k"] = "q"
    return groups["x"].sum()


def column_added(df: Any) -> Any:
    groups = df.groupby("k")
    df["lag"] = groups["x"].shift(1)
    df["gap"] = df["x"] - df["lag"]
    return groups["gap"].transform("max"), groups["gap"].max(), groups.x.sum()


def frame_changed(df: Any) -> Any:
    numbers = df[["n", "x"]]
    groups = numbers.groupby("n")
    numbers += 1
    return groups["x"].sum()


def of_rows(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda df: program(df[df["n"] > 0])


def column_added_after_use(df: Any) -> Any:
    groups, selected = df.groupby("k")[["x", "n"]], df.groupby("n")
    before = groups.sum(), groups.first(), selected[["x"]].max(), selected.count()
    df["z"] = df["x"]
    df["x"] = 0
    return *before, groups.max(), selected.count(), selected["z"].max()


def columns_that_are_not_cut(df: Any) -> Any:
    rows, known = df[df["x"] > -99], df.assign(c=1)
    groups, others, of_known = rows.groupby("k"), rows.groupby("n"), known.groupby("k")
    rows["x"] = np.arange(len(df)) + 0.5
    rows["new"] = list(range(len(df)))
    known["c"] = list(range(len(df)))
    known["d"] = pd.Series(range(len(df)))
    return (
        *(groups.x.sum(), groups["new"].max(), others.get_group(1), others.agg({"new": "sum"})),
        *(of_known.d.sum(), of_known.get_group("a"), rows, known),
    )


def kept_methods(df: Any) -> Any:
    by, total = df.groupby("k"), df.groupby("n").x.agg
    methods = [by.size, by.x.sum, by["n"].max, by[["x"]].mean]
    df["k"], df["n"] = "z", df["n"] + 1
    return *[method() for method in methods], total("sum")


def changed_and_returned(df: Any) -> Any:
    rows = df[df["n"] > 0]
    same_rows = rows.replace(3, 4, inplace=True)
    assert same_rows is rows
    groups, others = same_rows.groupby("k")["x"], rows.groupby("n")["x"]
    rows["x"] = 0
    same_rows["n"] = 0
    return groups.sum(), others.sum(), rows, same_rows


GROUPED = (key_replaced, selected_column_replaced, column_added)


@pytest.mark.parametrize(
    "program",
    [
        *(*GROUPED, column_added_after_use, key_changed, frame_changed, columns_that_are_not_cut),
        *(kept_methods, changed_and_returned),
    ],
)
def test_group_bys_keep_their_rows(program: Any) -> None:
    check(program)
    check(of_rows(program))


def test_over_a_split_group_bys_keep_their_rows_or_refuse() -> None:
    def added(df: Any) -> Any:
        groups = df.groupby("k")
        df["gap"] = df["x"] - 1
        return groups["gap"].max()

    same(pipeline(added)(split(cut(FRAME))), added(FRAME.copy()))
    for program in (key_replaced, selected_column_replaced):
        with pytest.raises(WholeArrayError):
            pipeline(program)(split(cut(FRAME)))


def test_sizes_of_selected_columns_on_whole_values() -> None:
    @splittable(series=Rows(), returns=Rows())
    def ranked(series: Any) -> Any:
        if len(series) < ROWS:
            raise ValueError("a batch")
        return series.rank()

    def program(df: Any) -> Any:
        rows = df[df["n"] >= 0]
        return rows.groupby("k")[["x"]].size(), ranked(rows["n"])

    with options(batch=7):
        same(pipeline(program)(FRAME), program(FRAME))


NAMED: list[Callable[[Any], Any]] = [
    lambda df: df[df["n"] > 2].name.str.upper(),
    lambda df: df[df["n"] > 2].name.value_counts(),
    lambda df: df[df["n"] > 2].dtype.sum(),
    lambda df: df[df["n"] > 2].unique + 1,
    lambda df: (df[["dtype", "n"]] * 2).dtype,
    lambda df: ("n" in df, "z" in df, [*df[df["n"] > 1]].index("n")),
]


@pytest.mark.parametrize("program", NAMED)
def test_columns_with_names_of_attributes(program: Any) -> None:
    check(program)
    found = gathered(pipeline(program)(split(cut(FRAME))))
    same(found, program(FRAME), index="equiv")


def test_a_column_of_texts_called_dtype() -> None:
    frame = FRAME.assign(dtype=FRAME["name"])

    def program(df: Any) -> Any:
        chosen = df[df["n"] > 2]
        return chosen, chosen.dtype.str.upper()

    with options(batch=7):
        same(pipeline(program)(frame), program(frame), index="equiv")


@pytest.mark.parametrize("kind", [str, "string", object])
def test_texts_of_dates_are_those_of_all(kind: Any) -> None:
    check(lambda df: df["day"].astype(kind))
    check(lambda df: (df[["day", "n"]].astype(kind), (df["day"] - df["day"][0]).astype(kind)))


def test_expressions_of_pandas() -> None:
    check(lambda df: df.assign(c=pd.col("x") + pd.col("n"), d=1))


def test_operators_take_the_default_axis() -> None:
    def program(df: Any) -> Any:
        numbers = df[["n", "x"]]
        centred = numbers.sub(numbers.mean(), axis=1)
        return centred.div(numbers.max(), axis="columns"), centred.eq(0.0, "columns")

    check(program)
    check(lambda df: df[["n", "x"]].sub(df["x"], axis=0))
    found = pipeline(program)(split(cut(FRAME)))
    for one, other in zip(gathered(found), program(FRAME), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_group_bys_are_those_of_pandas() -> None:
    def program(df: Any) -> Any:
        groups = df[df["n"] > 0].groupby("k")
        assert isinstance(groups, pd.api.typing.DataFrameGroupBy)
        assert isinstance(groups["x"], pd.api.typing.SeriesGroupBy)
        assert not hasattr(df["x"] + 1, "merge")
        copies = copy.copy(groups), pickle.loads(pickle.dumps(groups))
        return groups["x"].max(), *[each["x"].max() for each in copies]

    check(program)


def renamed(df: Any) -> Any:
    names = collections.OrderedDict(x="X")
    found = df[df["n"] > 0].rename(columns=names)
    names["n"] = "N"
    return found


def table(df: Any) -> Any:
    return df.groupby(["k", "n"])["x"].sum().unstack()


UNSTACKED: list[Callable[[Any], Any]] = [
    lambda df: pd.DataFrame(table(df)).reset_index(),
    lambda df: pd.crosstab(df["k"], df["n"]) / table(df),
    lambda df: pd.crosstab(df["k"], df["n"]).fillna(table(df)),
    lambda df: (isinstance(table(df), pd.DataFrame), callable(table(df))),
]


@pytest.mark.parametrize("program", [*UNSTACKED, renamed])
def test_tables_and_mappings(program: Any) -> None:
    check(program)


def without_negative(x: Any) -> Any:
    series = pd.Series(x)
    series[series < 0] = 0
    return series


KEPT: list[Callable[[Any], Any]] = [
    without_negative,
    lambda x: (pd.Series(x), x.__iadd__(1))[0],
    lambda x: (pd.Index(x), x.__iadd__(1))[0].max(),
    lambda x: (y := x * 2, pd.Series(y), y.__imul__(2))[1],
]


@pytest.mark.parametrize("program", KEPT)
def test_series_of_lazy_arrays_have_values_of_their_own(program: Any) -> None:
    plain, ours = np.arange(-9.0, 9.0), np.arange(-9.0, 9.0)
    expected = program(plain)
    with options(batch=4):
        found = pipeline(program)(ours)
    same(found, expected)
    np.testing.assert_array_equal(ours, plain)
    found = pipeline(pd.Series)(ours)
    found[0] = 99.0
    np.testing.assert_array_equal(ours, plain)


def eroded(x: Any) -> Any:
    out = np.zeros_like(x, dtype=bool)
    ndimage.binary_erosion(x > 0.1, output=out)
    return out


def distances(x: Any) -> Any:
    out = np.zeros_like(x)
    ndimage.distance_transform_edt(x > 0.3, distances=out)
    return out


def labelled(x: Any) -> Any:
    out = np.zeros_like(x, dtype="i4")
    ndimage.label(x > 0.3, output=out)
    return out


def test_scipy_writes_into_lazy_arrays_or_refuses() -> None:
    image = RNG.random((40, 30))
    with options(batch=7):
        for program in (eroded, distances):
            np.testing.assert_array_equal(pipeline(program)(image), program(image))
        with pytest.raises(TypeError, match=r"expected numpy\.ndarray"):
            pipeline(labelled)(image)


def test_over_a_split_filters_by_texts_that_may_be_missing() -> None:
    frame = FRAME.assign(k=FRAME["k"].astype("string").mask(FRAME["n"] > 3))
    assert (frame["k"] == "a").dtype != np.dtype(bool)

    def program(df: Any) -> Any:
        chosen = df[(df["k"] == "a") & (df["x"] > -2)]
        return chosen, df.loc[df["k"] == "b", "x"].mean(), chosen.groupby("k")["x"].sum()

    found = pipeline(program)(split(cut(frame)))
    same(gathered(found), program(frame), index="equiv")
    with options(batch=5):
        same(pipeline(program)(frame), program(frame), index="equiv")


def indexed(x: Any, weights: Any) -> Any:
    y = x[...].copy()
    y -= x.mean(axis=1)[:, None]
    y /= weights[:, None]
    np.maximum(y, weights[:, None], out=y)
    columns = [0, 2]
    chosen = x[:, columns]
    columns[0] = 1
    return y, chosen * x[..., 1:], x[:], x[:, [True, False, True]][..., 0], x[..., None, 1]


def test_over_a_split_rows_are_indexed_and_changed() -> None:
    x, weights = RNG.random((50, 3)), RNG.random(50) + 0.5
    blocks = [slice(0, 20), slice(20, 21), slice(21, 21), slice(21, 50)]
    parts = split([x[each] for each in blocks], [weights[each] for each in blocks])
    expected = indexed(x.copy(), weights)
    for batch in ("auto", 6):
        with options(batch=batch):
            found = pipeline(indexed)(parts)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.concatenate([*one]), other)
    with options(batch=6):
        for one, other in zip(pipeline(indexed)(x.copy(), weights), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_over_a_split_functions_may_ask_what_an_array_is() -> None:
    seen = []
    pipeline(lambda x: seen.append((hasattr(x, "toarray"), getattr(x, "iloc", 1))))(
        split([np.ones(3), np.ones(2)])
    )
    assert seen == [(False, 1)]


def test_numbers_refuse_assignments_at_once() -> None:
    def body(x: Any) -> Any:
        total = x.sum()
        with pytest.raises(TypeError, match="item assignment"):
            total[...] = 0
        return total

    with options(batch=4):
        assert pipeline(body)(np.ones(9)) == 9
    assert pipeline(body)(split([np.ones(4), np.ones(5)])) == 9
