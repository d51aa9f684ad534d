"""Functions and operators of NumPy in all forms of their calls, by batches and over a Split."""

from __future__ import annotations

import collections
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spliter import SplIterError, split
from spliter.pipeline import Rows, broadcast, options, pipeline, splittable

RNG = np.random.default_rng(3)
X = RNG.permutation(23).astype("f8") - 9.0
Y = RNG.permutation(60).reshape(12, 5).astype("f8") - 30.0
NAMES = {
    "np": np,
    "deque": collections.deque,
    "sparse": sparse,
    "mat": np.matrix(np.eye(5)),
    "csr": sparse.csr_matrix(Y[:5]),
}

REDUCTIONS = [
    f"np.{name}({form})"
    for name, form in itertools.product(
        ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "count_nonzero"),
        (
            "x",
            "a=x",
            "y",
            "y, 0",
            "y, axis=-1",
            "a=y, axis=0",
            "y, (0, 1)",
            "y, axis=0, keepdims=True",
        ),
    )
]
FORMS = [
    *REDUCTIONS,
    *("np.sum(y, 1, 'f4')", "np.sum(y, 0, None, None, True)", "np.sum(y, initial=3.0)"),
    *("np.sum(y, where=y > 0)", "np.max(y, initial=100.0)", "np.mean(y, 0, where=y > 0)"),
    *("np.var(y, 0, ddof=1)", "np.var(y, 0, None, None, 1)", "np.std(x, ddof=1)", "x.std(ddof=2)"),
    *("np.var(y, 0, correction=1)", "y.var(0, 'f4', None, 1)", "np.nansum(y, 1)"),
    *("np.argmin(a=x)", "np.argmax(y, 0)", "np.argmin(y, axis=1, keepdims=True)", "x.argmax()"),
    *("np.add.reduce(y)", "np.add.reduce(y, 1)", "np.maximum.reduce(y, axis=None)"),
    *("np.add.reduce(y, 0, initial=5)", "np.logical_or.reduce(y > 20, axis=1, keepdims=True)"),
    *("np.stack(deque([x, x * 2]))", "np.select(deque([x > 0]), deque([x]))"),
    *("np.where(x > 0)[0]", "np.where(x > 0, x, -1.0)", "np.where(y > 0, y, [1.0, 2, 3, 4, 5])"),
    *("np.clip(x, 0, 3)", "np.clip(a=x, a_min=0, a_max=3)", "np.clip(x, min=2)", "x.clip(1)"),
    *(
        "x.clip(None, 2)",
        "x.clip(max=1)",
        "x.clip(0, 3, None)",
        "np.clip(y, [0, 1, 2, 3, 4], None)",
        "np.clip(x, 1)",
    ),
    *(
        "np.round(x / 3, 1)",
        "np.round(a=x / 3, decimals=2)",
        "(x / 7).round(3)",
        "np.nan_to_num(x=x)",
    ),
    *("np.nan_to_num(x / (x - x), nan=-1.0)", "np.angle(x)", "np.angle(x, True)", "np.sinc(x)"),
    *("np.isclose(x, 3)", "np.isclose(b=x, a=x)", "np.isclose(y, y[0], atol=[1, 2, 3, 4, 9])"),
    *("np.interp(x, [0.0, 5.0], [1.0, 2.0])", "np.interp(x=x, xp=[0, 5], fp=[1, 2], left=-1)"),
    *("np.digitize(x, [0, 5])", "np.digitize(x, bins=[0, 5], right=True)", "np.isin(x, [1, 2])"),
    *("np.isin(element=x, test_elements=[1], invert=True)", "np.searchsorted([0.0, 3.0], x)"),
    *("np.searchsorted(a=[0.0, 3.0], v=x, side='right')", "np.zeros_like(x)", "np.ones_like(a=x)"),
    *("np.zeros_like(x, shape=(2, 3))", "np.full_like(x, 3)", "np.full_like(y, [1, 2, 3, 4, 5])"),
    *("np.full_like(x, 0, shape=4)", "np.full_like(x, fill_value=2, dtype='i4')", "np.copy(a=x)"),
    *(
        "np.copy(y, order='F')",
        "y.copy('F')",
        "y.copy(order='C')",
        "np.real(val=x)",
        "np.fix(x / 3)",
    ),
    *(
        "np.sort(y)",
        "np.sort(a=y, axis=0)",
        "np.sort(y, 0, 'stable')",
        "np.argsort(y, 0, kind='stable')",
    ),
    *(
        "np.sort(y, None)",
        "y.argsort(1)",
        "np.cumsum(y, 1)",
        "np.cumsum(a=x)",
        "np.cumsum(y, 0, 'f4')",
    ),
    *("np.flip(y, 0)", "np.flip(m=y, axis=1)", "np.flip(y)", "np.median(y, 0)", "np.median(a=y)"),
    *(
        "np.median(y, 0, None, False, True)",
        "np.ptp(y, 1)",
        "np.ptp(a=x)",
        "np.nanmedian(y, axis=1)",
    ),
    *(
        "np.nanmean(y, 0)",
        "np.nanvar(y, 1, ddof=1)",
        "np.nanargmax(y, 0)",
        "np.nanmax(y, 0, initial=99)",
    ),
    *("np.percentile(y, 50, 0)", "np.percentile(y, [5, 95], 0)", "np.percentile(y, [50], axis=1)"),
    *("np.percentile(a=y, q=30, axis=1)", "np.quantile(y, 0.3, 0, None, False, 'linear', True)"),
    *("np.quantile(y, [0.1, 0.5], 1, keepdims=True)", "np.quantile(y, 0.5, weights=None)"),
    *("np.median(y, axis=(0, 1))", "np.nanvar(y, (1, 0), ddof=1)", "np.flip(y, (0, 1))"),
    *("np.linalg.norm(y)", "np.linalg.norm(x=y, axis=1)", "np.linalg.norm(y, 1, 0)"),
    *("np.linalg.norm(y, 2, 0, True)", "np.linalg.norm(y, axis=(0, 1))", "np.roll(x, 3)"),
    *("np.roll(y, 2, 0)", "np.roll(a=y, shift=1, axis=1)", "np.roll(y, (1, 2), (0, 1))"),
    *("np.roll(x.astype('>i4'), 4, 0)", "np.roll(y.astype('>f4'), 2, axis=1)"),
    *(
        "np.fft.fft(y)",
        "np.fft.fft(a=y, axis=0)",
        "np.fft.fft(y, 3)",
        "np.fft.ifft(y, None, 0, 'ortho')",
    ),
    *(
        "np.unwrap(y, None, 0)",
        "np.unwrap(p=y, axis=0)",
        "np.unwrap(y, period=3.0)",
        "np.unwrap(y, 2.0)",
    ),
    *("np.sum(y, 7)", "np.sort(y, axis=4)", "np.sum(x, 0, foo=1)", "np.mean()", "np.sum(x, a=x)"),
    *("np.sum(x.max(), axis=0)", "np.argmax(y.sum(), -1)", "np.median(x.sum(), 0)"),
    *("x == 'a'", "x != 'a'", "x == None", "x == np.datetime64('2020')", "x < 'a'"),
    *(
        "y * mat",
        "y @ mat",
        "y @ csr.T",
        "y * csr.T[0].toarray()",
        "(y @ csr.T).sum()",
        "divmod(x, 4)[1]",
    ),
    *(
        "x[x > 3].var()",
        "x[x > 12].std()",
        "x[x > 99].mean()",
        "x[x > 99].var()",
        "x[x > 99].sum()",
    ),
    *(
        "np.percentile(y[y[:, 0] > 0], [25, 75], 0)",
        "np.where(x[x > 0] > 5)[0]",
        "y[y[:, 0] > 99].var(0)",
    ),
]


