"""Dtypes, labels, repeated columns and special methods of frames are those of plain pandas."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import lazy, options, pipeline
from spliter.pipeline._annotations.groups import AGGREGATES
from spliter.pipeline._annotations.pandas import ALONG_ROWS
from spliter.pipeline._values.frames import LazyFrame
from tests.pipeline.test_pandas import same

ROWS = 23
SMALL = np.arange(ROWS) * 7 % 10
COLUMNS = {
    **{dtype: SMALL.astype(dtype) for dtype in ("i1", "i8", "u1", "u8", "f2", "f4", "f8", "g")},
    "large": SMALL * 10**18,
    "unsigned": SMALL.astype("u8") * 10**18,
    "flag": SMALL > 4,
    "gaps": np.where(SMALL > 4, np.nan, SMALL),
    "missing": np.full(ROWS, np.nan),
    "Int64": pd.array(SMALL, dtype="Int64"),
    "boolean": pd.array(SMALL > 4, dtype="boolean"),
    "category": pd.Categorical(SMALL),
    "text": SMALL.astype(str),
    "at": pd.to_datetime("2024-01-30") + pd.to_timedelta(SMALL, "D"),
    "zoned": (pd.to_datetime("2024-01-30") + pd.to_timedelta(SMALL, "D")).tz_localize("CET"),
    "span": pd.to_timedelta(SMALL, "D"),
}
FRAME = pd.DataFrame(COLUMNS | {"key": SMALL % 3}).set_index(np.arange(ROWS) % 5)
REDUCTIONS = (
    *("sum", "mean", "min", "max", "count", "nunique", "any", "all", "std", "var", "median"),
    *("idxmax", "value_counts", "unique"),
)


def outcome(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except (TypeError, ValueError) as error:
        return type(error).__name__


def check(fn: Callable[[Any], Any], frame: pd.DataFrame) -> None:
    expected = outcome(lambda: fn(frame.copy()))
    with options(batch=7, threads=2):
        found = outcome(lambda: pipeline(fn)(frame.copy()))
    same_roughly(found, expected)


def same_roughly(found: Any, expected: Any) -> None:
    if isinstance(expected, float | np.floating):
        assert isinstance(found, type(expected))  # Python's NaN for no rows, in pandas
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    elif isinstance(expected, str) or pd.api.types.is_scalar(expected):
        assert type(found) is type(expected)
        assert found is expected or found == expected
    else:
        same(found, expected)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.thorough
def test_reductions_of_any_dtype(name: str) -> None:
    for column in COLUMNS:
        for keys in (0, 1, 9):  # of no rows, some, all
            check(lambda df: getattr(df[df["key"] < keys][column], name)(), FRAME)  # noqa: B023


def of_groups(column: str) -> Callable[[Any], Any]:
    return lambda df: (
        df.groupby("key")[column].mean(),
        df.groupby(["key", "text"])[[column]].mean(),
        df.groupby("key", as_index=False)[column].sum(),
    )


NUMBERS = ("i1", "i8", "u1", "u8", "f8", "flag", "gaps", "large", "unsigned", "missing")


@pytest.mark.parametrize("column", [*NUMBERS, "f2", "f4", "g", "Int64", "boolean"])
def test_means_and_sums_of_groups(column: str) -> None:
    fn = of_groups(column)
    with options(batch=7, threads=2):
        found = outcome(lambda: pipeline(fn)(FRAME))
    if isinstance(expected := outcome(lambda: fn(FRAME)), str):
        assert found == expected
    else:
        for one, other in zip(found, expected, strict=True):
            pd.testing.assert_frame_equal(pd.DataFrame(one), pd.DataFrame(other))
            assert type(one) is type(other)


@pytest.mark.parametrize("column", NUMBERS)
def test_over_a_split_means_and_sums_of_numbers(column: str) -> None:
    blocks = [FRAME[:9], FRAME[9:]]
    for name in ("mean", "sum"):
        expected = getattr(FRAME.groupby("key")[column], name)()
        found = pipeline(lambda df: getattr(df.groupby("key")[column], name)())(split(blocks))  # noqa: B023
        pd.testing.assert_series_equal(found, expected)
    for name in ("mean", "sum", "std", "var"):
        total = pipeline(lambda df: getattr(df[column], name)())(split(blocks))  # noqa: B023
        same_roughly(total, getattr(FRAME[column], name)())


REPEATED: dict[str, Callable[[Any], Any]] = {
    "selection": lambda df: df.groupby("key")[["i8", "i8"]].sum(),
    "mean": lambda df: df.groupby("key")[["i8", "i8"]].mean(),
    "keys": lambda df: df.groupby(["key", "key"])["i8"].sum(),
    "columns": lambda df: df[["i8", "i8"]] + 1,
    "groups of columns": lambda df: df[["key", "i8", "i8"]].groupby("key").sum(),
    "merge": lambda df: df.merge(FRAME[:3][["key", "u1"]], on=["key", "key"]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_columns(name: str) -> None:
    check(REPEATED[name], FRAME)


def test_results_with_repeated_labels_are_aligned() -> None:
    check(lambda df: pd.crosstab(df["key"] + 1, df["text"].str.upper()), FRAME)
    check(lambda df: df["i8"] + df["u1"].rename_axis("other"), FRAME)


LABELS = [
    pd.Index([*"abcdefghijklmnopqrstuvw"], dtype=object, name="letter"),
    pd.Index(range(ROWS), dtype=object),
    pd.Index([*pd.date_range("2024-01-31", periods=ROWS)], dtype=object),
    pd.MultiIndex.from_arrays([[2, 1] * 11 + [0], ["q"] * ROWS], names=["u", None]),
    pd.CategoricalIndex([*"ab"] * 11 + ["a"]),
    pd.period_range("2024-01", periods=ROWS, freq="M"),
]


def test_names_of_columns_keep_their_dtype() -> None:
    def body(df: Any) -> Any:
        return df.merge(pd.DataFrame({"k": [1, 2], "z": [5, 6]}), on="k")[["k", "z"]]

    mixed = pd.DataFrame({"k": [1, 2, 1, 2], "a": 1.0, "b": 2.0, 0: 4.0})
    with options(batch=2):
        pd.testing.assert_frame_equal(pipeline(body)(mixed), body(mixed))


@pytest.mark.parametrize("labels", LABELS)
def test_labels_keep_their_dtype(labels: Any) -> None:
    check(
        lambda df: (df["i8"] + 1, df[df["flag"]], df["gaps"].dropna() * 2), FRAME.set_axis(labels)
    )


def renamed(df: Any) -> Any:
    one, other = df["i8"] + 1, df["u1"] * 2
    one.index.name = "one"
    third = df["i8"] * 3
    df.index.name = "own"
    return one, other, third, df["u1"] * 4


def shortened(df: Any) -> Any:
    rows = df[df["flag"]]
    rows.drop(rows.index[:1], inplace=True)
    df.dropna(subset=["gaps"], inplace=True)
    return rows["i8"] + 1, rows[rows["i8"] > 6], df["i8"] + 1, df["f8"].sum()


def lengthened(df: Any) -> Any:
    values = df["f8"] * 2
    values.loc[99] = 3.0
    return values + 1, values[values > 2], values.sum()


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("changed", [renamed, shortened, lengthened])
def test_labels_change_in_place(changed: Callable[[Any], Any]) -> None:
    check(changed, FRAME)


def deleted(df: Any) -> Any:
    rows = df.dropna(subset=["gaps"])
    doubled = rows["f8"] * 2
    del rows["f8"]
    del df["u1"]
    return doubled, rows, list(rows.columns)


def test_columns_are_deleted() -> None:
    one, other = FRAME.copy(), FRAME.copy()
    expected = deleted(one)
    with options(batch=7):
        found = pipeline(deleted)(other)
    same(found[:2], expected[:2])
    assert found[2] == expected[2]
    same(other, one)


def copied(df: Any) -> Any:
    rows = df[df["key"] > 0]
    one, other = copy.copy(rows), copy.deepcopy(rows)
    one["i8"] = 0
    other["u8"] = 1
    return rows, one, other


def test_copies_are_apart() -> None:
    check(copied, FRAME)


SPECIAL: dict[str, Callable[[Any], Any]] = {
    "divmod": lambda df: divmod(df["i8"] + 1, 4),
    "divmod of a number": lambda df: divmod(4, df["i8"] + 1),
    "round": lambda df: round(df["f8"] / 7, 1),
    "round of a mean": lambda df: int(round(df["f8"].mean(), 1) * 10),
    "matmul": lambda df: (df["i8"] + 1) @ df["u1"],
    "matmul of an array": lambda df: np.ones(ROWS) @ (df["i8"] + 1),
    "protocol": lambda df: int(hasattr(df[["i8"]] + 1, "__dataframe__")),
    "no protocol": lambda df: int(hasattr(df["i8"] + 1, "__dataframe__")),
    "dir": lambda df: int("text" in dir(df[df["flag"]])),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_methods(name: str) -> None:
    check(SPECIAL[name], FRAME)


UNNEEDED = {
    "__getattribute__": "all that it finds is defined on the class or by __getattr__",
    "__reduce_ex__": "calls __reduce__, which pickles the value",
    "__getstate__": "pickles hold the value itself",
    "__setstate__": "pickles hold the value itself",
    "__sizeof__": "of the lazy value itself",
    "__new__": "frames are made by their own class",
    "__init_subclass__": "of the class",
    "__subclasshook__": "of the class",
    "__annotations__": "of the class",
    "__dict__": "lazy values have none",
    "__array_priority__": "found by __getattr__; NumPy asks for __array_ufunc__ first",
    "__pandas_priority__": "found by __getattr__",
    "__arrow_c_stream__": "found by __getattr__",
    "__dataframe__": "found by __getattr__: series have none",
    "__finalize__": "found by __getattr__",
}


@pytest.mark.parametrize("kind", [pd.DataFrame, pd.Series])
def test_special_methods_are_defined(kind: type) -> None:
    defined = {name for each in LazyFrame.__mro__[:-1] for name in vars(each)}
    assert {name for name in dir(kind) if name.startswith("__")} <= defined | UNNEEDED.keys()
    assert type(lazy(FRAME)) is LazyFrame


@pytest.mark.parametrize("name", sorted(ALONG_ROWS))
@pytest.mark.parametrize("skipna", [True, False])
def test_reductions_of_rows_of_any_dtypes(name: str, skipna: bool) -> None:
    named = {} if name == "count" else {"skipna": skipna}
    tables = [
        ["i1", "i8"],
        ["i8", "f8"],
        ["f4", "f8"],
        ["gaps", "missing"],
        ["flag"],
        ["u1", "flag"],
    ]
    tables += [
        ["Int64", "i8"],
        ["text"],
        ["at", "at"],
        ["span"],
        ["category", "f8"],
        ["f8"] * 9,
        [],
    ]
    for columns in tables:
        check(lambda df: getattr(df[columns], name)(axis=1, **named), FRAME)  # noqa: B023


@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("given", [(0,), (1,), ("index",), (0, True), (0, False), (0, True, 0)])
def test_arguments_by_position(name: str, given: tuple[Any, ...]) -> None:
    def of_columns(df: Any) -> Any:
        return getattr(df[["f8", "gaps"]] * 1, name)(*given).round(9)

    def of_column(df: Any) -> Any:
        return getattr(df["gaps"] * 1, name)(*given)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas wants them by name in version 4
        check(of_columns, FRAME)
        check(of_column, FRAME)
        if given in ((0,), (0, True, 0)):
            same_roughly(pipeline(of_column)(split([FRAME[:9], FRAME[9:]])), of_column(FRAME))


KEYS = pd.DataFrame(
    {
        "c": pd.Categorical([None, "b", "a", "a", None], categories=["a", "b", "z"]),
        "k": ["z", "y", "y", None, "x"],
        "o": pd.Series([None] * 5, dtype=object),
        "v": [1, 2, 3, 4, 5],
    }
)


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("as_index", [True, False])
@pytest.mark.parametrize("dropna", [True, False])
@pytest.mark.parametrize("name", AGGREGATES)
def test_groups_of_missing_keys(sort: bool, as_index: bool, dropna: bool, name: str) -> None:
    def body(df: Any, keys: list[str]) -> Any:
        named = {"sort": sort, "as_index": as_index, "dropna": dropna, "observed": False}
        return getattr(df.groupby(keys, **named)["v"], name)()

    for keys in (["c", "k"], ["o"], ["k", "o"]):
        expected = body(KEYS, keys)
        with options(batch=2, threads=1):
            same(pipeline(body)(KEYS, keys), expected)
        same(pipeline(body)(split([KEYS[:1], KEYS[1:4], KEYS[4:]]), keys), expected)


def test_over_a_split_numbers_of_missing_texts_become_no_texts() -> None:
    blocks = split([FRAME[["text"]][:9], FRAME[["text"]].where(FRAME["key"] > 0)[9:]])
    lengths = pipeline(lambda df: df["text"].str.len().astype("f8").sum())(blocks)
    assert lengths == FRAME["text"].str.len()[:9].sum() + (FRAME["key"][9:] > 0).sum()
    with pytest.raises(WholeArrayError):
        pipeline(lambda df: df["text"].str.len().astype(str))(blocks)


@pytest.mark.parametrize("path", ["len", "count", "find", "rfind", "match", "get", "extract"])
@pytest.mark.parametrize("dtype", ["str", object, "category"])
def test_methods_of_missing_texts(path: str, dtype: Any) -> None:
    texts: Any = pd.Series(["ab", None, "b", "", "bab"] * 5).astype(dtype)
    given: Any = {"len": (), "get": (1,), "extract": ("(?P<first>a)(b)",)}.get(path, ("b",))
    bodies: list[Callable[[Any], Any]] = [
        lambda one: getattr(one.str, path)(*given),
        lambda one: getattr(one[one.notna()].str, path)(*given),
        lambda one: one.str[-1].where(one.str[0] == "b"),
        lambda one: one.str[0:2].str[::-1],
        lambda one: one.str.replace("b", lambda found: found[0] * 2, regex=True),
    ]
    for body in bodies:
        check(body, texts)
