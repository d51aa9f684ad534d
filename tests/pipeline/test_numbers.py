"""Numbers of frames are evaluated at once; what else the program holds is stored at most once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter.pipeline import Rows, explain, options, pipeline, splittable
from spliter.pipeline._options import MAX_PLAIN_ROWS
from tests.pipeline.test_user_programs import same

ROWS = 40
FRAME = pd.DataFrame(
    {
        "x": np.arange(ROWS) % 7 - 1.5,
        "n": np.arange(ROWS) % 5,
        **{f"c{number}": np.linspace(-1, number, ROWS) for number in range(4)},
    }
)


def many_of_a_filter(df: Any) -> Any:
    few = df[df["n"] > 1]
    return [few["x"].sum(), few["x"].mean(), few["c1"].max(), few["n"].min(), few["c2"].std()]


def test_rows_of_a_filter_are_copied_for_one_number_and_stored_for_the_second() -> None:
    with options(batch=10, threads=2):
        shown = explain(many_of_a_filter, FRAME)
        same(pipeline(many_of_a_filter)(FRAME), many_of_a_filter(FRAME))
    assert len(re.findall("gt ", shown)) == 2
    assert len(re.findall("Rows\\(\\), Rows\\(\\) -> unknown", shown)) == 1
    assert len(re.findall("getitem .*broadcast, broadcast -> broadcast", shown)) == 1


def test_one_number_stores_no_rows_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    plain = pd.DataFrame.__getitem__

    def getitem(self: Any, key: Any) -> Any:
        if len(self) and not isinstance(key, str | list):
            taken.append(len(self.columns))
        return plain(self, key)

    monkeypatch.setattr(pd.DataFrame, "__getitem__", getitem)

    def body(df: Any) -> Any:
        few = df[df["n"] > 1]
        return few["x"].sum()

    with options(batch=10):
        pipeline(body)(FRAME)
    assert taken == [1, 1, 1, 1]


def test_what_has_all_rows_is_computed_once() -> None:
    rows: list[int] = []

    def counted(x: Any) -> Any:
        rows.append(len(x))
        return x / 2

    halve = splittable(counted, x=Rows(), returns=Rows())

    def body(df: Any) -> Any:
        half = halve(df["x"])
        double = half * 4
        return half.sum(), double.mean(), double.max(), half

    with options(batch=10):
        same(pipeline(body)(FRAME), (0.5 * FRAME["x"].sum(), *pipeline_of_two(FRAME)))
    assert sum(rows) == ROWS + 1  # one, to know its dtype


def pipeline_of_two(df: Any) -> Any:
    half = df["x"] / 2
    return (half * 4).mean(), (half * 4).max(), half


def test_a_call_that_runs_again_warns_once() -> None:
    def body(df: Any) -> Any:
        few = df[df["n"] > 0]
        logs = np.log(few["x"])
        return logs.max(), logs.min(), logs, few

    with options(batch=10), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pipeline(body)(FRAME)
    assert [str(each.message) for each in seen] == ["invalid value encountered in log"]


def test_what_fails_for_a_number_warns_once() -> None:
    def body(x: Any) -> Any:
        ratio = x / 0
        try:
            with np.errstate(invalid="raise"):
                return np.sqrt(ratio - ratio).max()
        except FloatingPointError:
            return ratio

    with options(batch=10), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        pipeline(body)(np.arange(1.0, 51))
    assert [str(each.message) for each in seen] == ["divide by zero encountered in divide"]


def test_the_first_call_that_fails_raises() -> None:
    def body(df: Any) -> Any:
        with np.errstate(all="raise"):
            first = np.sqrt(df["x"])
            second = np.log(df["x"] * 1)
        return second.max(), first

    for run in (body, pipeline(body)):
        with options(batch=10), pytest.raises(FloatingPointError, match="in sqrt"):
            run(FRAME)


def with_more_columns(df: Any) -> Any:
    df = df.assign(z=df["x"] * 2)
    high = df[df["z"] > df["z"].mean()]
    df["w"] = df["z"] + df["n"]
    return df, high, df[["x", "w"]], df.drop(columns="x"), df.rename(columns={"x": "y"})


def test_results_share_columns_as_those_of_pandas() -> None:
    with options(batch=10):
        found, expected = pipeline(with_more_columns)(FRAME), with_more_columns(FRAME)
    same(found, expected)
    columns = FRAME["x"].to_numpy()
    assert np.shares_memory(expected[0]["x"].to_numpy(), columns)
    assert np.shares_memory(found[0]["x"].to_numpy(), columns)
    before = FRAME.copy()
    for each in found:
        each.iloc[:3] = 99.0
    same(FRAME, before)
    same(found[1].iloc[3:], expected[1].iloc[3:])


def test_calls_whose_results_share_columns_run_on_whole_frames() -> None:
    with options(batch=10):
        shown = explain(with_more_columns, FRAME)
    assert "take longer to collect from pieces" in shown
    assert len(re.findall("drop .*broadcast -> broadcast", shown)) == 1


def test_attributes_and_flags_are_kept() -> None:
    frame = FRAME.set_flags(allows_duplicate_labels=False)
    frame.attrs = {"unit": "m"}
    bodies: list[Callable[[Any], Any]] = [
        lambda df: df["x"] * 2,
        lambda df: df[["x", "n"]] * 2,
        lambda df: df.isna(),
    ]
    for body in bodies:
        with options(batch=10):
            found, expected = pipeline(body)(frame), body(frame)
        same(found, expected)
        assert found.attrs == expected.attrs == {"unit": "m"}
        assert found.flags == expected.flags


def test_columns_of_frames_that_exist_are_named_in_place() -> None:
    def body(df: Any) -> Any:
        df.columns.name = "quantity"
        table = df.pivot_table(index="n", columns="x", values="c1")
        table.columns.name = None
        return table

    ours, plain = FRAME.copy(), FRAME.copy()
    with options(batch=10):
        same(pipeline(body)(ours), body(plain))
    assert ours.columns.name == plain.columns.name == "quantity"


def test_arrays_are_unlocked_once_a_number_is_evaluated() -> None:
    def body(df: Any, weights: Any) -> Any:
        mean = (df["x"] * weights).mean()
        np.asarray(weights)[0] = 100.0
        return mean

    weights = np.ones(ROWS)
    with options(batch=10, pedantic=True):
        assert pipeline(body)(FRAME, weights) == pytest.approx(FRAME["x"].mean())
    assert weights[0] == 100.0


def test_numbers_in_a_loop_leave_no_calls_behind() -> None:
    waiting = []

    def body(df: Any) -> Any:
        for key in range(20):
            df[df["n"] == key % 5]["x"].mean()
            waiting.append(len(df._graph.root().pending))

    with options(batch=10):
        pipeline(body)(FRAME)
    assert max(waiting) < 6


def test_frames_of_some_rows_run_plain() -> None:
    seen = []

    @pipeline
    def body(df: Any) -> Any:
        seen.append(type(df))
        return df["x"] * 2

    rows = pd.DataFrame({"x": np.ones(MAX_PLAIN_ROWS + 1)})
    for frame in (rows[1:], rows[2:], rows):
        same(body(frame), frame["x"] * 2)
    assert [each is pd.DataFrame for each in seen] == [False, True, False]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(ROWS).astype("M8[s]"),
        np.arange(ROWS).astype("m8[ms]"),
        np.arange(ROWS) % 3 == 0,
        np.arange(ROWS).astype("c16"),
        pd.date_range("2024", periods=ROWS, tz="CET"),
        pd.array([1, None] * (ROWS // 2), dtype="Int64"),
        pd.array(["a", None] * (ROWS // 2), dtype="str"),
        pd.array(["a", "b"] * (ROWS // 2), dtype="category"),
        np.array([1, "x"] * (ROWS // 2), dtype=object),
    ],
    ids=lambda values: str(values.dtype),
)
@pytest.mark.parametrize("name", [None, "a", ("a", 1), 0])
def test_series_of_any_dtype_are_collected(values: Any, name: Any) -> None:
    series = pd.Series(values, index=np.arange(ROWS) % 9, name=name)

    def body(one: Any) -> Any:
        return one.where(one.notna()), one.isna(), one.abs() if one.dtype.kind in "mc" else one

    with options(batch=10, threads=2):
        same(pipeline(body)(series), body(series))
