"""Frames of pandas: functions on rows, group-bys by their aggregate, the paper's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from spliter import AnnotationError, InvalidArgumentError, split
from spliter.pipeline import (
    Groups,
    Reduction,
    Rows,
    explain,
    module,
    options,
    pipeline,
    splittable,
    unknown,
)
from spliter.pipeline._annotations import functions_of
from spliter.testing import check_splittable
from tests.pipeline.checks import check, same

pytestmark = pytest.mark.usefixtures("small_batches")

N = 30
FRAME = pd.DataFrame(
    {
        "key": [f"k{each % 4}" for each in range(N)],
        "other": np.arange(N) % 3,
        "x": np.linspace(-1, 2, N),
        "n": np.arange(N, dtype="i4"),
        "text": pd.array([f"t-{each % 7}" if each % 5 else None for each in range(N)], dtype="str"),
        "date": pd.date_range("2024-01-01", periods=N),
    },
    index=np.arange(N) * 2,
)
ROWS = Rows()
AGGREGATES = ["sum", "mean", "min", "max", "count", "size"]

scaled = splittable(lambda df: df.assign(x=df["x"] * 2, z=df["n"] + 1), df=ROWS, returns=ROWS)
column = splittable(lambda df, name: df[name], df=ROWS, returns=ROWS)
large = splittable(lambda df, least: df[df["x"] > least], df=ROWS, returns=unknown)
labels = splittable(lambda df: df.index, df=ROWS, returns=ROWS)
shifted = splittable(lambda index: index + 1, index=ROWS, returns=ROWS)
numbers = splittable(lambda series: series.to_numpy(), series=ROWS, returns=ROWS)
weighed = splittable(lambda series, by: series * by, series=ROWS, by=ROWS, returns=ROWS)
upper = splittable(lambda series: series.str.upper(), series=ROWS, returns=ROWS)
total = splittable(
    lambda series: float(series.sum()), series=ROWS, returns=Reduction(merge=lambda a, b: a + b)
)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "rows": scaled,
    "two calls": lambda df: scaled(scaled(df)),
    "series": lambda df: (column(df, "x"), upper(column(df, "text")), column(df, "date")),
    "filter": lambda df: (large(df, 0.5), total(column(large(df, 0.5), "x"))),
    "nothing left": lambda df: large(df, 99.0),
    "index": lambda df: shifted(labels(df)),
    "arrays": lambda df: np.sqrt(numbers(column(df, "x")) ** 2) + numbers(column(df, "n")),
    "beside arrays": lambda df: weighed(column(df, "x"), numbers(column(df, "n"))),
    "reduction": lambda df: total(column(scaled(df), "x")),
    "plain pandas": lambda df: (scaled(df)["z"].max(), df["x"].mean(), len(df), df.shape),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_annotated_functions_give_what_they_give_for_all_rows(name: str, batch: int) -> None:
    check(PROGRAMS[name], FRAME, batch=batch, rtol=1e-12)


def test_annotated_functions_of_a_frame_share_a_stage() -> None:
    shown = explain(pipeline(lambda df: column(scaled(df), "z")), FRAME)
    assert shown.count("stage") == 1
    assert "in batches of 7" in shown


def grouped(aggregate: str, *keys: str, columns: Any = "x") -> Any:
    by: Any = [*keys] if len(keys) > 1 else keys[0]
    return splittable(
        lambda df: df.groupby(by)[columns] if aggregate != "size" else df.groupby(by),
        df=ROWS,
        returns=Groups(aggregate),
    )


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("keys", [("key",), ("other", "key")])
@pytest.mark.parametrize("columns", ["x", ["x", "n"]])
def test_groups_are_combined_by_their_aggregate(aggregate: str, keys: Any, columns: Any) -> None:
    by = grouped(aggregate, *keys, columns=columns)
    chosen = FRAME.groupby([*keys] if len(keys) > 1 else keys[0])
    expected = getattr(chosen if aggregate == "size" else chosen[columns], aggregate)()
    same(by(FRAME), expected)
    for batch in (1, 4, 100):
        with options(batch=batch):
            same(pipeline(by)(FRAME), expected, rtol=1e-12)
            few = pipeline(lambda df: by(large(df, 1.9)))(FRAME)
            same(few, by(large(FRAME, 1.9)), rtol=1e-12)
    with split([FRAME[:4], FRAME[4:4], FRAME[4:]]) as parts:
        same(pipeline(by)(parts), expected, rtol=1e-12)


@given(
    keys=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    aggregate=st.sampled_from(AGGREGATES),
    dtype=st.sampled_from(["i4", "f8", "i8", "f4"]),
    batch=st.integers(1, 41),
)
def test_the_law_of_groups(keys: list[int], aggregate: str, dtype: str, batch: int) -> None:
    frame = pd.DataFrame({"key": keys, "x": np.arange(len(keys)).astype(dtype)})
    frame.loc[frame["key"] == 3, "key"] = 7
    by = grouped(aggregate, "key")
    with options(batch=batch, threads=1):
        same(pipeline(by)(frame), by(frame), rtol=0 if dtype[0] == "i" else 1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda df: df.groupby("key")["x"].sum(),
        lambda df: df.groupby("key", sort=False)["x"],
        lambda df: df.groupby("key", as_index=False)["x"],
        lambda df: df["x"],
        lambda df: None,
    ],
)
def test_other_results_than_group_bys_are_refused(wrong: Any) -> None:
    with pytest.raises(AnnotationError, match=r"(?s)group"):
        pipeline(splittable(wrong, df=ROWS, returns=Groups("sum")))(FRAME)


def test_several_group_bys_and_means_of_numbers_only() -> None:
    two = splittable(
        lambda df: (df.groupby("key")["x"], df.groupby("other")["n"]),
        df=ROWS,
        returns=(Groups("mean"), Groups("max")),
    )
    expected = FRAME.groupby("key")["x"].mean(), FRAME.groupby("other")["n"].max()
    same(two(FRAME), expected)
    same(pipeline(two)(FRAME), expected, rtol=1e-12)
    with split([FRAME[:4], FRAME[4:]]) as parts:
        same(pipeline(two)(parts), expected, rtol=1e-12)
    with pytest.raises(TypeError, match="mean"):  # of pandas
        pipeline(grouped("mean", "key", columns="text"))(FRAME)
    one = splittable(lambda df: df.groupby("key")["x"], df=ROWS, returns=(Groups(), Groups()))
    with pytest.raises(AnnotationError, match="results"):
        pipeline(one)(FRAME)


def test_pieces_with_columns_in_another_order_are_matched_or_refused() -> None:
    def turned(df: Any) -> Any:
        names = ["x", "n"] if df["n"].iloc[0] % 2 else ["n", "x"]
        return df[names]

    def renamed(df: Any) -> Any:
        return df[["x"]].rename(columns={"x": f"x{df['n'].iloc[0]}"})

    turn = splittable(turned, df=ROWS, returns=ROWS)
    same(pipeline(turn)(FRAME), FRAME[["n", "x"]])
    with pytest.raises((InvalidArgumentError, AnnotationError), match=r"x0.*x7|x7.*x0"):
        pipeline(splittable(renamed, df=ROWS, returns=ROWS))(FRAME)


def changed_by_loc(df: Any) -> Any:
    found = tenfold(df)
    df.loc[df["x"] > 0.5, "x"] = 0.0
    return found


def changed_in_place(df: Any) -> Any:
    found = tenfold(df)
    df.drop(columns="n", inplace=True)
    return found


def result_changed(df: Any) -> Any:
    made = tenfold(df)
    assert len(made) == len(df)
    found = tenfold(made)
    made.loc[made["x"] > 0.5, "x"] = 0.0
    return found, tenfold(made)


def plain_operand_changed(df: Any) -> Any:
    limit = pd.DataFrame({"x": [0.5]})
    found = below(df, limit)
    limit.loc[0, "x"] = -1.0
    return found


tenfold = splittable(lambda df: df.assign(x=df["x"] * 10), df=ROWS, returns=ROWS)
below = splittable(lambda df, limit: df["x"] < limit["x"][0], df=ROWS, returns=ROWS)


@pytest.mark.filterwarnings("ignore:The inplace keyword:Warning")
@pytest.mark.parametrize(
    "body", [changed_by_loc, changed_in_place, result_changed, plain_operand_changed]
)
def test_calls_that_wait_do_not_see_changes_of_a_frame(body: Any) -> None:
    ours, plain = FRAME.copy(), FRAME.copy()
    expected = body(plain)
    same([pipeline(body)(ours), ours], [expected, plain])


OPERANDS = FRAME[["x", "n"]]
VALUES, COUNTS, TEXTS = FRAME["x"], FRAME["n"], FRAME["text"]
LOOKUP = pd.DataFrame({"other": [0, 1, 2], "name": ["zero", "one", "two"]})

CALLS: dict[str, tuple[Any, ...]] = {
    "add": (VALUES, COUNTS),
    "subtract": (VALUES, 2.0),
    "multiply": (COUNTS, 3),
    "divide": (VALUES, COUNTS + 1),
    "equal": (COUNTS, 4),
    "greater": (VALUES, 0.5),
    "less": (VALUES, COUNTS),
    "invert": (VALUES > 0,),
    "mask": (VALUES, VALUES > 1, 0.25),
    "filter": (FRAME, VALUES > 0.5),
    "str_slice": (TEXTS, 0, 2),
    "str_contains": (TEXTS, "-3"),
    "sum": (VALUES,),
    "unique": (TEXTS,),
    "join": (FRAME, LOOKUP, "other"),
}


def test_the_table_has_the_functions_that_the_paper_annotates() -> None:
    assert {name.rpartition(".")[2] for name in functions_of("pandas")} == CALLS.keys()
    assert len(CALLS) == 15


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_the_papers_functions(name: str, batch: int) -> None:
    fn = getattr(module("pandas"), name)
    arguments = CALLS[name]
    check(fn, *arguments, batch=batch, rtol=1e-12)
    cut = [isinstance(each, pd.Series | pd.DataFrame) and each is not LOOKUP for each in arguments]
    collections = [
        [each[:4], each[4:4], each[4:15], each[15:]]
        for each, is_cut in zip(arguments, cut, strict=True)
        if is_cut
    ]
    rest = [each for each, is_cut in zip(arguments, cut, strict=True) if not is_cut]
    with split(*collections, partitions_per_location=2) as parts:
        found = pipeline(fn)(parts, *rest)
    if isinstance(found, list):
        found = pd.concat([each for each in found if len(each)])
    same(found, fn(*arguments), rtol=1e-12)


def test_what_the_papers_functions_do() -> None:
    pandas = module("pandas")
    same(pandas.filter(FRAME, VALUES > 1), FRAME[VALUES > 1])
    same(pandas.divide(VALUES, 2), VALUES / 2)
    assert pandas.sum(COUNTS) == COUNTS.sum()
    assert [*pandas.unique(COUNTS % 3)] == [0, 1, 2]
    joined = pandas.join(FRAME, LOOKUP, "other")
    assert [*joined["name"][:4]] == ["zero", "one", "two", "zero"]
    assert pandas.concat is pd.concat
    with pytest.raises(InvalidArgumentError, match="pass 'inner' or 'left'"):
        pandas.join(FRAME, LOOKUP, "other", how="outer")
    with pytest.raises(InvalidArgumentError, match="label"):
        pipeline(pandas.add)(VALUES, VALUES.set_axis(VALUES.index + 1))


@given(
    values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50),
    batch=st.integers(1, 51),
    name=st.sampled_from(["add", "multiply", "subtract", "less", "sum", "unique", "mask"]),
)
def test_the_law_of_the_papers_functions(values: list[int], batch: int, name: str) -> None:
    series = pd.Series(np.array(values, "i4"), name="s")
    fn = getattr(module("pandas"), name)
    rest: tuple[Any, ...] = () if name in ("sum", "unique") else (np.int32(3),)
    args = (series, series > 2, np.int32(7)) if name == "mask" else (series, *rest)
    with options(batch=batch, threads=1):
        same(pipeline(fn)(*args), fn(*args))


def test_annotations_of_frames_are_checked() -> None:
    check_splittable(scaled, FRAME)
    check_splittable(grouped("mean", "key", columns="n"), FRAME, rtol=1e-12)
    wrong = splittable(lambda df: df.reset_index(drop=True), df=ROWS, returns=ROWS)
    with pytest.raises(AnnotationError, match="another result"):
        check_splittable(wrong, FRAME)
