"""Lazy arrays, and numbers of them, given to frames that the body makes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter.pipeline import Rows, broadcast, mut, options, pipeline, splittable
from tests.pipeline.test_pandas import same

ROWS = 12
RNG = np.random.default_rng(3)
TABLE = RNG.integers(-20, 20, (ROWS, 3)) / 4
KEYS = RNG.integers(0, 4, ROWS)


def changed(frame: Any, change: Callable[[Any], Any]) -> Any:
    change(frame)
    return frame


ARRAYS: dict[str, Callable[..., Any]] = {
    # d: frame, s: a column of it; y: lazy table, v: a column of it, b: flags, k: integers
    "some cells": lambda d, s, y, v, b, k: changed(d, lambda d: d.__setitem__(d > 0, y)),
    "cells by flags": lambda d, s, y, v, b, k: changed(d, lambda d: d.__setitem__(y > 0, 5)),
    "cells of both": lambda d, s, y, v, b, k: changed(d, lambda d: d.__setitem__(y > 0, y)),
    "where": lambda d, s, y, v, b, k: d.where(d < 0, y),
    "where flags": lambda d, s, y, v, b, k: d.where(y > 0, y),
    "mask": lambda d, s, y, v, b, k: d.mask(y > 0, y),
    "column where": lambda d, s, y, v, b, k: s.where(b, v),
    "in place": lambda d, s, y, v, b, k: changed(d, lambda d: d.where(y > 0, y, inplace=True)),
    "columns": lambda d, s, y, v, b, k: changed(d, lambda d: d.__setitem__([0, 1], y[:, :2])),
    "new columns": lambda d, s, y, v, b, k: changed(d, lambda d: d.__setitem__(["p"], y[:, :1])),
    "iloc": lambda d, s, y, v, b, k: changed(d, lambda d: d.iloc.__setitem__((0, 1), v[:1])),
    "iloc columns": lambda d, s, y, v, b, k: changed(
        d, lambda d: d.iloc.__setitem__((slice(None), slice(1, 3)), y[:, 1:])
    ),
    "loc": lambda d, s, y, v, b, k: changed(d, lambda d: d.loc.__setitem__((b, 1), v[b])),
    "row": lambda d, s, y, v, b, k: changed(d, lambda d: d.loc.__setitem__(0, y[0])),
    "items": lambda d, s, y, v, b, k: changed(s, lambda s: s.__setitem__(b, v[b])),
    "rows by flags": lambda d, s, y, v, b, k: (d[b], d.loc[b], d.iloc[b], s[b], d.loc[b, [1]]),
    "columns by flags": lambda d, s, y, v, b, k: (d.loc[:, y[0] > 0], d.iloc[:, y[0] > 0]),
    "rows by positions": lambda d, s, y, v, b, k: (d.iloc[k], d.take(k), s.loc[k], d.index[k]),
    "labels by flags": lambda d, s, y, v, b, k: (d.index[b], d.index.where(b, k)),
    "operators": lambda d, s, y, v, b, k: (
        d + y,
        y - d,
        d < y,
        d & (k[0] > 9),
        s * v,
        v / s,
        s % k,
    ),
    "rows and columns": lambda d, s, y, v, b, k: (d + y[0], d - y[:, :1], d.sub(v, axis=0)),
    "products": lambda d, s, y, v, b, k: (d @ y.T, y.T @ d, d.dot(y[0]), s @ v),
    "functions": lambda d, s, y, v, b, k: (np.maximum(d, y), np.where(b, s, v), np.add(v, s)),
    "clip": lambda d, s, y, v, b, k: (d.clip(y - 1, y), s.clip(v - 1, v)),
    "fill_value": lambda d, s, y, v, b, k: s.add(v, fill_value=0),
    "group-bys": lambda d, s, y, v, b, k: (d.groupby(k).sum(), s.groupby([k, b]).mean()),
    "pivot": lambda d, s, y, v, b, k: d.pivot_table(index=k, values=0),
    "set_index": lambda d, s, y, v, b, k: (d.set_index(v), d.set_index([0, k]), d.set_axis(v)),
    "merge": lambda d, s, y, v, b, k: d.merge(d, left_on=k, right_on=k),
    "values": lambda d, s, y, v, b, k: (s.isin(v), d.index.isin(k), s.replace(v, v + 1)),
    "pandas' functions": lambda d, s, y, v, b, k: (
        *(pd.unique(k), *pd.factorize(v, sort=True), pd.api.extensions.take(v, k)),
        *(pd.to_timedelta(v, "s"), pd.util.hash_array(v), pd.get_dummies(k)),
    ),
    "dates": lambda d, s, y, v, b, k: (
        pd.Series(pd.date_range("2024", periods=ROWS)) + k.astype("m8[s]"),
        pd.date_range("2024", periods=ROWS) + k.astype("m8[D]"),
    ),
    "extension types": lambda d, s, y, v, b, k: (
        s.astype("Float64") + v,
        s.astype("Float64").where(b, v),
        (s > 0).astype("boolean") & b,
        s.astype("double[pyarrow]").where(b, v),
    ),
    "new objects": lambda d, s, y, v, b, k: (
        *(pd.Series(v), pd.Index(k), pd.DataFrame(y, v, y[0]), pd.DataFrame({"a": v}, k)),
        *(pd.MultiIndex.from_arrays([v, k]), pd.Categorical.from_codes(k, pd.Index(list("abcd")))),
    ),
}

NUMBERS: dict[str, Callable[..., Any]] = {
    # d: frame, s: a column of it; a: number of floats, i: of integers
    "labels": lambda d, s, a, i: (i in d.index, d.index.get_loc(i), d.index == i, d.xs(i)),
    "positions": lambda d, s, a, i: (
        d.iloc[i],
        d.head(i),
        s.iloc[:i],
        s.shift(i),
        d.iloc[[i], [i]],
    ),
    "row": lambda d, s, a, i: changed(d, lambda d: d.loc.__setitem__(i, a)),
    "columns": lambda d, s, a, i: (d[i], d.sort_values(i), d.drop(columns=i), d.groupby(i).sum()),
    "fill": lambda d, s, a, i: (
        s.where(s > 0, a),
        d.mask(d > 0, a),
        s.shift(1, fill_value=float(i)),
    ),
    "operators": lambda d, s, a, i: (d - a, a - s, s // a, d.astype("f4") * a, s.astype("i4") ** i),
    "new objects": lambda d, s, a, i: (
        *(
            pd.Series([a, 2 * a]),
            pd.DataFrame(a, [0, 1], ["x"]),
            pd.DataFrame({"a": [a], "b": [i]}),
        ),
        *(pd.Timedelta(a, "D"), pd.Interval(a, a + 1), pd.date_range("2024", periods=i + 1)),
    ),
    "extension types": lambda d, s, a, i: (
        *(s.astype("Float64").fillna(a), s.astype("double[pyarrow]").where(s > 0, a)),
        *(s.astype(str).str[i], s.astype(str).str.pad(i + 5)),
    ),
    "windows": lambda d, s, a, i: (
        s.rolling(i + 1).sum(),
        s.interpolate(limit=i),
        pd.cut(s, [-9, a, 9]),
    ),
    "scalars": lambda d, s, a, i: (pd.api.types.is_scalar(a), isinstance(a, float), {i: 1}[int(i)]),
}


def frame_of(x: Any, kind: str) -> Any:
    frame = pd.DataFrame(np.asarray(x) + 0.5)
    if kind == "two dtypes":
        frame[1] = frame[1].astype("f4")
    return frame.astype("i8") if kind == "integers" else frame


def outcome(run: Callable[[], Any]) -> Any:
    """Return a result, or type and message of an error."""
    try:
        return run()
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        return type(error), str(error)


def check(body: Callable[[Any, Any], Any]) -> None:
    x, k = TABLE.copy(), KEYS.copy()
    expected = outcome(lambda: body(TABLE.copy(), KEYS.copy()))
    with options(batch=ROWS // 4, threads=2):
        found = outcome(lambda: pipeline(body)(x, k))
    same(found, expected, index="equiv")
    np.testing.assert_array_equal(x, TABLE)


@pytest.mark.parametrize("kind", ["one dtype", "two dtypes", "integers"])
@pytest.mark.parametrize("of", ["an argument", "a pending call", "a filter"])
@pytest.mark.parametrize("name", ARRAYS)
def test_frames_of_the_body_take_lazy_arrays(name: str, of: str, kind: str) -> None:
    def body(x: Any, k: Any) -> Any:
        y = {"an argument": x, "a pending call": x * 2, "a filter": x[x[:, 0] > -99]}[of]
        frame, v = frame_of(x, kind), y[:, 1]
        return ARRAYS[name](frame, frame[0], y, v, v > 0, k * 1)

    check(body)


@pytest.mark.parametrize("kind", ["one dtype", "two dtypes", "integers"])
@pytest.mark.parametrize("name", NUMBERS)
def test_frames_of_the_body_take_numbers(name: str, kind: str) -> None:
    def body(x: Any, k: Any) -> Any:
        frame = frame_of(x, kind)
        return NUMBERS[name](
            frame, frame[0], (x * 2).max() + 0.5, np.argmax(k) % 2 + (k * 2 < 9).any()
        )

    check(body)


def test_series_of_results_of_functions_share_no_memory_with_them() -> None:
    def changing(x: Any) -> Any:
        x += 1
        return x * 2

    changed = splittable(changing, x=mut(Rows()), returns=Rows())
    fixed = splittable(lambda x: np.arange(3.0), x=Rows(), returns=broadcast)

    def body(x: Any) -> Any:
        one, other = changed(x), fixed(x)
        series, index = pd.Series(one), pd.Index(other)
        series.iloc[1] = 99.0
        other += 1
        return one[1], series[1], other[0], index[0]

    expected = body(np.ones(30))
    with options(batch=7, threads=2):
        assert pipeline(body)(np.ones(30)) == expected
