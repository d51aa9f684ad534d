"""Programs of pandas over a Split give what they give for all rows, or a typed error."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import Groups, Rows, options, pipeline, splittable, unknown
from tests.pipeline.test_pandas import FRAME, PLACES, PROGRAMS, TEXTS, UNKNOWN, same

pytestmark = pytest.mark.filterwarnings("ignore:Series.dt")  # old names of properties


def cut(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame[start:stop] for start, stop in pairwise([0, 4, 4, 15, 16, len(frame)])]


def gathered(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(gathered, found))
    return pd.concat(found) if isinstance(found, list) else found


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - TEXTS.keys() - {"array"}))
def test_results_are_those_of_all_rows(name: str) -> None:
    expected = PROGRAMS[name](FRAME)
    found = gathered(pipeline(PROGRAMS[name])(split(cut(FRAME), partitions_per_location=2)))
    if "merge" in name:  # each block numbers its rows
        found, expected = found.reset_index(drop=True), expected.reset_index(drop=True)
    same(found, expected, index="equiv")


def test_annotated_functions_take_frames() -> None:
    shout = splittable(lambda texts: texts.str.upper() + "!", texts=Rows(), returns=Rows())
    sums = splittable(lambda df: df.groupby("key")["n"].sum(), df=Rows(), returns=Groups())

    def body(frame: Any) -> Any:
        return shout(frame["key"]).str.lower(), sums(frame)

    same(gathered(pipeline(body)(split(cut(FRAME)))), body(FRAME), index="equiv")


def test_columns_are_set_in_results_only() -> None:
    def body(frame: Any) -> Any:
        frame["z"] = frame["x"] * 2
        frame["z"] += frame["z"].mean()
        return frame[frame["flag"]], frame["z"].count()

    frame = FRAME.copy()
    found = gathered(pipeline(body)(split(cut(frame))))
    same(frame, FRAME)
    same(found, body(frame), index="equiv")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda df: df["missing"],
        lambda df: df[["x", "missing"]],
        lambda df: df.missing,
        lambda df: df["x"].missing(),
        lambda df: df["text"] - 1,
        lambda df: df.merge(PLACES, on="x"),
        lambda df: df.drop(columns="missing"),
        lambda df: df.groupby("key")["missing"].sum(),
    ],
)
def test_errors_are_those_of_pandas(wrong: Any) -> None:
    with pytest.raises((KeyError, AttributeError, TypeError)) as plain:
        wrong(FRAME)
    with pytest.raises(type(plain.value)) as found:
        pipeline(wrong)(split(cut(FRAME)))
    assert str(found.value) == str(plain.value)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_calls_are_refused(name: str) -> None:
    with pytest.raises(WholeArrayError, match=r"bytes.*instead of the Split"):
        pipeline(UNKNOWN[name])(split(cut(FRAME)))


def test_values_that_die_with_calls_that_are_not_needed() -> None:
    def body(frame: Any) -> Any:
        names = {"frame": frame, "kept": frame["x"]}  # which the call below refers to
        exec("name = frame['n'].name", names)
        return names["name"]

    assert pipeline(body)(split(cut(FRAME))) == "n"


@pytest.mark.parametrize("name", ["sum", "size", "mean"])
def test_groups_of_labels_are_refused(name: str) -> None:
    def body(frame: Any) -> Any:
        return getattr(frame.groupby(["key", "label"])["x"], name)()

    frame = FRAME.rename_axis("label")
    with pytest.raises(WholeArrayError):
        pipeline(body)(split(cut(frame)))
    same(pipeline(body)(frame), body(frame))


def test_sizes_of_frames() -> None:
    frame = pd.DataFrame({"a": range(9), "b": 1.5})

    def body(frame: Any) -> Any:
        none = frame[frame["a"] < 0]
        return frame.size, frame["a"].size, frame.empty, none.size, none["a"].empty

    with split([frame[:4], frame[4:]]) as parts:
        assert pipeline(body)(parts) == body(frame)
    with options(batch=2):
        assert pipeline(body)(frame) == body(frame)


def of_rows_set(frame: Any) -> Any:
    frame.loc[frame["a"] > 7, "b"] = 0.0
    return frame


def of_columns_set(frame: Any) -> Any:
    frame["c"] = frame["a"] * 2
    frame["a"] += 1
    return frame


def of_a_filter(frame: Any) -> Any:
    return frame[frame["a"] > 7]


@pytest.mark.parametrize("body", [of_rows_set, of_columns_set, of_a_filter])
@pytest.mark.parametrize("least", [0, 3, 400, 4000])
def test_frames_of_unknown_rows_change_or_are_refused(body: Any, least: int) -> None:
    frame = pd.DataFrame({"a": range(1000), "b": 1.5})
    chosen = splittable(lambda frame: frame[frame["a"] >= least], frame=Rows(), returns=unknown)
    expected = body(chosen(frame))
    with split([frame[:600], frame[600:600], frame[600:]]) as parts:
        try:
            found = pd.concat(pipeline(lambda frame: body(chosen(frame)))(parts))
        except WholeArrayError:  # nothing is known of rows that are none of the first hundred
            assert least > 100
        else:
            same(found, expected)
