"""F(x) == merge(F(pieces)) to the bit, for every annotation of the tables and any cut."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings

from spliter.pipeline import options, pipeline, splittable
from spliter.pipeline._annotations import functions_of
from spliter.pipeline._annotations.numpy import FUNCTIONS
from spliter.testing import check_splittable
from tests.pipeline.checks import bits, same

ADDS = {
    *("sum", "mean", "var", "std", "prod", "nansum", "nanprod", "reduce", "median"),
    *("nanmean", "nanvar", "nanstd", "norm", "fft", "ifft"),
}
"""Functions that add floats, in an order that depends on the batch."""

OTHER_ARGUMENTS: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    np.where: lambda x: (x > 0, x, 2.0),
    np.clip: lambda x: (x, -1.0, x + 1),
    np.isclose: lambda x: (x, np.round(x)),
    np.interp: lambda x: (x, np.array([-5.0, 0.0, 5.0]), np.array([0.0, 1.0, 4.0])),
    np.digitize: lambda x: (x, np.array([-5.0, 0.0, 5.0])),
    np.searchsorted: lambda x: (np.array([-5.0, 0.0, 5.0]), x),
    np.isin: lambda x: (x, [0.0, 1.0, 2.0]),
    np.full_like: lambda x: (x, 7),
    np.bitwise_or.reduce: lambda x: (x.astype(int),),
    np.bitwise_and.reduce: lambda x: (x.astype(int),),
    np.bitwise_xor.reduce: lambda x: (x.astype(int),),
    np.percentile: lambda x: (x, 30),
    np.quantile: lambda x: (x, 0.3),
    np.roll: lambda x: (x, 3),
}

tables = hnp.arrays(
    st.sampled_from(["f8", "f4", "i8"]),
    st.tuples(st.integers(1, 12), st.integers(1, 3)),
    elements=st.integers(-40, 40),
)


def named(fn: Any) -> str:
    return getattr(fn, "__qualname__", str(fn)) if fn.__name__ != "reduce" else str(fn)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix:DeprecationWarning")
@pytest.mark.parametrize("fn", FUNCTIONS, ids=named)
@settings(max_examples=max(settings().max_examples // 4, 8))
@given(table=tables, batch=st.integers(1, 14), axis=st.sampled_from([..., None, 0, 1, -1]))
def test_functions_of_numpy(fn: Any, table: Any, batch: int, axis: Any) -> None:
    args = OTHER_ARGUMENTS.get(fn, lambda x: (x,))(table)
    kwargs = {} if axis is ... else {"axis": axis}
    try:
        expected = fn(*args, **kwargs)
    except (TypeError, ValueError, IndexError):  # it takes no axis, or not this one
        kwargs = {}
        try:
            expected = fn(*args)
        except TypeError:  # not for this dtype
            return
    with options(batch=batch, threads=1):
        found = pipeline(lambda *args: fn(*args, **kwargs))(*args)
    if fn.__name__ not in ADDS or (table.dtype.kind == "i" and expected.dtype.kind in "iu"):
        same(found, expected)
    else:
        same(found, expected, rtol=1e-5 if table.dtype == np.float32 else 1e-12)


def elementwise() -> list[np.ufunc]:
    """Return all ufuncs of NumPy and SciPy that work element by element."""
    spaces = (np, scipy.special)
    found = {each for space in spaces for each in vars(space).values() if type(each) is np.ufunc}
    return sorted((each for each in found if not each.signature), key=lambda each: each.__name__)


def strided(ufunc: Any, code: str, step: int, seed: int) -> Any:
    """Return an array with a stride; for NumPy's ufuncs some of its elements are special.

    Some of SciPy's end the process for such ones, or loop for minutes.
    """
    draw = np.random.default_rng(seed)
    values = draw.uniform(0.1, 2.5, 600)
    if ufunc.__name__ in dir(np):
        values = draw.choice([0.0, 1.0, 2.0, -3.0, 0.25, 60.0], 600) + draw.integers(-2, 3, 600)
        if code in "fd":
            values[::150] = np.inf, np.nan, 1e300, -0.0
    with np.errstate(all="ignore"):
        return values.astype(code)[::step][:200]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the bits, the warnings, or the error of a call."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except (FloatingPointError, TypeError, ValueError) as error:
            return type(error), str(error)
    parts = result if isinstance(result, tuple) else (result,)
    return [bits(each) for each in parts], sorted({str(each.message) for each in seen})


@pytest.mark.parametrize("code", ["f", "d", "q"])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_all_ufuncs_of_numpy_and_scipy_give_equal_bits(code: str, step: int) -> None:
    """Cuts change neither results nor dtypes nor warnings."""
    checked = 0
    for ufunc in elementwise():
        kinds = [each for each in ufunc.types if set(each[: ufunc.nin]) == {code}]
        if kinds:
            given = [strided(ufunc, code, step, seed) for seed in range(ufunc.nin)]
            with options(batch=67, threads=2):
                found = outcome(pipeline(lambda *args, call=ufunc: call(*args)), *given)
            assert found == outcome(ufunc, *given), ufunc.__name__
            checked += 1
    assert checked > {"f": 200, "d": 250, "q": 30}[code]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::-1],
        lambda x: x.T[:, ::-1],
        lambda x: x[:, ::2],
        lambda x: x[:, :90],
        lambda x: np.asfortranarray(x)[::-1],
    ],
    ids=["reversed rows", "turned", "gaps", "columns", "fortran"],
)
def test_tables_with_strides_have_equal_bits(view: Any, dtype: str) -> None:
    draw = np.random.default_rng(3)
    tables = [view(draw.normal(size=(35, 130)).astype(dtype) * 3) for _ in range(2)]
    for ufunc in (each for each in elementwise() if each.__name__ in dir(np)):
        given = tables[: ufunc.nin]
        if len(given) < ufunc.nin:
            continue
        with np.errstate(all="ignore"), options(batch=6, threads=1):
            expected = outcome(ufunc, *given)
            if not isinstance(expected[0], type):
                assert outcome(pipeline(ufunc), *given) == expected, ufunc.__name__


pictures = hnp.arrays(
    "f8",
    st.tuples(st.integers(2, 20), st.integers(1, 3), st.just(3)),
    elements=st.floats(0.05, 0.9),
)


@pytest.mark.parametrize("name", functions_of("skimage"))
@settings(max_examples=max(settings().max_examples // 4, 8))
@given(picture=pictures)
def test_functions_of_libraries(name: str, picture: Any) -> None:
    module, _, function = name.rpartition(".")
    fn = getattr(pytest.importorskip(module), function)
    check_splittable(splittable(fn, **functions_of("skimage")[name]), picture)


@given(
    values=st.lists(st.integers(-100, 100), min_size=1, max_size=60),
    dtype=st.sampled_from(["i4", "u1", "f8", "m8[s]", "?"]),
    batches=st.lists(st.integers(1, 70), min_size=2, max_size=2),
)
def test_integers_and_extremes_are_exact_and_equal_batches_give_equal_bits(
    values: list[int], dtype: str, batches: list[int]
) -> None:
    array = np.array(values).astype(dtype)

    def exact(x: Any) -> Any:
        return x.min(), x.max(), x.argmin(), x.argmax(), np.count_nonzero(x), x.any(), x.all()

    def sums(x: Any) -> Any:
        return x.astype("f8") / 3, (x.astype("f8") / 3).sum(), x.astype("f8").std()

    for batch in batches:
        with options(batch=batch, threads=2):
            same(pipeline(exact)(array), exact(array))
            if dtype in ("i4", "u1"):
                same(pipeline(lambda x: (x.sum(), x.prod()))(array), (array.sum(), array.prod()))
            first = pipeline(sums)(array)
        with options(batch=batch, threads=1):
            same(pipeline(sums)(array), first)


@pytest.mark.parametrize("name", ["mean", "var", "std", "sum", "prod", "any", "all"])
def test_reductions_of_few_rows_or_none_warn_as_numpys(name: str) -> None:
    def body(x: Any) -> Any:
        few = x[x[:, 0] > 9]
        kwargs = {"ddof": 2} if name in ("var", "std") else {}
        return getattr(few, name)(axis=0), getattr(few, name)(**kwargs)

    for largest in (0.0, 10.0):
        table = np.random.default_rng(0).uniform(0, 1, (20, 3))
        table[7, 0] = largest
        results, warned = [], []
        for run in (pipeline(body), body):
            with options(batch=6), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                results.append(run(table))
                warned.append(bool(seen))
        same(results[0], results[1], rtol=1e-12)
        assert warned[0] == warned[1]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16"])
def test_sums_are_as_near_as_those_of_any_order(dtype: str) -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=3000).astype(dtype)
    exact = functools.partial(np.sum, dtype="c16" if dtype == "c16" else "f8")
    bound = len(values) * np.finfo(dtype).eps * np.abs(values.astype("c16")).sum()
    for batch in (7, 100, 2999):
        with options(batch=batch):
            total, mean = pipeline(lambda x: (x.sum(), x.mean()))(values)
        assert abs(total - exact(values)) <= bound
        assert abs(mean - exact(values) / len(values)) <= bound / len(values)
