"""What the user types is understood, or refused in words that show the choices."""

from __future__ import annotations

import pytest

from spliter_experiments.compare.data.columns import Wanted, choose_columns
from spliter_experiments.harness.errors import InputError, OptionError
from spliter_experiments.harness.options import parse_counts, parse_ways


def test_numbers_between_commas() -> None:
    assert parse_counts("--sweep", "48, 1,4,,4") == (48, 1, 4, 4)


@pytest.mark.parametrize("text", ["", "a", "1,x", "0,4", "-1", "1.5", ","])
def test_numbers_are_whole_and_from_one(text: str) -> None:
    with pytest.raises(OptionError, match="--sweep"):
        parse_counts("--sweep", text)


def test_ways_keep_their_order() -> None:
    assert parse_ways("b,a,b", ["a", "b", "c"]) == ("b", "a")
    assert parse_ways(None, ["a", "b"]) == ("a", "b")


@pytest.mark.parametrize("text", ["a,zzz", "", ","])
def test_unknown_ways_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match="the ways are a, b"):
        parse_ways(text, ["a", "b"])


NAMES = ["x", "label", "y", "3"]
NUMERIC = [True, False, True, True]


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [(None, (0, 2, 3)), ("y,x", (2, 0)), ("2, 0", (2, 0)), ("3", (3,)), ("x,2", (0, 2))],
)
def test_columns_by_name_and_by_number(wanted: str | None, positions: tuple[int, ...]) -> None:
    columns = choose_columns(NAMES, NUMERIC, Wanted(wanted), "file")
    assert columns.positions == positions
    assert columns.names == tuple(NAMES[position] for position in positions)
    assert columns.numeric == 3


def test_no_more_columns_than_wanted_by_default() -> None:
    names = [f"c{number}" for number in range(9)]
    columns = choose_columns(names, [True] * 9, Wanted(most=5), "file")
    assert columns.names == ("c0", "c1", "c2", "c3", "c4")
    assert columns.numeric == 9


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ("label", "not numeric in file: label; the numeric columns are x, y, 3"),
        ("nope", "no column 'nope'"),
        ("7", "no column '7'"),
        ("-1", "no column '-1'"),
        ("x,0", "twice"),
        (",", "names no column"),
    ],
)
def test_columns_that_cannot_be_used(wanted: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        choose_columns(NAMES, NUMERIC, Wanted(wanted), "file")


def test_no_numeric_column_at_all() -> None:
    with pytest.raises(InputError, match="no numeric column; its columns are a, b"):
        choose_columns(["a", "b"], [False, False], Wanted(), "file")


def test_column_of_the_labels_is_left_out_and_cannot_be_chosen() -> None:
    columns = choose_columns(NAMES, NUMERIC, Wanted(without="y"), "file")
    assert columns.names == ("x", "3")
    assert columns.numeric == 2
    with pytest.raises(InputError, match="names y, which holds the labels"):
        choose_columns(NAMES, NUMERIC, Wanted("x,2", without="y"), "file")
    with pytest.raises(InputError, match="no column 'nope'"):
        choose_columns(NAMES, NUMERIC, Wanted(without="nope"), "file")
