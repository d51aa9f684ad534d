"""What the histogram must do on every engine; each engine's test module subclasses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from spliter import AlignmentError, InvalidArgumentError, Partition, split
from spliter_apps import histogramdd
from tests.engine_collections import EngineCollections, record_closed
from tests.programs import listing5

Array = npt.NDArray[Any]

GRIDS = [[90], [30, 30, 30], [1, 50, 0, 7, 32], [0, 90, 0], [1] * 20 + [70]]
"""Rows of the blocks that 90 rows are cut into."""


def points(dtype: Any = np.float64) -> Array:
    """90 points of three columns, on a lattice so that many are on edges."""
    return np.random.default_rng(11).integers(0, 9, (90, 3)).astype(dtype)


def assert_same(ours: tuple[Array, list[Array]], theirs: Any, exact: bool = True) -> None:
    """Compare with what NumPy returned."""
    if exact:
        np.testing.assert_array_equal(ours[0], theirs[0])
    else:
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)
    assert ours[0].dtype == theirs[0].dtype
    assert type(ours[1]) is type(theirs[1])
    for mine, his in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(mine, his)
        assert mine.dtype == his.dtype


class HistogramTests(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("rows", GRIDS, ids=str)
    @pytest.mark.parametrize("density", [False, True])
    def test_any_grid_of_rows(self, rows: list[int], density: bool) -> None:
        sample = points()
        found = histogramdd(self.collection(sample, rows), bins=(2, 4, 3), density=density)
        assert_same(found, np.histogramdd(sample, bins=(2, 4, 3), density=density))

    @pytest.mark.parametrize(
        ("bins", "range_"),
        [
            (10, None),
            (4, [(1, 5), (0, 8), (2, 2)]),
            (4, [(1, 5), None, (-3, 2.5)]),
            ([[0, 1, 5], 4, [2.5, 3.0, 3.0, np.inf]], None),
            ([[0, 1, 5], [1, 2, 8], np.arange(3.0)], None),
        ],
    )
    def test_bins_and_ranges(self, bins: Any, range_: Any) -> None:
        sample = points()
        x = self.collection(sample, [30, 20, 40])
        assert_same(histogramdd(x, bins, range_), np.histogramdd(sample, bins, range_))

    def test_defaults_are_those_of_numpy(self) -> None:
        sample = points()[:, :2]
        assert_same(histogramdd(self.collection(sample, [50, 40])), np.histogramdd(sample))

    @pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
    def test_dtypes(self, dtype: Any) -> None:
        sample = points(dtype)
        x = self.collection(sample, [40, 50])
        assert_same(histogramdd(x, bins=3), np.histogramdd(sample, bins=3))

    def test_no_rows(self) -> None:
        x = self.collection(np.empty((0, 2)), [0])
        assert_same(histogramdd(x, bins=3), np.histogramdd(np.empty((0, 2)), bins=3))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_values_that_are_no_numbers_need_a_range(self, bad: float) -> None:
        sample = points()
        sample[70, 1] = bad
        x = self.collection(sample, [30, 30, 30])
        with pytest.raises(InvalidArgumentError, match=r"autodetected range .* column 1"):
            histogramdd(x, 3)
        limits: Any = [None, (0, 8), None]
        assert_same(histogramdd(x, 3, limits), np.histogramdd(sample, 3, limits))

    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
    @pytest.mark.parametrize("density", [False, True])
    def test_weights(self, dtype: Any, density: bool) -> None:
        sample = points()
        weights = np.random.default_rng(12).integers(-5, 50, 90).astype(dtype)
        rows = [30, 0, 20, 40]
        found = histogramdd(
            self.collection(sample, rows),
            bins=3,
            density=density,
            weights=self.collection(weights, rows),
        )
        theirs = np.histogramdd(sample, bins=3, density=density, weights=weights)
        assert_same(found, theirs, exact=False)

    def test_weights_with_a_range_for_some_columns(self) -> None:
        sample, weights = points(), np.arange(90.0)
        rows: list[int] = [45, 45]
        limits: Any = [None, (1, 4), None]
        found = histogramdd(
            self.collection(sample, rows), 3, limits, weights=self.collection(weights, rows)
        )
        assert_same(found, np.histogramdd(sample, 3, limits, weights=weights))

    @pytest.mark.parametrize("rows", [[30, 30, 30], [40, 50], [50, 39]])
    def test_weights_blocked_otherwise(self, rows: list[int]) -> None:
        weights = self.collection(np.ones(sum(rows)), rows)
        with pytest.raises(AlignmentError):
            histogramdd(self.collection(points(), [50, 40]), weights=weights)

    @pytest.mark.parametrize("form", [list, pd.Series, np.asarray])
    def test_weights_in_memory_next_to_blocks(self, form: Any) -> None:
        sample, weights = points(), np.arange(90.0)
        found = histogramdd(self.collection(sample, [50, 0, 40]), 3, weights=form(weights))
        assert_same(found, np.histogramdd(sample, 3, weights=weights))

    @pytest.mark.parametrize(("unit", "durations"), [("D", False), ("ns", False), ("h", True)])
    def test_dates(self, unit: str, durations: bool) -> None:
        days = np.random.default_rng(4).integers(0, 100, 90)
        kind = "timedelta64" if durations else "datetime64"
        when = days.astype(f"{kind}[D]").astype(f"{kind}[{unit}]")
        when[7] = "NaT"
        when[8] = np.array(90, f"{kind}[D]")  # on the last edge
        edges = np.array([0, 31, 60, 90], dtype=f"{kind}[D]")
        rows = [50, 0, 40]
        found = histogramdd(self.collection(when, rows), [edges])
        assert_same(found, np.histogramdd(when[:, None], [edges]))
        values = points()[:, 0]
        both = (self.collection(when, rows), self.collection(values, rows))
        found = histogramdd(both, [edges, 4], weights=values)
        # NumPy has no array of dates and numbers; the bins of dates as numbers are the same.
        numbers = np.where(np.isnat(when), -1, when.astype(f"{kind}[D]").astype(int))
        bins: list[Any] = [edges.astype(int), 4]
        expected = np.histogramdd(np.column_stack([numbers, values]), bins, weights=values)
        np.testing.assert_allclose(found[0], expected[0])
        np.testing.assert_array_equal(found[1][1], expected[1][1])

    def test_weights_in_memory_of_another_length(self) -> None:
        with pytest.raises(InvalidArgumentError, match="weights has 91 entries"):
            histogramdd(self.collection(points(), [50, 40]), weights=np.ones(91))

    @pytest.mark.parametrize("weighted", [False, True])
    def test_a_tuple_is_columns(self, weighted: bool) -> None:
        sample, rows = points(), [30, 20, 40]
        columns = tuple(self.collection(column, rows) for column in sample.T)
        ones = np.full(90, 2.0)
        weights = self.collection(ones, rows) if weighted else None
        found = histogramdd(columns, bins=4, weights=weights)
        assert_same(found, np.histogramdd(sample, 4, weights=ones if weighted else None))

    def test_columns_blocked_otherwise(self) -> None:
        column = points()[:, 0]
        with pytest.raises(AlignmentError):
            histogramdd((self.collection(column, [50, 40]), self.collection(column, [40, 50])))

    def test_dataframe(self) -> None:
        frame = pd.DataFrame(points(), columns=["a", "b", "c"])
        x = self.frames(frame, [30, 60])
        assert_same(histogramdd(x, bins=4), np.histogramdd(frame.to_numpy(), bins=4))

    def test_columns_and_weights_of_a_dataframe(self) -> None:
        frame = pd.DataFrame(points(), columns=["a", "b", "c"])
        frame["b"] = frame["b"].astype("Int64")
        x = tuple(self.frames(frame[name], [30, 60]) for name in "ab")
        found = histogramdd(x, bins=4, weights=self.frames(frame["c"], [30, 60]))
        values = points()
        assert_same(found, np.histogramdd(values[:, :2], bins=4, weights=values[:, 2]))

    @pytest.mark.parametrize("bins", [3, [[0, 1], [0, 1]]])
    def test_dataframe_with_something_else_than_numbers(self, bins: Any) -> None:
        frame = pd.DataFrame({"a": np.arange(9.0), "name": list("abcdefghi")})
        with pytest.raises(InvalidArgumentError, match="column 'name' must be real numbers"):
            histogramdd(self.frames(frame, [4, 5]), bins)

    def test_a_split_is_used_again(self) -> None:
        sample = points()
        with split(self.collection(sample, [30, 20, 40])) as parts:
            for bins in (2, 5):
                assert_same(histogramdd(parts, bins), np.histogramdd(sample, bins))
            assert len(parts[:]) == len(parts)  # still open
            with pytest.raises(
                InvalidArgumentError, match="weights cannot be passed together with a Split"
            ):
                histogramdd(parts, weights=self.collection(np.ones(90), [30, 20, 40]))

    @pytest.mark.parametrize("bins", [(2, 2), [[0, 1]]])
    def test_bins_for_another_number_of_columns(self, bins: Any) -> None:
        x = self.collection(points(), [50, 40])
        with pytest.raises(InvalidArgumentError, match="columns"):
            histogramdd(x, bins)
        with pytest.raises(InvalidArgumentError, match="columns"):
            histogramdd(x, 3, [(0, 1)] * len(bins))

    def test_one_task_per_partition(self, monkeypatch: pytest.MonkeyPatch) -> None:
        submitted: list[Partition] = []

        with split(self.collection(points(), [3] * 30), partitions_per_location=1) as parts:
            executor: Any = type(parts[0].executor)
            submit = executor.submit

            def counting(self: Any, fn: Any, args: Any, *more: Any, **options: Any) -> Any:
                submitted.extend(arg for arg in args if isinstance(arg, Partition))
                return submit(self, fn, args, *more, **options)

            monkeypatch.setattr(executor, "submit", counting)
            histogramdd(parts, 3, [(0, 8)] * 3)
            assert len(submitted) == len(parts)
            histogramdd(parts, 3)  # finds the range first
            assert len(submitted) == 3 * len(parts)

    def test_the_split_made_inside_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed = record_closed(monkeypatch)
        histogramdd(self.collection(points(), [90]), 3)
        with pytest.raises(InvalidArgumentError):
            histogramdd(self.collection(points(), [90]), -1)
        assert len(closed) == 2

    @pytest.mark.parametrize("rows", GRIDS, ids=str)
    def test_listing_5(self, rows: list[int]) -> None:
        sample, limits = points(), [(0.0, 8.0)] * 3
        counts = listing5.histogram(self.collection(sample, rows), 4, limits)
        np.testing.assert_array_equal(counts, np.histogramdd(sample, 4, limits)[0])
