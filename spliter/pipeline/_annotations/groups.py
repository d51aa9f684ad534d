"""Aggregate rows of equal keys, per piece and then over all; imports nothing of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter.backend.contents import concatenate
from spliter.pipeline._annotations.dtypes import dtypes_of, has_double_mean, is_number


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Compute one row per group of a frame, also from the rows of its pieces.

    Parameters
    ----------
    by : str or list of str
        Columns of the keys.
    selection : str, list of str, or None
        Columns to aggregate; ``None`` for all others.
    name : str
        Method of pandas' group-by.
    options : mapping of str to bool
        Of ``groupby``: ``as_index``, ``sort``, ``observed`` and ``dropna``, if given.
    dtypes : mapping of str to dtype
        Of the columns of the frame; empty if values decide on them.
    """

    by: Any
    selection: Any
    name: str
    options: Mapping[str, bool]
    dtypes: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        """Name of the method."""
        return f"groupby.{self.name}"

    @property
    def keys(self) -> list[str]:
        """Columns of the keys."""
        return [self.by] if isinstance(self.by, str) else self.by

    @property
    def selected(self) -> list[str]:
        """Columns that are selected by name."""
        return [self.selection] if isinstance(self.selection, str) else self.selection or []

    def columns(self, frame: Any) -> list[str]:
        """Return the columns to aggregate."""
        if self.name == "size":
            return []
        if self.selection is None:
            return [each for each in frame.columns if each not in self.keys]
        return self.selected

    def reads(self, frame: Any) -> list[str]:
        """Return the columns that pandas must find."""
        return [*self.keys, *self.columns(frame), *self.selected]

    def __call__(self, frame: Any) -> Any:
        """Aggregate, as pandas does."""
        grouped = frame.groupby(self.by, **self.options)
        return getattr(grouped if self.selection is None else grouped[self.selection], self.name)()

    def partial(self, frame: Any) -> Any:
        """Return a frame with a row per group, in any order, and the keys as columns."""
        columns, name = self.columns(frame), self.name
        if name == "mean":  # one method takes less time than two, also of columns twice as many
            flags = {each + COUNT: frame[each].notna() for each in columns}
            frame = as_doubles(frame, columns).assign(**flags)
            columns, name = [*columns, *flags], "sum"
        grouped = self._as_columns(frame)
        found = grouped.size() if name == "size" else getattr(grouped[columns], name)()
        # Of missing objects alone, pandas makes keys of floats.
        return found.astype({each: frame[each].dtype for each in self.keys})

    def merge(self, one: Any, other: Any) -> Any:
        """Concatenate rows, and combine those of equal keys if they are many."""
        both = concatenate([one, other])
        if len(both) <= MAX_UNCOMBINED:
            return both
        found = self._combined(self._as_columns(both))
        return found.astype({each: both[each].dtype for each in self.keys})

    def _combined(self, grouped: Any) -> Any:
        """Combine rows of pieces; a sum of infinities of both signs is NaN, and not missing."""
        if self.name in ("min", "max"):
            return getattr(grouped, self.name)()
        return grouped.sum(skipna=False)

    def _as_columns(self, frame: Any) -> Any:
        """Group for rows that are combined later: in order of appearance, without empty groups.

        Groups that were not observed have keys of rows whose other keys are missing.
        """
        options = {**self.options, "as_index": False, "sort": False, "observed": True}
        if not self.options.get("observed", True):
            options["dropna"] = False
        return frame.groupby(self.by, **options)

    def finish(self, partial: Any) -> Any:
        """Combine and sort the rows, and make the result of pandas."""
        grouped = partial.groupby(self.by, **self.options)
        if self.name == "size":
            sizes = self._combined(grouped["size"])
            name = self.selection if isinstance(self.selection, str) else None
            return sizes.rename(name) if sizes.ndim == 1 else sizes
        if self.name != "mean":
            found = self._combined(grouped if self.selection is None else grouped[self.selection])
            return self._narrowed(found) if self.name == "sum" and self.dtypes else found
        counts = [each for each in partial.columns if each.endswith(COUNT)]
        columns = self.columns(partial.drop(columns=counts))
        result = self._combined(grouped[self.selection or columns])
        counted = grouped[counts].sum()[counts].to_numpy()
        if result.ndim == 1:
            return result / counted[:, 0]
        result[columns] = result[columns] / counted
        return result

    def _narrowed(self, sums: Any) -> Any:
        """Give sums of short integers their dtype if all fit, as pandas does; pieces need not."""
        if sums.ndim == 1:
            return _cast_if_equal(sums, self.dtypes[self.selection])
        columns = [each for each in sums.columns if each not in self.keys]
        for dtype in {self.dtypes[each] for each in columns}:
            alike = [each for each in columns if self.dtypes[each] == dtype]
            sums[alike] = _cast_if_equal(sums[alike], dtype)
        return sums

    def is_for(self, frame: Any) -> bool:
        """Return whether aggregates of pieces give those of the frame."""
        columns = self.columns(frame)
        dtypes = [frame[each].dtype for each in columns]
        return (
            frame.columns.is_unique
            and not {*self.keys} & {*frame.index.names}  # levels, which are no columns
            and (self.name != "size" or "size" not in self.keys)
            and not self._has_nullable_sizes(frame)
            and all(isinstance(each, str) for each in frame.columns)
            and len({*self.keys, *columns}) == len(self.keys) + len(columns)
            and (self.name == "count" or all(map(is_number, dtypes)))
            and (self.name != "mean" or all(map(has_double_mean, dtypes)))
        )

    def _has_nullable_sizes(self, frame: Any) -> bool:
        """Return whether pandas gives sizes a dtype like that of the column, which has NA."""
        dtype = frame[self.selection].dtype if isinstance(self.selection, str) else None
        return self.name == "size" and str(getattr(dtype, "na_value", "")) == "<NA>"


AGGREGATES: Final = ("sum", "min", "max", "count", "mean", "size")
"""Methods of a group-by that are computed from those of pieces."""

GROUP_OPTIONS: Final = {"as_index", "sort", "observed", "dropna"}

COUNT: Final = "\0count"
"""Suffix of the columns with the number of values; NUL keeps it apart from names of users."""


MAX_UNCOMBINED: Final = 2**15
"""Most rows that are combined at the end only: a group-by of so many takes some 3 ms."""


def _cast_if_equal(sums: Any, dtype: Any) -> Any:
    """Return sums of a dtype of integers, if that changes none; others as they are."""
    if dtype.kind not in "iu" or {*dtypes_of(sums)} == {dtype}:
        return sums
    cast = sums.astype(dtype)
    return cast if (cast == sums).all(axis=None) else sums


def as_doubles(frame: Any, columns: list[str]) -> Any:
    """Convert columns of integers, as pandas does for a mean: their sum could overflow."""
    integers = [each for each in columns if frame[each].dtype != np.float64]
    return frame.astype(dict.fromkeys(integers, np.float64)) if integers else frame


def count_values(series: Any) -> Any:
    """Return the number of rows with each value, in any order."""
    return series.value_counts(sort=False)


def sum_counts(one: Any, other: Any) -> Any:
    """Add the counts of equal values, in the order in which the values appear."""
    return concatenate([one, other]).groupby(level=0, sort=False).sum()


def most_frequent_first(counts: Any) -> Any:
    """Sort counts as ``value_counts`` does."""
    return counts.sort_values(ascending=False, kind="stable")
