"""Labels, generated blobs and rows held out: what apps need beside points."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.datasets import (
    InputChoice,
    open_labelled,
    open_points,
    read_held_out,
)
from spliter_experiments.compare.data.sources import (
    Dataset,
    Floats,
    GeneratedBlobs,
    GeneratedPoints,
    Labels,
    Points,
    RowNumbers,
    Shuffled,
    hold_out,
)
from spliter_experiments.harness.errors import InputError, OptionError

Labelled = tuple[Points, Points, tuple[float, ...]]


class Numbered:
    """Points whose value is their row."""

    origin = "numbers"
    columns = Columns.numbered(1)

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def read(self, start: int, stop: int) -> Floats:
        return np.arange(start, stop, dtype=np.float64)[:, np.newaxis]


@given(
    rows=st.integers(2, 60), count=st.integers(1, 59), cuts=st.lists(st.integers(0, 60), max_size=4)
)
def test_each_row_is_held_out_or_left_however_they_are_cut(
    rows: int, count: int, cuts: list[int]
) -> None:
    count = min(count, rows - 1)
    for part in hold_out(Numbered(rows), count):
        bounds = [0, *sorted(min(cut, part.rows) for cut in cuts), part.rows]
        pieces = [part.read(a, b) for a, b in itertools.pairwise(bounds)]
        np.testing.assert_array_equal(np.concatenate(pieces), part.read(0, part.rows))
    rest, held = hold_out(Numbered(rows), count)
    assert (rest.rows, held.rows) == (rows - count, count)
    both = np.concatenate([rest.read(0, rest.rows), held.read(0, held.rows)])
    np.testing.assert_array_equal(np.sort(both[:, 0]), np.arange(rows))


def test_last_rows_are_held_out() -> None:
    _, held = hold_out(Numbered(100), 5)
    np.testing.assert_array_equal(held.read(0, 5)[:, 0], [95, 96, 97, 98, 99])


@pytest.mark.parametrize("count", [0, 3, 4])
def test_rows_that_cannot_be_held_out(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} of 3 rows"):
        hold_out(Numbered(3), count)


def test_gaps_in_rows_held_out() -> None:
    class Gaps(Numbered):
        def read(self, start: int, stop: int) -> Floats:
            return np.full((stop - start, 1), np.nan)

    with pytest.raises(InputError, match="rows held out"):
        read_held_out(Dataset(Numbered(3), held_out=Gaps(2)))


def test_blobs_do_not_depend_on_the_cuts_and_have_classes() -> None:
    blobs = pickle.loads(pickle.dumps(GeneratedBlobs(rows=4000, dims=5, seed=2)))
    points, classes = blobs.read(0, 4000), blobs.classes().read(0, 4000)
    pieces = [blobs.read(start, min(start + 700, 4000)) for start in range(0, 4000, 700)]
    np.testing.assert_array_equal(np.concatenate(pieces), points)
    np.testing.assert_array_equal(blobs.classes().read(100, 200), classes[100:200])
    assert np.isfinite(points).all()
    assert set(classes[:, 0]) == {0.0, 1.0}
    # Neighbours are mostly of one class: the classes can be learnt.
    apart = ((points[:500, np.newaxis] - points[np.newaxis, 500:]) ** 2).sum(axis=2)
    nearest = classes[500:][apart.argmin(axis=1), 0]
    assert 0.6 < np.mean(nearest == classes[:500, 0]) < 1


def labelled(
    source: str | None,
    label: str | None = None,
    *,
    columns: str | None = None,
) -> Labelled:
    return open_labelled(InputChoice(source, columns, rows=10, dims=2, seed=0), label, 5)


def test_generated_points_have_classes() -> None:
    points, column, classes = labelled(None)
    assert (points.rows, column.rows) == (15, 15)
    assert classes == (0.0, 1.0)


def table(folder: Path, name: str) -> str:
    frame = pd.DataFrame(
        {"x": np.arange(6.0), "kind": [7, 3, 7, 3, 7, 7], "text": list("abcdef"), "y": 1.5}
    )
    frame.to_parquet(folder / name)
    return str(folder / name)


def test_column_of_a_file_holds_the_labels_of_its_rows(tmp_path: Path) -> None:
    points, column, classes = labelled(table(tmp_path, "table.parquet"), "kind")
    assert points.columns.names == ("x", "y")
    assert classes == (3.0, 7.0)
    labels = Labels(column, classes)
    assert (labels.rows, points.rows) == (6, 6)
    kinds = np.array([1, 0, 1, 0, 1, 1])
    rows = points.read(0, 6)[:, 0].astype(int)
    np.testing.assert_array_equal(np.sort(rows), [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(labels.read(0, 6), kinds[rows])
    np.testing.assert_array_equal(labels.read(3, 5), kinds[rows[3:5]])
    assert labels.read(0, 6).dtype == np.int64


def test_rows_are_shuffled_alike_for_a_seed_and_otherwise_for_another() -> None:
    mixed = pickle.loads(pickle.dumps(Shuffled(GeneratedPoints(50, 1, 0), seed=3)))
    whole = mixed.read(0, 50)
    pieces = [mixed.read(start, start + 10) for start in range(0, 50, 10)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(mixed.points.read(0, 50), axis=0))
    assert not np.array_equal(whole, mixed.points.read(0, 50))
    assert not np.array_equal(whole, Shuffled(GeneratedPoints(50, 1, 0), seed=4).read(0, 50))


@pytest.mark.parametrize(
    ("label", "columns", "complaint"),
    [
        ("none", None, "no column 'none'"),
        ("x,kind", None, "no column 'x,kind'"),
        ("kind", "x,kind", "kind, which holds the labels"),
        ("y", None, "y, the label, has 1 different values"),
    ],
)
def test_labels_that_cannot_be_used(
    label: str, columns: str | None, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=complaint):
        labelled(table(tmp_path, "table.parquet"), label, columns=columns)


def test_measurements_are_no_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "many.npy", np.random.default_rng(0).random((200, 2)))
    with pytest.raises(InputError, match=r"200 different values.*100 at most"):
        labelled(str(tmp_path / "many.npy"), "1")
    np.save(tmp_path / "gap.npy", np.array([[1, 2], [1, np.nan]]))
    with pytest.raises(InputError, match="missing or infinite values in 1, the label"):
        labelled(str(tmp_path / "gap.npy"), "1")


def test_options_of_labels(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--label NAME has to say"):
        labelled(table(tmp_path, "table.parquet"))
    with pytest.raises(OptionError, match="--label goes with --input"):
        labelled(None, "x")


def test_points_to_hold_out_are_generated_as_well() -> None:
    points = open_points(InputChoice(None, None, rows=10, dims=2, seed=3), extra=4)
    assert points == GeneratedPoints(14, 2, 3)


def test_row_numbers() -> None:
    numbers = RowNumbers(7)
    np.testing.assert_array_equal(numbers.read(2, 5), [2, 3, 4])
    assert numbers.rows == 7
    assert numbers.read(0, 7).dtype == np.int64
