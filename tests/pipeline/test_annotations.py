"""F(x) == Merge(F(pieces)) for every annotation and any cut; wrong annotations are found."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings

from spliter import AnnotationError
from spliter.pipeline import Reduction, Rows, module, options, pipeline, splittable
from spliter.pipeline._annotations import functions_of
from spliter.pipeline._annotations.numpy import FUNCTIONS, Along
from spliter.testing import check_splittable

TOLERANT = {
    *("sum", "mean", "var", "std", "prod", "nansum", "nanprod", "reduce", "median"),
    *("nanmean", "nanvar", "nanstd", "norm", "fft", "ifft"),
}
"""Functions that add floats, in an order that depends on the width of an array in memory."""

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
    np.roll: lambda x: (x, 3),
    np.quantile: lambda x: (x, 0.3),
}

tables = hnp.arrays(
    "f8",
    st.tuples(st.integers(1, 12), st.integers(1, 3)),
    elements=st.integers(-40, 40).map(lambda number: number / 4),
)


def close(one: Any, other: Any, rtol: float) -> None:
    assert (np.shape(one), np.asarray(one).dtype) == (np.shape(other), np.asarray(other).dtype)
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:numpy.fix:DeprecationWarning")
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: getattr(fn, "__qualname__", str(fn)))
@settings(max_examples=max(settings().max_examples // 5, 10))
@given(table=tables, batch=st.integers(1, 14), axis=st.sampled_from([None, 0, 1, -1]))
def test_functions_of_numpy(fn: Any, table: Any, batch: int, axis: int | None) -> None:
    args = OTHER_ARGUMENTS.get(fn, lambda x: (x,))(table)
    kwargs: dict[str, Any] = {}
    if isinstance(FUNCTIONS[fn], Along):
        kwargs["axis"] = axis
    if fn is np.unwrap and axis is None:
        kwargs = {}
    if fn is np.flip or fn.__module__ == "numpy.fft":
        kwargs["axis"] = axis or 0
    rtol = 1e-12 if fn.__name__ in TOLERANT else 0
    expected = fn(*args, **kwargs)
    with options(batch=batch, threads=1):
        found = pipeline(lambda *args: fn(*args, **kwargs))(*args)
    if fn not in (np.empty_like,):
        close(found, expected, rtol)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.unwrap(x, None, 0),
        lambda x: np.percentile(x, [30, 60], axis=1) * 2,
        lambda x: np.percentile(x, q=[30, 60], axis=1) * 2,
        lambda x: np.percentile([1.0, 2.0], x),
        lambda x: np.sum(a=x),
        lambda x: np.median(x, axis=(0, 1)),
        lambda x: np.roll(x.T, 1, 0) * 2 - np.roll(x.T, 1, 1),
    ],
)
def test_arguments_passed_in_unusual_ways(call: Any) -> None:
    table = np.random.default_rng(0).uniform(0, 40, (50, 6))
    with options(batch=7, threads=1):
        close(pipeline(call)(table), call(table), rtol=1e-12)


UFUNCS = {
    ufunc
    for namespace in (np, scipy.special)
    for ufunc in vars(namespace).values()
    if isinstance(ufunc, np.ufunc) and not ufunc.signature and "d" in "".join(ufunc.types)
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", ["d", "f"])
def test_all_ufuncs_of_numpy_and_scipy_give_equal_bits(code: str) -> None:
    """Cuts change neither results nor dtypes, for contiguous, strided and broadcast operands."""
    assert len(UFUNCS) > 250
    draw = np.random.default_rng(3)
    numbers = draw.uniform(0.1, 2.5, (2, 101)).astype(code)[:, ::2]
    checked = 0
    for ufunc in UFUNCS:
        kinds = next((t for t in ufunc.types if set(t[: ufunc.nin]) == {code}), None)
        if kinds is None:
            continue
        args = [numbers[at % 2] for at in range(ufunc.nin)]
        expected = ufunc(*args)
        with options(batch=7, threads=1):
            found = pipeline(lambda *args, ufunc=ufunc: ufunc(*args))(*args)
        np.testing.assert_equal(found, expected, err_msg=ufunc.__name__)
        checked += 1
    assert checked > 120


@pytest.mark.parametrize("name", functions_of("skimage"))
def test_functions_of_skimage(name: str) -> None:
    module, _, function = name.rpartition(".")
    fn = getattr(pytest.importorskip(module), function)
    picture = np.random.default_rng(1).uniform(0.05, 0.9, (20, 3, 3))
    check_splittable(splittable(fn, **functions_of("skimage")[name]), picture)


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of another package."""

    table: Any
    name: str = "statistics"
    value: str = "statistics_annotations:TABLE"

    def load(self) -> Any:
        return self.table


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """A function that has another package offer a table of annotations."""

    def offer(table: Any) -> None:
        def entry_points(group: str, name: str) -> list[EntryPoint]:
            is_asked = (group, name) == ("spliter.annotations", "statistics")
            return [EntryPoint(table)] if is_asked else []

        monkeypatch.setattr("spliter.pipeline._annotations.metadata.entry_points", entry_points)

    functions_of.cache_clear()
    yield offer
    functions_of.cache_clear()