def reads(form: str) -> set[str]:
    """Return which of x and y an expression reads."""
    return {"x", "y"} & set(compile(form, "form", "eval").co_names)


def told(function: Callable[..., Any], *given: Any) -> tuple[Any, list[str]]:
    """Return a result or an error, and the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = function(*given)
        except SplIterError as error:
            result = error
        except Exception as error:  # noqa: BLE001 -- compared with that of the plain program
            result = type(error), str(error)
    return result, sorted({str(each.message) for each in seen})


def same(one: Any, other: Any) -> None:
    if isinstance(other, tuple):
        assert one == other
        return
    assert type(one) is type(other)
    assert one.dtype == other.dtype
    rtol = 1e-6 if one.dtype == np.float32 else 1e-12  # sums of floats are in another order
    np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12, strict=True)


def body_of(form: str) -> Callable[..., Any]:
    made: Callable[..., Any] = eval(f"lambda x, y: {form}", NAMES)
    return made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_forms_of_calls_give_what_numpy_gives(form: str, order: Any) -> None:
    body, x, y = body_of(form), X.copy(), Y.copy(order)
    expected, warned = told(body, x, y)
    with options(batch=4, threads=2):
        found, also_warned = told(pipeline(body), x, y)
    same(found, expected)
    assert also_warned == warned
    assert x.tobytes() == X.tobytes()
    assert y.tobytes() == Y.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_forms_know_their_shape_before(form: str) -> None:
    body = body_of(form)
    expected, _ = told(lambda x, y: body(x, y).shape, X, Y)
    with options(batch=4, threads=2):
        found, _ = told(pipeline(lambda x, y: body(x, y).shape), X, Y)
    assert found == expected


@pytest.mark.parametrize("form", [each for each in FORMS if len(reads(each)) == 1])
def test_forms_over_a_split_are_right_or_refused(form: str) -> None:
    body = body_of(form)
    data, place = (X, 0) if reads(form) == {"x"} else (Y, 1)
    blocks = [data[at : at + 5] for at in range(0, len(data), 5)]

    def by_rows(rows: Any) -> Any:
        return body(*([rows, None] if place == 0 else [None, rows]))

    expected, _ = told(by_rows, data)
    with split(blocks) as parts:
        found, _ = told(pipeline(by_rows), parts)
        if isinstance(found, list):
            found = np.concatenate(found, dtype=found[0].dtype)  # else of native byte order
    if isinstance(found, SplIterError):
        return
    same(found, expected)


def polynomial(x: Any, factors: Any) -> Any:
    return np.polyval(factors, x)


of_rows: Any = splittable(polynomial, x=Rows(), returns=Rows())

WRONG: dict[str, Callable[[Any], Any]] = {
    "no number": lambda x: x + None,
    "compared with no number": lambda x: x < None,
    "dtype of the result": lambda x: np.add(x, 1, dtype="i4"),
    "casting": lambda x: np.add(x, 1, casting="no", dtype="f4"),
    "casting of astype": lambda x: x.astype("f4", casting="safe"),
    "no loop": lambda x: np.logical_xor(x, x, dtype="f8"),
    "casting and shape": lambda x: operator.iadd(np.isnan(x), np.zeros(4)),  # type: ignore[no-untyped-call]
    "where": lambda x: np.add(x, 1, out=x, where=x),
    "position in nothing": lambda x: np.argmax(x[:0]),
    "extreme of nothing": lambda x: x[:0].max(),
    "range of nothing": lambda x: np.ptp(x[:0]),
    "transform of nothing": lambda x: np.fft.fft(x[:0]),
    "reduced nothing": lambda x: np.maximum.reduce(x[:0]),
    "digits": lambda x: np.round(x, 1.5),  # type: ignore[call-overload]
    "side": lambda x: np.searchsorted(x, x, side="mid"),  # type: ignore[call-overload]
    "bins": lambda x: np.digitize(x, [1, 0, 2]),
    "points": lambda x: np.interp(x, [], []),
    "axis": lambda x: x.sum(axis=1.5),
    "fill": lambda x: np.full_like(x, "a"),
    "dtype": lambda x: np.zeros_like(x, dtype="zz"),
    "kind": lambda x: np.isin(x, x, kind="table"),
    "dates": lambda x: np.clip(x.astype("M8[s]"), 0, 1),
    "times": lambda x: np.sinc(x.astype("m8[s]")),
    "complex": lambda x: np.i0(x * 1j),
    "negative powers": lambda x: x.astype("i8") ** -1,
    "missing argument": of_rows,
    "unexpected argument": lambda x: of_rows(x, [1], z=x),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_rise_at_the_call(name: str) -> None:
    def caught(x: Any) -> Any:
        try:
            return WRONG[name](x)
        except Exception as error:  # noqa: BLE001
            return type(error).__name__, str(error)

    expected = caught(np.arange(30.0))
    assert isinstance(expected, tuple)
    with options(batch=7):
        assert pipeline(caught)(np.arange(30.0)) == expected


def test_over_a_split_errors_of_shapes_name_no_number_of_rows() -> None:
    with (
        split([np.ones((5, 4))]) as parts,
        pytest.raises(ValueError, match=r"together with shapes \(n,4\) \(3,\)"),
    ):
        pipeline(lambda x: x + np.ones(3))(parts)


def test_numbers_in_place_of_rows() -> None:
    scaled = splittable(lambda a, by: a * by, a=Rows(), by=broadcast, returns=Rows())
    added = splittable(lambda a, b: a + b, a=Rows(), b=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        return scaled(x.max(), 0.5), scaled(x, x.max()), added(x, x.sum()), added(x.max(), x[1])

    with options(batch=7):
        found = pipeline(body)(np.arange(30.0))
    expected = body(np.arange(30.0))
    np.testing.assert_equal(found, expected)
    assert list(map(type, found)) == list(map(type, expected))
