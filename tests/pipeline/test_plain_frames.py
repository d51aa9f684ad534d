"""Frames that pandas' other methods return, and that the body makes, meet lazy values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter.pipeline import options, pipeline
from tests.pipeline.test_user_programs import same

FRAME = pd.DataFrame(
    {
        "f": [3.0, 1.0, 2.0, 5.0, 4.0],
        "g": [-1.0, 2.0, -3.0, 4.0, 0.0],
        "k": [1, 2, 1, 2, 1],
    }
)
SPANS = pd.Series(pd.to_timedelta([30, 60, 90, 2, 80], "h"))


def added_in_place(df: Any) -> Any:
    total = pd.Series(0.0, index=df.index)
    total += df["f"] * 2
    total -= df["g"]
    array = np.zeros(len(df))
    array += df["f"]
    return total, array, (df["f"].to_numpy() * 2).__iadd__(df["g"])


def sorted_and_set(df: Any) -> Any:
    ordered = df.sort_values("f")
    ordered["f"] += df["g"]
    ordered["mean"] = df["g"].mean()
    ordered.loc[df["k"] == 1, "g"] = 0.0
    ordered.loc[(df["g"] > 1).to_numpy(), "k"] = 7
    ordered[["f", "g"]] -= df[["f", "g"]].mean()
    return ordered, ordered["mean"].dtype.name


def set_by_a_nullable_mask(df: Any) -> Any:
    ordered = df.sort_index()
    ordered.loc[df["k"].astype("Int64") > 1, "f"] = 0.0
    return ordered


def chosen_by_arrays(df: Any) -> Any:
    flags, ordered = df["g"].to_numpy() > 0, df.sort_values("f")
    return (
        ordered.iloc[flags],
        ordered.loc[flags],
        ordered[(df["g"] > 0).values],
        ordered["f"].iloc[flags].sum(),
        ordered.iloc[:, df.to_numpy().max(axis=0) > 3],
        ordered.groupby(df["k"].to_numpy())["f"].sum(),
        df.drop(df.index[(df["g"] > 0).values]),
    )


def by_numbers(df: Any) -> Any:
    ordered, most = df.sort_values("f"), df["k"].max()
    return (
        ordered.iloc[most],
        ordered.iloc[:most],
        ordered.head(most),
        ordered["f"].nlargest(most),
        ordered.loc[most, "f"] == ordered.at[most, "f"],
        ordered["k"].map({1: df["f"].mean(), 2: 0.0}),
        ordered["f"].clip(lower=df["f"].mean()),
    )


def columns_changed_in_place(df: Any) -> Any:
    column, part, ordered = df["f"], df[["f", "g"]], df["f"].sort_values()
    column += df["g"]
    part /= part.iloc[0]
    ordered += 1
    wide = df.pivot_table(index="k", columns="g", values="f")
    wide[4.0] += 1
    df.iloc[:, 1] += 1
    return column, part, ordered, wide, df


def given_to_new_series(df: Any) -> Any:
    array = df["f"].to_numpy() * 2
    series = pd.Series(array)
    array += 1
    series.iloc[0] = 99.0
    flags = pd.Series([1, 2, 3, 4, 5]) | (df["k"].to_numpy() + 1)
    return series, flags


def groups_and_windows(df: Any) -> Any:
    groups, largest = df.groupby("k").agg(x=("f", "sum")), int(df["k"].max())
    return (
        groups.assign(m=float(df["f"].mean())),
        groups.loc[df["k"].unique()],
        df[["f"]].rolling(largest).sum(),
        largest in df.index,
    )


def keys_that_grow(df: Any) -> Any:
    keys: list[str] = []
    found = []
    selected: list[str] = []
    for key in ("k", "g"):
        keys.append(key)
        selected.append({"k": "f", "g": "g"}[key])
        found += [df.groupby("k", as_index=False)[selected].sum()] if key == "k" else []
        found += [df.groupby(keys)["f"].sum(), df[keys], df[df["k"].isin([1])].drop(columns=keys)]
    return found


def hours_of_missing_dates(df: Any) -> Any:
    df = df.assign(at=SPANS)
    at = pd.Timestamp("2024-01-01") + df["at"].where(df["k"] > 1)
    hour = at.dt.hour
    if hour.dtype.kind == "f":
        hour = hour.fillna(-1).astype("int64")
    late = df[df["f"] > 1]
    late["day"] = df["at"].where(df["k"] > 1).dt.days
    kinds = [column for column in late if late[column].dtype.kind == "f"]
    return hour, late, list(map(str, late.dtypes)), kinds, at.dt.month.max().dtype.kind


def numbers_in_functions_of_rows(df: Any) -> Any:
    mean, square, least = df["f"].mean(), df["f"].mean() ** 2, {1: df["g"].min()}
    return (
        df["g"].map(lambda value: value - mean),
        df["g"].map(lambda value: value > mean),
        df["g"].apply(lambda value: (value - mean) ** 2 + square),
        df["k"].map(lambda key: least.get(key, 0.0) * 1.0),
        df[["f", "g"]].apply(lambda row: row["f"] - mean, axis=1),
    )


def returned_in_new_frames(df: Any) -> Any:
    counts = {"mean": [df["f"].mean(), df["g"].mean()], "n": [1, 2]}
    return pd.Series({"a": df["f"].mean(), "b": 1.0}), [{"t": pd.DataFrame(counts)}]


def new_frames_of_numbers(df: Any) -> Any:
    row = pd.Series({"f": df["f"].mean(), "g": df["g"].max()})
    table = pd.DataFrame({"k": [1, 2], "w": [df["f"].mean(), df["g"].max()]})
    column = pd.Series([df["f"].mean()] * len(df))
    return (
        (df[["f", "g"]] - row) / row,
        df[["f", "g"]] - pd.DataFrame({"f": column, "g": 1.0}),
        np.add(df["f"], column) + column,
        df["f"].isin(pd.Series([df["f"].max(), 0])),
        df[["f", "g"]].fillna(row),
        df["k"].map(pd.Series({1: df["f"].mean(), 2: df["g"].max()})),
        df.merge(table, on="k"),
        df.assign(w=column),
        table.set_index("w"),
        pd.DataFrame([[1, 2]], columns=[df["f"].max(), 0.0]),
    )


def numbers_given_to_plain_frames(df: Any) -> Any:
    mean = df["f"].mean()
    medians = df.groupby("k")["f"].median()
    filled = df["f"].rolling(3).mean().fillna(mean)
    df["q"] = df["f"].map(lambda value: value if value < mean else mean)
    return (
        medians.clip(upper=mean).sort_values(),
        filled.nunique(),
        pd.concat([medians, pd.Series([np.nan])]).fillna(mean),
        df.groupby("k")["f"].agg(["median", "std"]).where(lambda each: each > 2, mean),
        df.groupby("k")["g"].transform(lambda group: group.fillna(mean)),
        df.apply(lambda row: row["f"] if row["k"] > 1 else mean, axis=1),
        df[["f", "g"]].apply(lambda each: each.fillna(mean).mean()),
        df["g"].map(lambda value: value - df["f"].mean()),
        df["q"].nunique(),
    )


def numbers_given_to_pandas(df: Any) -> Any:
    x, small = df["f"] * 2, (df["k"] * 50).astype("int8")
    few = x[df["g"] > -2]
    flags = pd.Series([(x > 3).any(), (x > 1).all(), (few > 99).any()])
    numbers = pd.Series([small.max(), small.min()])
    edges = pd.cut(x.where(df["k"] < 2), [0, few.mean(), 9])
    table = pd.DataFrame({"k": [few.count(), 1], "w": [few.mean(), few.std()]})
    return (
        edges.cat.codes,
        edges.isna().sum(),
        pd.qcut(df["f"], [0, few.mean() / 10, 1]).cat.codes,
        numbers * 100,
        numbers.dtype.name,
        (flags.sum(), ~flags, flags.mean()),
        pd.Series([few.sum(), 0.0]) / pd.Series([0.0, 0.0]),
        pd.merge(df, table, on="k"),
        table.merge(df, on="k"),
        table.mean(),
        pd.Series(pd.Index([few.sum(), 3])),
        pd.Series(pd.MultiIndex.from_tuples([(few.sum(), 1), (few.max(), 2)]).levels[0]),
        pd.array([small.max(), 1]).dtype.name,
        pd.Series(pd.Categorical([few.max(), 1.0]).categories),
        pd.DataFrame(few.max(), index=[0, 1], columns=["a"]),
        pd.Timedelta(days=int(small.max())) + pd.Timedelta(few.min(), "D"),
        isinstance(few.mean(), float),
        type(small.sum()),
    )


def extremes_of_no_rows(df: Any) -> Any:
    none = df[df["f"] > 99]["f"]
    found = none.mean(), none.max(), none.min()
    return [0.0 if pd.isna(each) else each for each in found], bool(pd.notna(found[0]))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "added in place": added_in_place,
    "sorted and set": sorted_and_set,
    "set by a nullable mask": set_by_a_nullable_mask,
    "chosen by arrays": chosen_by_arrays,
    "by numbers": by_numbers,
    "keys that grow": keys_that_grow,
    "columns changed in place": columns_changed_in_place,
    "given to new series": given_to_new_series,
    "groups and windows": groups_and_windows,
    "hours of missing dates": hours_of_missing_dates,
    "numbers in functions of rows": numbers_in_functions_of_rows,
    "returned in new frames": returned_in_new_frames,
    "extremes of no rows": extremes_of_no_rows,
    "new frames of numbers": new_frames_of_numbers,
    "numbers given to plain frames": numbers_given_to_plain_frames,
    "numbers given to pandas": numbers_given_to_pandas,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plain_program_does_the_same(name: str) -> None:
    expected = PROGRAMS[name](FRAME.copy())
    with options(batch=2, threads=2):
        found = pipeline(PROGRAMS[name])(FRAME.copy())
    same(found, expected)
