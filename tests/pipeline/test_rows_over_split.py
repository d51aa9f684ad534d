"""Functions of NumPy and changes of columns that blocks of a Split can make by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import options, pipeline

RNG = np.random.default_rng(5)
X = RNG.standard_normal((60, 4))
V = RNG.standard_normal(60)
MISSING = np.where(RNG.random((60, 4)) < 0.2, np.nan, X)
I = RNG.integers(0, 9, 60)  # noqa: E741
TABLE = RNG.standard_normal((4, 3))
CUTS = pytest.mark.parametrize("cuts", [[20, 40], [0, 1, 1, 60]])


def check(body: Callable[..., Any], cuts: list[int], *arrays: Any) -> None:
    """Compare the results of a program, and their dtypes, with those over a Split."""
    expected = body(*[each.copy() for each in arrays])
    with split(*[np.split(each, cuts) for each in arrays]) as parts:
        found = pipeline(body)(parts)
    if not isinstance(expected, tuple):
        expected, found = (expected,), (found,)
    for one, other in zip(found, expected, strict=True):
        whole = np.concatenate(one) if isinstance(one, list) else one
        assert whole.dtype == other.dtype
        assert whole.shape == other.shape
        np.testing.assert_allclose(whole, other, rtol=1e-12, atol=1e-12)


BY_ROWS: dict[str, Callable[..., Any]] = {
    "concatenate": lambda x, v: np.concatenate([x, v[:, None]], axis=1),
    "stack": lambda x, v: np.stack((x, x * 2), axis=-1),
    "column_stack": lambda x, v: np.column_stack([v, x, v]),
    "hstack": lambda x, v: np.hstack([x, x[:, :1]]),
    "append": lambda x, v: np.append(x, v[:, None], axis=1),
    "select": lambda x, v: np.select([v > 1, v < v.mean()], [v, -v], default=0),
    "matmul": lambda x, v: x @ TABLE,
    "matmul of a vector": lambda x, v: x @ x.mean(axis=0),
    "dot": lambda x, v: x.dot(TABLE[:, 0]),
    "inner": lambda x, v: np.inner(x, TABLE.T),
    "outer": lambda x, v: np.outer(v, TABLE[0]),
    "einsum": lambda x, v: np.einsum("ij,jk,i->ik", x, TABLE, v),
    "einsum of rows": lambda x, v: np.einsum("ij,ij->i", x, x),
    "cross": lambda x, v: np.cross(x[:, :3], x[:, 1:]),
    "diff": lambda x, v: np.diff(x, axis=1),
    "gradient": lambda x, v: np.gradient(x, axis=1),
    "trapezoid": lambda x, v: np.trapezoid(x),
    "flip": lambda x, v: np.flip(x, axis=1),
    "roll": lambda x, v: np.roll(x, 1, axis=1),
    "take": lambda x, v: x.take([0, 2], axis=1),
    "delete": lambda x, v: np.delete(x, 1, axis=-1),
    "insert": lambda x, v: np.insert(x, 1, v, axis=1),
    "repeat": lambda x, v: x.repeat(2, axis=1),
    "average of rows": lambda x, v: np.average(x[v > 0], axis=1),
    "expand_dims": lambda x, v: np.expand_dims(v, 1),
    "squeeze": lambda x, v: v[:, None].squeeze(axis=1),
    "clip": lambda x, v: x.clip(0, 1, None),
    "no columns": lambda x, v: x[:, []],
    "real": lambda x, v: ((x + 1j * v[:, None]).real, (x - 2j).imag, v.real),
    "conj": lambda x, v: (x * 1j).conj(),
    "empty_like": lambda x, v: np.add(x, 1, out=np.empty_like(x)),
    "of a filter": lambda x, v: np.diff(x[v > 0], axis=1) @ TABLE[:3],
}
SUMS: dict[str, Callable[..., Any]] = {
    "stacks of numbers": lambda x, v: (np.stack([x.sum(), v.max()]), np.hstack([v.sum(), 3.0])),
    "select of numbers": lambda x, v: np.select([x.sum() > 0], [v.max()], v.min()),
    "product of vectors": lambda x, v: v @ v + np.dot(v, x[:, 0]) + np.vdot(x, x),
    "einsum to a table": lambda x, v: np.einsum("ij,ik->jk", x, x),
    "norm": lambda x, v: (np.linalg.norm(x), np.linalg.norm(v), np.linalg.norm(x, axis=0)),
    "ptp": lambda x, v: (np.ptp(x, axis=0), np.ptp(v)),
    "average": lambda x, v: (np.average(x, axis=0, weights=v**2), np.average(v, weights=v**2)),
    "average without weights": lambda x, v: (np.average(x), np.average(x, axis=0)),
    "cov": lambda x, v: np.cov(x, rowvar=False),
    "cov of short floats": lambda x, v: np.cov(x.astype("f4"), rowvar=False),
    "cov of integers": lambda x, v: np.cov((x * 9).astype("i2"), rowvar=False),
    "histogram": lambda x, v: np.histogram(v),
    "histogram of edges": lambda x, v: np.histogram(x, [-2, -1, 0, 3]),
    "histogram in a range": lambda x, v: np.histogram(v, 7, (-1, 1)),
}


@CUTS
@pytest.mark.parametrize("name", [*BY_ROWS, *SUMS])
def test_functions_of_rows(name: str, cuts: list[int]) -> None:
    check((BY_ROWS | SUMS)[name], cuts, X, V)


def test_functions_of_the_shape() -> None:
    def body(x: Any) -> Any:
        shapes = np.ndim(x), np.shape(x), np.shape(x[x[:, 0] > 0]), np.shape(x.sum(axis=0))
        dtypes = np.result_type(x, 1j), np.common_type(x), np.isrealobj(x), np.iscomplexobj(x)
        return shapes, dtypes, np.size(x), np.size(x, 1), np.size(x[:, 0], axis=-1)

    with split(np.split(X, [20])) as parts:
        assert pipeline(body)(parts) == body(X)


@CUTS
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reductions_that_leave_out_missing_values(dtype: Any, cuts: list[int]) -> None:
    def body(x: Any) -> Any:
        return (
            np.nanmean(x, axis=0).astype("f4").round(4),
            np.nanmax(x),
            np.nanmin(x, axis=0),
            np.nanmean(x * 0 + 1),
        )

    check(body, cuts, MISSING.astype(dtype))


def test_means_of_more_half_floats_than_half_floats_can_count() -> None:
    with split(np.split(np.full(70_000, 0.25, "f2"), [100])) as parts:
        found = pipeline(np.nanmean)(parts)
    assert (found, found.dtype) == (0.25, np.float16)


def test_means_have_the_byte_order_of_the_machine() -> None:
    check(lambda x: (np.nanmean(x, axis=0), np.nanmean(x)), [20], MISSING.astype(">f8"))


@pytest.mark.parametrize("dtype", ["f2", "f4", "u1", "i8"])
def test_bins_have_the_edges_that_numpy_computes_in_the_dtype_of_the_array(dtype: Any) -> None:
    tenths = (np.arange(11) / (1 if dtype[0] in "iu" else 10)).astype(dtype)
    with split(np.split(tenths, [3, 5])) as parts:
        counts, edges = pipeline(np.histogram)(parts)
    np.testing.assert_array_equal(counts, np.histogram(tenths)[0])
    np.testing.assert_array_equal(edges, np.histogram(tenths)[1])


@CUTS
def test_counts_of_integers(cuts: list[int]) -> None:
    def body(i: Any, v: Any) -> Any:
        return np.bincount(i), np.bincount(i, v), np.bincount(i[i < 4], minlength=6)

    check(body, cuts, I, V)
    with split([np.zeros(0, int)]) as parts:
        np.testing.assert_array_equal(pipeline(np.bincount)(parts), np.zeros(0))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "f4", "c8", "?"])
def test_functions_convert_as_those_of_numpy(dtype: Any) -> None:
    def body(x: Any, weights: Any) -> Any:
        return (
            np.linalg.norm(x),
            np.linalg.norm(x[:, None], axis=0),
            *[np.average(x, weights=weights.astype(each)) for each in ("i1", "f4", "f8", "?")],
        )

    values = np.array([100.0, 90.0, 0.0, 1.0, 7.0])
    expected = body(values.astype(dtype), values)
    with split(np.split(values.astype(dtype), [2]), np.split(values, [2])) as parts:
        for one, other in zip(pipeline(body)(parts), expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-5)


def views_of_columns(x: Any, v: Any) -> Any:
    y = x * 1
    one, two = y[:, 0], y[:, 1]
    one += 1
    two *= v
    return y, one, two


def views_of_views(x: Any, v: Any) -> Any:
    y = x * 1
    some = y[:, 1:3]
    one = some[:, 0]
    y[:, 1] = 7
    some -= v[:, None]
    one[:] = one * 2
    y += 1
    return y, some, one


def views_of_a_dropped_array(x: Any, v: Any) -> Any:
    y = x[v > -1]
    one, some = y[:, 1], y[:, :2]
    del y
    some *= 2
    one -= 1
    return one, some


def columns_of_arguments(x: Any, v: Any) -> Any:
    x[:, 0] -= v
    x[:, 3] = x[:, 0] * x[:, 1]
    x[..., 2] = 0
    return x


def columns_of_new_arrays(x: Any, v: Any) -> Any:
    y = np.empty_like(x)
    y[:, 0] = v
    y[:, 1:] = x[:, 1:]
    y[:, 2][v > 0] = 0
    return y


def standardized(x: Any, v: Any) -> Any:
    y = x.copy()
    for at in range(x.shape[1]):
        y[:, at] = (y[:, at] - y[:, at].mean()) / y[:, at].std()
    return y


def earlier_values(x: Any, v: Any) -> Any:
    one = x[:, 0]
    x += 1
    twice = one * 2
    x[:, 0] = 0
    return twice, one, x


def of_another_array(x: Any, v: Any) -> Any:
    one = x[:, 0]
    x = x + 1
    one += 1
    return one, x


def columns_of_a_filter(x: Any, v: Any) -> Any:
    y = x[x[:, 0] > 0]
    y[:, 1] = 2
    one = y[:, 2]
    one += 1
    return y, y.sum(axis=0), one


def rows_of_a_mask(x: Any, v: Any) -> Any:
    y, positive = x * 1, v > 0
    y[positive] += 1
    y[positive] *= y[positive]
    y[~positive] = np.arange(4.0)
    return y


def parts_by_masks(x: Any, v: Any) -> Any:
    positive, y = v > 0, np.zeros_like(v)
    y[positive] = v[positive] / x[positive].sum(axis=1)
    y[~positive] = -1
    return y


def rows_of_a_mask_of_a_filter(x: Any, v: Any) -> Any:
    y, z = x[v > -1], v[v > -1]
    y[y[:, 0] > 0] = 0
    z[z < 0] -= 2
    return y, z


def changes_of_a_counted_filter(x: Any, v: Any) -> Any:
    positive = v > 0
    few = x[positive]
    if len(few) and few.mean() < 9:
        few[:, 0] = v[positive]
    one = few[:, 1]
    float(few.sum())
    one[:] = v[positive] * 2
    return few


def shares(x: Any, v: Any) -> Any:
    positive, y = v > 0, v * 1
    chosen = v[positive]
    y[positive] = chosen / chosen.sum()
    none = v > 9
    y[none] = v[none] + 1
    return y


@CUTS
@pytest.mark.parametrize(
    "body",
    [
        *(views_of_columns, views_of_views, views_of_a_dropped_array, columns_of_arguments),
        columns_of_new_arrays,
        *(standardized, earlier_values, of_another_array, columns_of_a_filter, rows_of_a_mask),
        *(parts_by_masks, rows_of_a_mask_of_a_filter, changes_of_a_counted_filter, shares),
    ],
)
def test_changes_of_columns_and_of_rows(body: Any, cuts: list[int]) -> None:
    check(body, cuts, X, V)


@pytest.mark.parametrize("values", [[[3]], [[[1.0, 2.0, 3.0, 4.0]]], (([5],),)])
def test_lists_nested_too_deeply_are_refused(values: Any) -> None:
    def body(x: Any) -> Any:
        y = x * 1
        y[:, 0] = values
        return y

    with pytest.raises(ValueError, match="setting an array element") as plain:
        body(X)
    for given in (X, split([X[:9], X[9:]])):
        with options(batch=7), pytest.raises(ValueError, match="setting") as error:
            pipeline(body)(given)
        assert str(error.value) == str(plain.value)


def test_operands_are_taken_as_they_are_at_the_call() -> None:
    def body(x: Any) -> Any:
        weights = np.ones(4)
        found = x @ weights
        weights[:] = 0
        return found

    check(body, [20], X)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x @ np.ones(5),
        lambda x: np.take(x, [4], axis=1),
        lambda x: np.size(x, 2),
        lambda x: np.gradient(x, axis=4),
        lambda x: np.average(x, axis=0, weights=x[:, :1]),
        lambda x: np.average(x, weights=x[:, 0]),
        lambda x: np.swapaxes(x, 1, 5),
        lambda x: np.where(*[x > 0, 1]),
        lambda x: x.sum(axis="a"),
        lambda x: x + None,
        lambda x: x.astype(int) ** -1,
        lambda x: x[:, 1.5],
        lambda x: x["a"],
        lambda x: x[..., ...],
        lambda x: x[x[:, 0] > 0, 9],
        lambda x: x.__setitem__((..., ...), 0),
        lambda x: x.__setitem__((slice(None), [0, 1]), [5, 6, 7]),
        lambda x: np.dot(x, np.ones((5, 2))),
        lambda x: np.einsum("ij,jk->ik", x, np.ones((5, 2))),
        lambda x: np.select([x > 0], [np.ones((5, 5))]),
        lambda x: np.histogram(x, [3, 2, 1]),
        lambda x: np.bincount((x[:, 0] * x[:, 0]).astype(int), minlength=-1),
    ],
)
def test_errors_that_have_to_do_with_no_rows_rise_at_the_call(body: Any) -> None:
    def caught(x: Any) -> Any:
        try:
            return body(x)
        except Exception as error:  # noqa: BLE001
            return type(error), str(error).replace(f"({len(X)},", "(n,")

    expected = caught(X)
    assert isinstance(expected, tuple)
    with split(np.split(X, [20])) as parts:
        assert pipeline(caught)(parts) == expected


def test_weights_that_sum_to_zero() -> None:
    with (
        split(np.split(X, [20])) as parts,
        pytest.raises(ZeroDivisionError, match="Weights sum to zero"),
    ):
        pipeline(lambda x: np.average(x, axis=0, weights=x[:, 0] * 0))(parts)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: np.concatenate([x, x]),
        lambda x: np.stack([x, x]),
        lambda x: np.diff(x, axis=0),
        lambda x: np.diff(x[:, 0]),
        np.flip,
        lambda x: np.squeeze(x[:, None, :1]),
        lambda x: np.einsum("ij->ji", x),
        lambda x: np.ones((3, 60)) @ x,
        lambda x: np.linalg.norm(x, ord=2),
        np.cov,
        lambda x: np.cov(x, None),
        lambda x: np.cov(x[:, :1], rowvar=False),
        lambda x: np.cov(x[x[:, 0] > 99], rowvar=False),
        np.imag,
        lambda x: np.histogram(x, bins="auto"),
        lambda x: np.average(x, axis=0, weights=np.ones(60)),
        lambda x: np.matmul(x, TABLE, out=np.empty((60, 3))),
        lambda x: (x.__setitem__(x[:, 0] > 0, x[x[:, 1] > 0]), x)[1],
        # They fail for most numbers of rows.
        lambda x: x.reshape(len(x), 2, 2),
        lambda x: np.reshape(x, (30, 8)),
        lambda x: np.split(x, 6),
        lambda x: np.partition(x[:, 0], 50),
        lambda x: np.lib.stride_tricks.sliding_window_view(x[:, 0], 50),
        lambda x: np.concatenate([x, np.ones((60, 1))], axis=1),
    ],
)
def test_functions_that_need_all_rows_are_refused(body: Any) -> None:
    with split(np.split(X, [20])) as parts, pytest.raises(WholeArrayError):
        pipeline(body)(parts)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, target, add: np.copyto(target, x),
        lambda x, target, add: np.put(target, x.astype(int), 5),
        lambda x, target, add: np.add(x, 1, out=target),
        lambda x, target, add: np.piecewise(x, [x > 1], [add, 0]),
        lambda x, target, add: np.apply_along_axis(add, 1, x),
    ],
)
def test_calls_that_are_refused_change_nothing_and_call_nothing(call: Any) -> None:
    target, asked = np.zeros((60, 4)), list[Any]()
    with split(np.split(X, [20])) as parts, pytest.raises(WholeArrayError):
        pipeline(lambda x: call(x, target, asked.append))(parts)
    assert not target.any()
    assert not asked


def test_rows_of_another_width_are_refused_at_the_call() -> None:
    def body(x: Any) -> Any:
        positive = x[:, 0] > 0
        with pytest.raises(ValueError, match=r"shape mismatch: .*,2\) could not be .*,4\)"):
            x[positive] = x[positive][:, :2]
        return x * 1

    check(body, [20], X)


@pytest.mark.backend("dask")
def test_on_dask_tasks_run_functions_of_rows_and_changes(client: Any) -> None:
    import dask.array as da

    x, v = (client.persist(da.from_array(each, chunks=(7, *each.shape[1:]))) for each in (X, V))
    changes = [views_of_views, columns_of_new_arrays, parts_by_masks, rows_of_a_mask_of_a_filter]
    with split(x, v) as parts:
        for body in (*BY_ROWS.values(), *SUMS.values(), *changes):
            expected, found = body(X.copy(), V.copy()), pipeline(body)(parts)
            if not isinstance(expected, tuple):
                expected, found = (expected,), (found,)
            for one, other in zip(found, expected, strict=True):
                whole = one.compute() if isinstance(one, da.Array) else one
                np.testing.assert_allclose(whole, other, rtol=1e-12, atol=1e-12)
