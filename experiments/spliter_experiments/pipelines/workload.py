"""Base of the workloads: their data, and the ways to run the same program."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from spliter.pipeline import pipeline

Array: TypeAlias = npt.NDArray[Any]
Program: TypeAlias = Callable[..., Any]

Way: TypeAlias = Callable[..., Callable[[], Any]]
"""Called with the arguments of a program; returns the function to measure. What comes before it,
such as compiling or converting a frame, is not measured."""

PLAIN: Final = "plain"
OURS: Final = "pipeline"
NUMBA: Final = "numba"
NUMEXPR: Final = "numexpr"
BLOSC2: Final = "blosc2"
DASK: Final = "dask"
POLARS: Final = "polars"
PROCESSES: Final = "processes"

RELATIVE, ABSOLUTE = 1e-9, 1e-9
"""Differences allowed where a way may round otherwise: other libraries have other functions."""


@dataclass(frozen=True)
class Workload:
    """A program and the ways to run it.

    Parameters
    ----------
    make : callable
        Given a number of rows and a seed, returns the arguments of the program.
    rows : int
        Rows by default.
    ways : mapping of str to Way
        Ways by name, among them `PLAIN` and `OURS`.
    exact : bool
        Whether `OURS` gives the bits of `PLAIN`; else sums of floats may differ in rounding.
    absent : mapping of str to str
        Ways that cannot run the program, with the reasons.
    """

    make: Callable[[int, int], Sequence[Any]]
    rows: int
    ways: Mapping[str, Way]
    exact: bool = True
    absent: Mapping[str, str] = field(default_factory=dict)


def as_is(program: Program) -> Way:
    """Return the way that calls a program.

    Examples
    --------
    >>> as_is(max)(2, 3)()
    3
    """
    return lambda *arguments: functools.partial(program, *arguments)


def in_batches(program: Program) -> Way:
    """Return the way that runs a program as a pipeline, with a thread per core."""
    return lambda *arguments: functools.partial(pipeline(program), *arguments)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def plain_and_pipeline(program: Program) -> dict[str, Way]:
    """Return the two ways that every workload has."""
    return {PLAIN: as_is(program), OURS: in_batches(program)}


def same(left: Any, right: Any, exact: bool, relative: float = RELATIVE) -> bool:
    """Return whether two results are equal: in each bit, or within `relative` and `ABSOLUTE`.

    Results are arrays, frames, numbers, or lists and tuples of them.

    Examples
    --------
    >>> same((1.0, [2.0]), (1.0, [2.0 + 1e-12]), exact=False)
    True
    >>> same(1.0, 1.0 + 1e-12, exact=True)
    False
    """
    left, right = _parts(left), _parts(right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(same(*pair, exact, relative) for pair in pairs)
    return _same_values(np.asarray(left), np.asarray(right), exact, relative)


def _parts(value: Any) -> Any:
    """Return index, columns and values of a frame or series, and other values as they are."""
    if isinstance(value, pd.DataFrame):
        return [np.asarray(value.index.tolist()), [*value.columns], value.to_numpy()]
    if isinstance(value, pd.Series):
        return [np.asarray(value.index.tolist()), value.to_numpy()]
    return value


def _same_values(left: Array, right: Array, exact: bool, relative: float) -> bool:
    if left.shape != right.shape or (exact and left.dtype != right.dtype):
        return False
    if left.dtype.kind not in "fc":
        return bool(np.all((left == right) | (pd.isna(left) & pd.isna(right))))
    if exact:
        return left.tobytes() == right.tobytes()
    return np.allclose(left, right, relative, ABSOLUTE, equal_nan=True)
