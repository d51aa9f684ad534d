"""Every kind of input yields the same rows however they are cut, or a typed error."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints, Points
from spliter_experiments.harness.errors import InputError, OptionError

ROWS = 23
NAMES = ["a", "b", "c"]
Writer = Callable[[Floats, Path], str]


def table() -> Floats:
    """Values that encode their row and column."""
    return np.arange(ROWS * 3, dtype=np.float64).reshape(ROWS, 3)


def write_npy(values: Floats, folder: Path) -> str:
    np.save(folder / "points.npy", np.asfortranarray(values))
    return str(folder / "points.npy")


def write_zarr(values: Floats, folder: Path) -> str:
    store = zarr.create_array(folder / "points.zarr", shape=values.shape, chunks=(5, 2), dtype="f8")
    store[:] = values
    return str(folder / "points.zarr")


def write_parquet(values: Floats, folder: Path) -> str:
    frame = pd.DataFrame(values, columns=NAMES)
    frame.to_parquet(folder / "points.parquet", row_group_size=4)
    return str(folder / "points.parquet")


def write_parquet_folder(values: Floats, folder: Path) -> str:
    parts = folder / "parts.parquet"
    parts.mkdir()
    for number, piece in enumerate(np.array_split(values, 3)):
        pd.DataFrame(piece, columns=NAMES).to_parquet(parts / f"part.{number}.parquet")
    return str(parts)


WRITERS: list[Writer] = [
    write_npy,
    write_zarr,
    write_parquet,
    write_parquet_folder,
]


def check_cuts(points: Points, expected: Floats) -> None:
    """Read by rows of different sizes, from a pickled copy, as a worker does."""
    copy = pickle.loads(pickle.dumps(points))
    for size in (1, 4, 7, points.rows):
        starts = range(0, points.rows, size)
        pieces = [copy.read(start, min(start + size, points.rows)) for start in starts]
        assert all(type(piece) is np.ndarray for piece in pieces)
        assert all(piece.dtype == np.float64 and piece.flags.c_contiguous for piece in pieces)
        np.testing.assert_array_equal(np.concatenate(pieces), expected)


def opened(source: str | None, *, columns: str | None = None) -> Points:
    return open_points(InputChoice(source, columns, rows=10, dims=2, seed=0), most=5)


@pytest.mark.parametrize("write", WRITERS)
def test_files_are_read_by_rows(write: Writer, tmp_path: Path) -> None:
    points = opened(write(table(), tmp_path))
    assert points.rows == ROWS
    assert len(points.columns) == 3
    check_cuts(points, table())


@pytest.mark.parametrize("write", WRITERS)
def test_columns_are_chosen_and_ordered(write: Writer, tmp_path: Path) -> None:
    points = opened(write(table(), tmp_path), columns="2,0")
    check_cuts(points, table()[:, [2, 0]])


@pytest.mark.parametrize("write", WRITERS)
def test_input_without_rows(write: Writer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        opened(write(table()[:0], tmp_path))


def test_named_columns_of_parquet(tmp_path: Path) -> None:
    points = opened(write_parquet(table(), tmp_path), columns="c,a")
    assert points.columns.names == ("c", "a")
    np.testing.assert_array_equal(points.read(2, 4), table()[2:4, [2, 0]])


def test_missing_values_and_text_in_tables(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "text": ["x", "y", "z"],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
        }
    )
    frame.to_parquet(tmp_path / "mixed.parquet")
    points = opened(str(tmp_path / "mixed.parquet"))
    assert points.columns.names == ("whole", "flag")
    np.testing.assert_array_equal(points.read(0, 3), [[1, 1], [np.nan, 0], [3, 1]])
    with pytest.raises(InputError, match=r"not numeric in .*: text"):
        opened(str(tmp_path / "mixed.parquet"), columns="text")


def test_vector_is_one_column(tmp_path: Path) -> None:
    np.save(tmp_path / "vector.npy", np.arange(5, dtype=np.int16))
    points = opened(str(tmp_path / "vector.npy"))
    check_cuts(points, np.arange(5.0)[:, np.newaxis])


def bad_npy(folder: Path) -> str:
    (folder / "bad.npy").write_bytes(b"nothing of the kind")
    return str(folder / "bad.npy")


def empty_npy(folder: Path) -> str:
    (folder / "empty.npy").touch()
    return str(folder / "empty.npy")


def text_npy(folder: Path) -> str:
    np.save(folder / "text.npy", np.array([["a", "b"]]))
    return str(folder / "text.npy")


def cube_npy(folder: Path) -> str:
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    return str(folder / "cube.npy")


def bad_zarr(folder: Path) -> str:
    (folder / "bad.zarr").mkdir()
    return str(folder / "bad.zarr")


def group_zarr(folder: Path) -> str:
    zarr.create_group(folder / "group.zarr")
    return str(folder / "group.zarr")


def bad_parquet(folder: Path) -> str:
    (folder / "bad.parquet").write_bytes(b"nothing of the kind")
    return str(folder / "bad.parquet")


def empty_folder_parquet(folder: Path) -> str:
    (folder / "none.parquet").mkdir()
    return str(folder / "none.parquet")


def mixed_folder_parquet(folder: Path) -> str:
    parts = folder / "mixed.parquet"
    parts.mkdir()
    pd.DataFrame({"a": [1]}).to_parquet(parts / "0.parquet")
    pd.DataFrame({"b": [1]}).to_parquet(parts / "1.parquet")
    return str(parts)


def archive_named_npy(folder: Path) -> str:
    np.savez(folder / "archive.npz", a=np.zeros(3), b=np.zeros(3))
    return str((folder / "archive.npz").rename(folder / "archive.npy"))


def unknown_suffix(folder: Path) -> str:
    (folder / "points.xyz").touch()
    return str(folder / "points.xyz")


def pipe_named_npy(folder: Path) -> str:
    os.mkfifo(folder / "pipe.npy")
    return str(folder / "pipe.npy")


def test_a_folder_of_parquet_files_needs_no_suffix(tmp_path: Path) -> None:
    """Columns are matched by name, whatever order each file has them in."""
    folder = tmp_path / "measurements"
    folder.mkdir()
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(folder / "0.parquet")
    pd.DataFrame({"b": [7], "a": [5]}).to_parquet(folder / "1.parquet")
    points = opened(str(folder))
    check_cuts(points, np.array([[1.0, 3], [2, 4], [5, 7]]))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (archive_named_npy, "archive of arrays"),
        (pipe_named_npy, "is a pipe or a device"),
        (bad_npy, "cannot be read as a .npy file"),
        (empty_npy, "cannot be read as a .npy file"),
        (text_npy, "not numbers"),
        (cube_npy, r"shape \(2, 2, 2\)"),
        (bad_zarr, "cannot be read as one Zarr array"),
        (group_zarr, "cannot be read as one Zarr array"),
        (bad_parquet, "cannot be read as Parquet"),
        (empty_folder_parquet, "holds no .parquet file"),
        (mixed_folder_parquet, r"do not have the same columns: 0.parquet has a; 1.parquet has b"),
        (lambda folder: str(folder / "none.npy"), "there is no such file"),
        (lambda folder: str(folder / "none"), "there is no such file"),
        (lambda folder: str(folder / "none.xyz"), "there is no such file"),
        (unknown_suffix, "do not know how to read .xyz"),
        (str, "holds no .parquet file"),
    ],
)
def test_unreadable_input(make: Callable[[Path], str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=complaint):
        opened(make(tmp_path))


@given(
    rows=st.integers(1, 300),
    dims=st.integers(1, 7),
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_generated_rows_do_not_depend_on_the_cuts(
    rows: int, dims: int, seed: int, cuts: list[int]
) -> None:
    points = GeneratedPoints(rows, dims, seed)
    bounds = sorted({0, rows, *(cut for cut in cuts if cut < rows)})
    pieces = [points.read(start, stop) for start, stop in itertools.pairwise(bounds)]
    whole = points.read(0, rows)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert ((whole >= 0) & (whole < 1)).all()


def test_generated_points_depend_on_the_seed_and_are_spread() -> None:
    first, second = (GeneratedPoints(10_000, 2, seed).read(0, 10_000) for seed in (1, 2))
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) == first.size


def test_options_that_need_an_input() -> None:
    with pytest.raises(OptionError, match="goes with --input"):
        opened(None, columns="a")
