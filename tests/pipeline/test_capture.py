"""Calls of NumPy in all forms: which are captured, and that each gives what NumPy gives."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.special

from spliter.pipeline import Rows, explain, options, pipeline, splittable
from tests.pipeline.checks import check, line_of, same

RNG = np.random.default_rng(3)
X = RNG.permutation(24).astype("f8") - 9.0
Y = RNG.permutation(120).reshape(24, 5).astype("f8") - 30.0
NAMES = {"np": np, "special": scipy.special, "mat": np.eye(5)}

REDUCTIONS = [
    *(
        f"np.{name}({form})"
        for name, form in itertools.product(
            ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "count_nonzero"),
            ("x", "a=x", "y", "y, 0", "y, axis=-1", "y, (0, 1)", "y, axis=0, keepdims=True"),
        )
    ),
    *("np.sum(y, 1, 'f4')", "np.var(y, 0, ddof=1)", "np.std(x, ddof=1)", "x.std(ddof=2)"),
    *("y.var(0)", "np.nansum(y, 1)", "np.argmin(x)", "np.argmax(y, 0)", "x.argmax()"),
    *("np.argmin(y, axis=1, keepdims=True)", "np.add.reduce(y)", "np.add.reduce(y, 1)"),
    *("np.maximum.reduce(y)", "np.logical_or.reduce(y > 20, axis=1, keepdims=True)"),
    *("x.sum()", "y.mean(axis=0)", "y.min(1)", "(x > 0).any()", "(y > 0).all(axis=0)"),
]
ELEMENTWISE = [
    *("np.sqrt(x + 9)", "np.add(x, 1)", "np.hypot(y, x[:, None])", "special.erf(x)", "abs(x)"),
    *(
        "special.xlogy(x + 9, 2.0)",
        "-x",
        "~(x > 1)",
        "x + 1",
        "1 - x",
        "y / 3",
        "x // 2",
    ),
    *("x % 4", "divmod(x, 4)[1]", "x ** 2", "2.0 ** x", "(x > 0) & (x < 5)", "x == 3", "x != x"),
    *("x.astype('i8') << 1", "x.astype('i4') | 1", "y - y.mean(axis=0)", "x.astype('f4') * 2"),
    *("np.modf(x / 3)[0]", "np.where(x > 0, x, -1.0)", "np.where(y > 0, y, [1.0, 2, 3, 4, 5])"),
    *("np.clip(x, 0, 3)", "np.clip(a=x, a_min=0, a_max=3)", "np.clip(x, min=2)", "x.clip(1)"),
    *("x.clip(max=1)", "np.clip(y, [0, 1, 2, 3, 4], None)", "np.round(x / 3, 1)"),
    *("(x / 7).round(3)", "np.nan_to_num(x=x)", "np.angle(x)", "np.sinc(x)", "np.isclose(x, 3)"),
    *("np.interp(x, [0.0, 5.0], [1.0, 2.0])", "np.digitize(x, [0, 5])", "np.isin(x, [1, 2])"),
    *("np.searchsorted([0.0, 3.0], x)", "np.zeros_like(x) + x", "np.full_like(x, 3) - x"),
    *("np.full_like(x, x * 2)", "np.full_like(y, fill_value=x[:, None], dtype='f4')"),
    *("np.copy(a=x) * 2", "x.copy() + 1", "np.roll(x, 3) * 2", "np.roll(y, 2, 0) - y"),
    *("np.roll(y, shift=1, axis=1)", "(x > 0) ** 2 + (x > 0)"),
]
FILTERS = [
    *("x[x > 3]", "y[x > 3] * 2", "x[x > 3] + x[x > 3]", "y[y[:, 0] > 0].sum(axis=0)"),
    *("x[x > 3].sum()", "x[x > 99].sum()", "np.sqrt(x[x > 0])", "x[(x > 0) & (x < 9)].max()"),
    *("x[x > 0][x[x > 0] < 5]", "np.where(x[x > 0] > 5, 1, 0)", "x[~(x > 3)].size"),
]
OTHERS = [
    *("x * y.T", "np.sqrt(y.T + 50)", "x[::-1] * 2", "y[:, ::-1] - y"),
    *("np.sort(y)", "np.sort(y, axis=1)", "np.cumsum(y, 1)", "np.median(y, 1)", "np.ptp(y, 1)"),
    *("np.percentile(y, 50, 1)", "np.linalg.norm(y, axis=1)", "np.fft.fft(y)", "np.nanmax(y, 0)"),
    *("np.sum(y, initial=3.0)", "np.sum(y, where=y > 0)", "np.max(y, initial=100.0)", "x.tolist()"),
    *("np.stack([x, x * 2])", "np.where(x > 0)[0]", "np.select([x > 0], [x])", "np.sort(y, None)"),
    *("np.zeros_like(x, shape=(2, 3))", "np.copy(y, order='F')", "np.flip(y)", "y @ mat", "x @ x"),
    *("np.convolve(x, [1.0, 2.0])", "np.median(y, 0)", "np.percentile(y, [5, 95], 0)"),
    "np.diff(x)",
    *("np.unwrap(y, period=3.0)", "np.linalg.norm(y)", "np.roll(y, (1, 2), (0, 1))"),
    "np.cumsum(x)",
    *("np.concatenate([x, x])", "np.vstack([y, y])", "np.histogram(x)[0]", "np.einsum('ij->j', y)"),
    *("np.array(x)", "np.asarray(y)", "x[3]", "x[3:9]", "x[::-1]", "y[:, 1]", "y[2:5, ::2]", "y.T"),
    *("x[[1, 2, 2]]", "y.reshape(12, 10)", "y.ravel()", "y[..., 0]", "x[:, None]", "x[-1]"),
    "len(y)",
    *("float(x.sum())", "x.astype('i8').tolist()", "list(x)", "y.shape", "x.dtype", "y.ndim"),
    "x.size",
    *("x[x.argmax()]", "repr(x)", "f'{x.mean():.2f}'", "bool(x.any())", "np.unique(x)"),
    "np.sort(x)",
    *("np.shape(x)", "np.ndim(y)", "np.result_type(x, 'f4')", "y.nbytes", "x.itemsize"),
    "np.trace(y)",
]  # fmt: skip
WRONG = [
    *("np.sum(y, 7)", "np.sort(y, axis=4)", "np.sum(x, 0, foo=1)", "np.mean()", "x + np.ones(7)"),
    *("x < 'a'", "x + None", "np.add(x, 1, dtype='i4')", "x.astype('f4', casting='safe')", "x[24]"),
    *("x.astype('i8') ** -1", "x.foo", "x()", "x['a']", "np.full_like(x, 'a')", "x[:0].max()"),
]
FORMS = [*REDUCTIONS, *ELEMENTWISE, *FILTERS, *OTHERS]


def body_of(form: str) -> Callable[..., Any]:
    """Return the function of x and y that a text is the body of."""
    made: Callable[..., Any] = eval(f"lambda x, y: {form}", NAMES)
    return made


def tolerance(form: str) -> float:
    """Return the relative error of sums of floats, which are added in another order."""
    added = ("sum", "prod", "mean", "var", "std", "add.reduce", "norm", "fft", "median", "@")
    if not any(f"{name}" in form for name in added):
        return 0.0
    return 1e-6 if "f4" in form else 1e-12


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_calls_give_what_numpy_gives(form: str) -> None:
    for order in ("C", "F"):
        for batch in (5, 100):
            y = np.asarray(Y, order=order)
            check(body_of(form), X, y, batch=batch, rtol=tolerance(form))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", [*ELEMENTWISE, *FILTERS])
def test_calls_of_the_contract_are_captured(form: str) -> None:
    with options(batch=5, threads=2):
        shown = explain(pipeline(body_of(form)), X, Y)
    assert "in batches of 5" in shown
    assert "whole" not in shown.replace("needs the whole", "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("form", [*REDUCTIONS, *ELEMENTWISE])
def test_shapes_and_dtypes_are_those_of_numpy(form: str) -> None:
    def body(x: Any, y: Any) -> Any:
        found = body_of(form)(x, y)
        return np.shape(found), found.dtype, found.ndim, found.size

    check(body, X, Y)


@pytest.mark.parametrize("form", WRONG)
def test_wrong_calls_raise_what_numpy_raises(form: str) -> None:
    body = body_of(form)
    with pytest.raises(Exception) as plain:  # noqa: PT011 -- whatever it is
        body(X.copy(), Y.copy())
    with options(batch=5), pytest.raises(type(plain.value)):
        pipeline(body)(X.copy(), Y.copy())


def test_shape_and_dtype_are_known_without_evaluation() -> None:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x + 0

    count = splittable(counted, x=Rows(), returns=Rows(like="x"))

    def body(x: Any) -> Any:
        y = np.sqrt(count(x).astype("f4")) > 3
        assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes, y.itemsize) == (
            (24,),
            bool,
            1,
            24,
            24,
            1,
        )
        assert len(y) == 24
        assert not seen
        return y

    with options(batch=5), np.errstate(invalid="ignore"):
        pipeline(body)(X)
    assert sorted(seen) == [4, 5, 5, 5, 5]


def convolved(x: Any) -> Any:
    return np.convolve(x + 1, [1.0, 2.0]) * 2


def test_calls_that_are_not_captured_get_plain_arrays_and_explain_names_them() -> None:
    check(lambda x: [type(each) for each in (np.asarray(x), convolved(x).tolist())], X)
    with options(batch=5, threads=2):
        shown = explain(pipeline(convolved), X)
    assert "add (" in shown
    assert re.search(rf"evaluated.*{line_of(convolved, 1)} by convolve", shown)
    for body, name in (
        (lambda x: np.asarray(x) + 1, "asarray"),
        (lambda x: np.nanmean(x) + np.nanmean(x), "nanmean"),
        (lambda x: pd.Series(np.arange(9.0)).add(x[:9]), "getitem"),
    ):  # of arguments, which exist
        shown = explain(pipeline(body), X)
        assert len(re.findall(rf"evaluated at .*{line_of(body)} by {name}", shown)) == 1
    assert "by loc" in explain(lambda df: df.loc[df["a"] > 3], pd.DataFrame({"a": X}))


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_greater(X, 5),
        X.astype(object),
        np.array(["a", "b"] * 12),
        np.array(3.0),
        np.empty(0),
        np.empty((0, 3)),
        np.rec.fromarrays([X, X]),
        X.astype(">f8"),
        X.astype("M8[s]"),
    ],
    ids=["masked", "object", "str", "0-d", "empty", "no rows", "records", "big", "dates"],
)
def test_other_arrays_keep_their_own_behaviour(value: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        doubled = x[:2] if x.ndim and x.dtype.kind in "UMV" else x + x
        return doubled, y * 2

    with options(batch=5):
        found, expected = pipeline(body)(value, Y), body(value, Y)
    same(found[1], expected[1])
    assert type(found[0]) is type(expected[0])
    assert found[0].dtype == expected[0].dtype
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("name", ["C", "F", "reversed", "gaps", "turned", "wide"])
def test_results_have_the_values_of_any_layout(name: str) -> None:
    table = np.random.default_rng(1).random((30, 6))
    layouts = {
        "C": table,
        "F": np.asfortranarray(table),
        "reversed": table[::-1, ::-1],
        "gaps": np.asfortranarray(table)[3:28:2, ::2],
        "turned": table.T,
        "wide": table[:2],
    }
    for body in (
        lambda x: np.exp(x * 2) + x,
        lambda x: x - x.mean(axis=0),
        lambda x: np.where(x > 0.5, x, 0.0) ** 2 + x[:1],
        lambda x: (x * 2)[x[:, 0] > 0.4],
        lambda x: np.cumsum(x, axis=1).T + 1,
    ):
        check(body, layouts[name], batch=4, rtol=1e-12 if "mean" in body.__code__.co_names else 0)


def test_warnings_are_those_of_numpy() -> None:
    def messages(run: Callable[..., Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run(X)
        return sorted(str(each.message) for each in seen)

    def body(x: Any) -> Any:
        return np.log(x), 1 / (x * 0)

    with options(batch=5):
        assert messages(pipeline(body)) == messages(body)