@pytest.mark.parametrize("table", [["statistics.fmean"], {"statistics.fmean": {"data": Rows()}}])
def test_tables_of_other_packages_that_are_wrong(offer: Any, table: Any) -> None:
    offer(table)
    with pytest.raises(AnnotationError, match="statistics_annotations:TABLE, must be a dict"):
        module("statistics").fmean([1.0, 2.0])


def test_other_packages_bring_annotations(offer: Any) -> None:
    offer({"statistics.fmean": {"data": Rows(), "returns": Reduction(merge=max)}})
    statistics = module("statistics")
    with options(batch=2):
        assert pipeline(statistics.fmean)([1.0, 2.0, 3.0, 5.0]) == 4.0
    assert statistics.median([1, 2, 3]) == 2
    for other in (copy.copy(statistics), pickle.loads(pickle.dumps(statistics))):
        assert other.median([1, 2, 3]) == 2


def blur(x: Any) -> Any:
    return np.convolve(x, np.ones(3) / 3, mode="same")


def rank(x: Any) -> Any:
    return x.argsort().argsort()


def running(x: Any) -> Any:
    return np.cumsum(x)


def dropped(x: Any) -> Any:
    return x[x > 3]


def counted(x: Any) -> Any:
    return len(x)


@pytest.mark.parametrize(
    ("fn", "returns"),
    [
        (blur, Rows()),
        (rank, Rows()),
        (running, Rows()),
        (dropped, Rows()),
        (counted, Rows()),
        (counted, Reduction(merge=max)),
    ],
)
def test_wrong_annotations_are_found(fn: Any, returns: Any) -> None:
    with pytest.raises(AnnotationError):
        check_splittable(splittable(fn, x=Rows(), returns=returns), np.arange(10.0)[::-1])


@pytest.mark.parametrize(
    "body",
    [
        lambda f, x: f(x) + x,
        lambda f, x: f(y := x[x > 1]) + y,
        lambda f, x: f(x)[:, None] + np.ones(3),
        lambda f, x: f(x + 1).sum(),
    ],
)
@pytest.mark.parametrize("result", [lambda x: x[:1], lambda x: None, lambda x: [1.0]])
def test_results_of_another_length_are_found_where_the_next_call_takes_them(
    body: Any, result: Any
) -> None:
    def wrong(x: Any) -> Any:
        return result(x)

    fn = splittable(wrong, x=Rows(), returns=Rows())
    with options(batch=5), pytest.raises(AnnotationError, match=r"wrong .*returned .* batch of"):
        pipeline(lambda x: body(fn, x))(np.arange(8.0))


def test_right_annotations_pass() -> None:
    check_splittable(
        splittable(counted, x=Rows(), returns=Reduction(merge=lambda a, b: a + b)), np.arange(10.0)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": Rows(), "returns": Rows()}, "no parameter 'y'; its parameters are x"),
        ({"x": "rows", "returns": Rows()}, "'rows', which is not a split type"),
    ],
)
def test_annotations_that_cannot_be_meant(arguments: Any, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        splittable(counted, **arguments)
