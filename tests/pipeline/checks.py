"""How results of pipelines are compared with those of the plain program."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from spliter import SplIterError
from spliter.pipeline import options, pipeline


def bits(value: Any) -> Any:
    """Return dtype, shape and bytes of an array; all NaNs are one."""
    array = np.array(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return array.dtype, array.shape, array.tobytes()


def close(found: Any, expected: Any, rtol: float) -> None:
    """Compare numbers that were added in another order."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


def same(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Compare two results: types, dtypes and shapes, and all bits without a tolerance."""
    if isinstance(expected, tuple | list):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, rtol)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, each in expected.items():
            same(found[key], each, rtol)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected, check_exact=not rtol, rtol=rtol or 1e-5)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(found, expected, check_exact=not rtol, rtol=rtol or 1e-5)
    elif isinstance(expected, pd.Index):
        pd.testing.assert_index_equal(found, expected)
    elif isinstance(expected, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(found, expected)
    elif isinstance(expected, np.ndarray | np.generic):
        assert type(found) is type(expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if rtol:
            close(found, expected, rtol)
        else:
            np.testing.assert_array_equal(found, expected)
            assert found.dtype.kind not in "fc" or bits(found) == bits(expected)
    elif isinstance(expected, float) and rtol:
        close(found, expected, rtol)
    else:
        assert found == expected


def check(body: Callable[..., Any], *args: Any, batch: Any = 7, rtol: float = 0.0) -> Any:
    """Compare a pipeline with the plain program, and that arguments stay as they were."""
    expected, given = body(*copy.deepcopy(args)), copy.deepcopy(args)
    with options(batch=batch, threads=2):
        found = pipeline(body)(*given)
    same(found, expected, rtol)
    same(list(given), list(args))
    return found


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a call returns, or the error by which it is refused."""
    try:
        return function(*args)
    except (SplIterError, ValueError) as error:
        return error


def line_of(fn: Callable[..., Any], ahead: int = 0) -> str:
    """Return a pattern of the file and a line of a function, as messages name it."""
    file = re.escape(fn.__code__.co_filename.rpartition("/")[2])
    return rf"{file}:{fn.__code__.co_firstlineno + ahead}\b"
