"""Annotated functions of pandas frames: rows, filters, groups."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import InvalidArgumentError, split
from spliter.pipeline import (
    Groups,
    Reduction,
    Rows,
    broadcast,
    explain,
    options,
    pipeline,
    splittable,
    unknown,
)
from spliter.pipeline._values import lazy
from spliter.testing import check_splittable

FRAME = pd.DataFrame(
    {
        "city": pd.Categorical(["b", "a", "c", "a", "b", "a", "a"]),
        "name": ["  x", "Y ", None, "z", "zz", "", "Q"],
        "value": [1.0, np.nan, 3.0, 4.0, -5.0, 6.0, 7.5],
        "count": [3, 1, 4, 1, 5, 9, 2],
    }
)
PLACES = pd.DataFrame({"city": ["a", "b"], "height": [10, 20]})


def cleaned(frame: Any) -> Any:
    name = frame["name"].str.strip().str.lower()
    return frame.assign(name=name, value=frame["value"].fillna(0) * 2)


def filtered(frame: Any) -> Any:
    return frame[frame["count"].isin([1, 9, 2])]


def by_city(frame: Any) -> Any:
    return frame.groupby("city", observed=True)[["count", "value"]].sum()


def largest(frame: Any) -> Any:
    return frame.groupby(["city", "count"], observed=True)["value"].max()


def with_places(frame: Any, places: Any) -> Any:
    return frame.merge(places, on="city", how="left")


def total(frame: Any) -> Any:
    return int(frame["count"].sum())


@pytest.mark.parametrize(
    ("fn", "returns"),
    [
        (cleaned, Rows()),
        (by_city, Groups("sum")),
        (largest, Groups("max")),
        (total, Reduction(merge=operator.add)),
    ],
)
def test_annotated_functions_of_frames(fn: Any, returns: Any) -> None:
    check_splittable(splittable(fn, frame=Rows(), returns=returns), FRAME)


def test_filters_keep_their_labels_and_chain() -> None:
    keep = splittable(filtered, frame=Rows(), returns=unknown)
    clean = splittable(cleaned, frame=Rows(), returns=Rows())
    add_places = splittable(with_places, frame=Rows(), places=broadcast, returns=unknown)
    check_splittable(keep, FRAME)
    with options(batch=2):
        found = pipeline(lambda frame: clean(keep(clean(frame))))(FRAME)
        merged = pipeline(add_places)(FRAME, PLACES)
    pd.testing.assert_frame_equal(found, cleaned(filtered(cleaned(FRAME))))
    pd.testing.assert_frame_equal(merged.reset_index(drop=True), with_places(FRAME, PLACES))


@pytest.fixture
def older_pandas(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pd, "__version__", "2.3.3")
    lazy._frame_classes.cache_clear()
    yield
    monkeypatch.undo()
    lazy._frame_classes.cache_clear()


def test_threads_of_frames_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"x": np.zeros(5_000_000, "i1")})  # they share the interpreter lock
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(16), raising=False)
    assert " 4 threads" in explain(lambda df: df["x"] + 1, frame)
    assert " 16 threads" in explain(lambda x: x + 1, frame["x"].to_numpy())
    with options(threads=8, batch=1000):
        assert " 8 threads" in explain(lambda df: df["x"] + 1, frame)


@pytest.mark.parametrize(("version", "repeated"), [("3.0.6", 1), ("3.1.1", 3)])
def test_inner_merges_of_repeated_keys(
    version: str, repeated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    merge = pd.DataFrame.merge

    def counted(left: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(left))
        return merge(left, *args, **kwargs)

    def joined(frame: Any, places: Any) -> Any:
        return frame[["city"]].merge(places, on="city")

    monkeypatch.setattr(pd, "__version__", version)
    monkeypatch.setattr(pd.DataFrame, "merge", counted)
    for places, expected in ((PLACES, 3), (pd.concat([PLACES, PLACES]), repeated)):
        calls.clear()
        with options(batch=2, threads=1):
            found = pipeline(joined)(FRAME[:6], places)
        pd.testing.assert_frame_equal(found, merge(FRAME[:6][["city"]], places, on="city"))
        # The order may be another one before pandas 3.1; then it runs on all rows.
        assert len([rows for rows in calls if rows]) == expected


@pytest.mark.usefixtures("older_pandas")
def test_frames_before_pandas_3_run_plain() -> None:
    def largest_two(frame: Any) -> Any:
        assert type(frame) is pd.DataFrame
        return frame["count"].nlargest(2).tolist()

    with options(batch=2):
        assert pipeline(largest_two)(FRAME) == [9, 5]
    with split([FRAME]) as parts, pytest.raises(InvalidArgumentError, match="pandas 3 or later"):
        pipeline(largest_two)(parts)


NULLABLE = pd.DataFrame(
    {
        "k": [0, 1, 2] * 4,
        "n": pd.array([1, None, 2] * 4, dtype="Int64"),
        "s": pd.array(["a", None, "b"] * 4, dtype="string"),
    }
)


@pytest.mark.parametrize("column", ["n", "s", "k"])
def test_sizes_of_groups_have_the_dtype_of_pandas(column: str) -> None:
    def sizes(frame: Any) -> Any:
        return frame.groupby("k")[column].size()

    with options(batch=5):
        pd.testing.assert_series_equal(pipeline(sizes)(NULLABLE), sizes(NULLABLE))


@pytest.mark.parametrize("by", ["key", ["key", "kind"]])
@pytest.mark.parametrize("selection", ["i", "j", ["i", "x"], ["i", "j"], None])
def test_sums_of_short_integers_have_the_dtype_of_pandas(by: Any, selection: Any) -> None:
    """Those of pieces may fit no short integer where those of all rows do."""
    df = pd.DataFrame(
        {
            "key": [1.0, 1.0, 1.0, 1.0, np.nan, np.nan, 2.0],
            "kind": pd.Categorical([*"aaaaba", None], categories=[*"abc"]),
            "i": np.array([100, 100, -100, -100, 100, 100, 3], "i1"),
            "j": np.array([200, 200, 200, 200, 200, 200, 3], "i2") * 50,
            "x": np.array([200, 0, 0, 0, 200, 200, 3], "u1"),
        }
    )

    def body(df: Any) -> Any:
        groups = [df.groupby(by, observed=False), df.groupby(by, as_index=False, sort=False)]
        return [(each if selection is None else each[selection]).sum() for each in groups]

    df = df.drop(columns="kind") if by == "key" else df
    for given in (df, split([df[:2], df[2:6], df[6:]])):
        with options(batch=2):
            found = pipeline(body)(given)
        for one, other in zip(found, body(df), strict=True):
            pd.testing.assert_frame_equal(pd.DataFrame(one), pd.DataFrame(other))


def test_counts_of_a_list_of_one_column() -> None:
    def counts(frame: Any) -> Any:
        return frame.value_counts(["k"]), frame[["k"]].value_counts()

    with options(batch=5):
        for found, expected in zip(pipeline(counts)(NULLABLE), counts(NULLABLE), strict=True):
            pd.testing.assert_series_equal(found, expected)


def test_changes_of_a_frame_reach_the_array_that_it_shares() -> None:
    def change(frame: Any) -> None:
        for at in range(3):
            frame.iat[at, 0] = -1.0

    shared = np.zeros((10, 2))
    with options(batch=5):
        pipeline(change)(pd.DataFrame(shared, copy=False))
    np.testing.assert_array_equal(shared[:4, 0], [-1, -1, -1, 0])


@pytest.mark.parametrize("how", ["inner", "left"])
def test_merges_on_labels_keep_them(how: Any) -> None:
    left = FRAME[:6].set_index("city")
    bodies: list[Callable[[Any, Any], Any]] = [
        lambda one, other: one.merge(other.set_index("city"), on="city", how=how),
        lambda one, other: one.merge(other, on="city", how=how),
        lambda one, other: one.reset_index().merge(other.set_index("city"), on=["city"], how=how),
        lambda one, other: one.merge(other, on="city", how=how)[[other.columns[-1]]].count(),
    ]
    for body in bodies:
        expected = body(left.copy(), PLACES.copy())
        with options(batch=2, threads=1):
            found = pipeline(body)(left.copy(), PLACES.copy())
        if isinstance(expected, pd.Series):
            pd.testing.assert_series_equal(found, expected)
        else:
            pd.testing.assert_frame_equal(found, expected)
