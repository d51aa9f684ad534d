"""Results have NumPy's order in memory, so views of them are views where NumPy's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter.pipeline import options, pipeline

TABLE = np.random.default_rng(0).random((90, 80))
CUBE = np.random.default_rng(1).random((5, 70, 4))
ARRAYS = {
    "C": TABLE,
    "Fortran": np.asfortranarray(TABLE),
    "backwards": np.asfortranarray(TABLE)[::-1, ::-1],
    "part": np.asfortranarray(TABLE)[3:50:2],
    "wide": TABLE[:3],
    "tall": TABLE[:, :3],
    "cube": CUBE,
    "turned cube": CUBE.transpose(2, 0, 1),
    "thin": TABLE[:2, None, None, :70].copy(),
}


def assigned(x: Any) -> Any:
    result = x * 2
    result[:] = np.ascontiguousarray(x)
    return result


def written(x: Any) -> Any:
    result = np.zeros_like(x)
    return np.multiply(x, 2, out=result)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "ufunc": lambda x: x * 2,
    "two orders": lambda x: x + np.ascontiguousarray(x),
    "a row": lambda x: x - x[:1],
    "a column": lambda x: x * np.arange(x.shape[-2])[:, None] - x / 3,
    "centred": lambda x: x - x.mean(axis=0),
    "missing": lambda x: np.isnan(np.where(x > 0.5, np.nan, x)),
    "finite": lambda x: np.isfinite(1 / (x > 0.5)),
    "flags": lambda x: np.isfinite(x) & ~(np.isnan(-x) | ~np.isfinite(x * 2)),
    "power": lambda x: x**2 + 1,
    "where": lambda x: np.where(x > 0.5, x * 2, 0.0) + 1,
    "copy": lambda x: (x * 2).copy(),
    "numpy.copy": lambda x: np.copy(x * 2) + 1,
    "sort": lambda x: np.sort(x, axis=0),
    "argsort": lambda x: np.argsort(x * 2, axis=0),
    "cumsum": lambda x: np.cumsum(x, axis=1) * 2,
    "roll": lambda x: np.roll(x, 1, axis=1) * 2,
    "fft": lambda x: np.fft.fft(x, axis=0),
    "astype": lambda x: (x * 3).astype("f4"),
    "searchsorted": lambda x: np.searchsorted([0.2, 0.5], x) * 2,
    "isin": lambda x: np.isin(x, [0.5]),
    "full_like": lambda x: np.full_like(x, 2.0),
    "two results": lambda x: np.modf(x * 5)[1],
    "assigned": assigned,
    "written": written,
    "chosen": lambda x: (x * 2)[x.reshape(len(x), -1).sum(axis=1) > 1],
    "turned": lambda x: (x * 2).T + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("order", ARRAYS)
def test_results_are_laid_out_like_those_of_the_plain_program(name: str, order: str) -> None:
    body, x = PROGRAMS[name], ARRAYS[order]
    with np.errstate(divide="ignore"):
        expected = body(x.copy(order="K"))
    for batch in (1, 7, 40):
        with options(batch=batch, threads=2), np.errstate(divide="ignore"):
            found = pipeline(body)(x.copy(order="K"))
        if name == "centred":  # means of other batches are rounded otherwise
            np.testing.assert_allclose(found, expected, atol=1e-12)
        else:
            np.testing.assert_array_equal(found, expected, strict=True)
        assert found.strides == expected.strides


@pytest.mark.parametrize("order", ARRAYS)
def test_a_change_through_ravel_reaches_the_array_where_it_does_in_numpy(order: str) -> None:
    def body(x: Any) -> Any:
        result = np.sqrt(x)
        result.ravel()[:7] = 0
        return result

    x = ARRAYS[order]
    with options(batch=40):
        np.testing.assert_array_equal(pipeline(body)(x), body(x))


def test_a_result_may_be_written_into_an_array_that_is_cut_across_its_rows() -> None:
    x = np.where(ARRAYS["wide"] > 0.5, np.nan, 1.0)
    found = np.ones(x.shape, bool)
    with options(batch=7):
        pipeline(lambda values: np.isnan(values, out=found))(x)
    np.testing.assert_array_equal(found, np.isnan(x))
