"""Entries of the catalog: data, and variants of the same program to run on them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy.typing as npt

from spliter.pipeline import pipeline

Array: TypeAlias = npt.NDArray[Any]
Program: TypeAlias = Callable[..., Any]

Variant: TypeAlias = Callable[..., Callable[[], Any]]
"""Called with the arguments of a program; returns the function to measure. What comes before it,
such as compiling or converting a frame, is not measured."""

PLAIN: Final = "plain"
OURS: Final = "pipeline"
NUMBA: Final = "numba"
DASK: Final = "dask"
POLARS: Final = "polars"


@dataclass(frozen=True)
class Entry:
    """A program and the ways to run it, among them `PLAIN` and `OURS`.

    Given a number of rows and a seed, `make` returns the arguments of the program; `rows` is the
    default. If not `exact`, sums of floats may differ in rounding. `absent` are the ways that
    cannot run the program, with the reasons.
    """

    make: Callable[[int, int], Sequence[Any]]
    rows: int
    ways: Mapping[str, Variant]
    exact: bool = True
    absent: Mapping[str, str] = field(default_factory=dict)


def as_is(program: Program) -> Variant:
    """Return the way that calls a program.

    >>> as_is(max)(2, 3)()
    3
    """
    return lambda *arguments: functools.partial(program, *arguments)


def in_batches(program: Program) -> Variant:
    return lambda *arguments: functools.partial(pipeline(program), *arguments)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def plain_and_pipeline(program: Program) -> dict[str, Variant]:
    return {PLAIN: as_is(program), OURS: in_batches(program)}
