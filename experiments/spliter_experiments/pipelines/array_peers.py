"""Other ways to run the programs of NumPy: numba, numexpr, blosc2 and dask.array.

Each library is imported by the way that needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from spliter_experiments.pipelines.arrays import EARTH_MILES, HERE
from spliter_experiments.pipelines.workload import Array, Program, Way, cores

DASK_CHUNKS_PER_CORE = 4
"""Chunks of dask.array: enough to keep the cores busy, few enough that tasks cost nothing."""


def compiled(name: str) -> Way:
    """Return the way that runs a function of :mod:`.numba_loops`, compiled in the first round."""

    def prepare(*arguments: Any) -> Callable[[], Any]:
        return functools.partial(_compiled(name), *arguments)

    return prepare


@functools.cache
def _compiled(name: str) -> Program:
    import numba

    from spliter_experiments.pipelines import numba_loops

    parallel: Program = numba.njit(parallel=True)(getattr(numba_loops, name))
    return parallel


def by_expression(text: str, names: str, **constants: float) -> Way:
    """Return the way that evaluates one expression with numexpr."""

    def prepare(*arguments: Array) -> Callable[[], Any]:
        import numexpr

        numexpr.set_num_threads(cores())
        named = {**dict(zip(names.split(), arguments, strict=True)), **constants}
        return lambda: numexpr.evaluate(text, local_dict=named)

    return prepare


HAVERSINE_TEXT = (
    "2 * miles * arcsin(sqrt(sin((lat - lat0) / 2) ** 2"
    " + cos(lat0) * cos(lat) * sin((lon - lon0) / 2) ** 2))"
)
haversine_expression = by_expression(
    HAVERSINE_TEXT, "lat lon", miles=EARTH_MILES, lat0=HERE[0], lon0=HERE[1]
)
ten_adds_expression = by_expression("x" + " + y" * 10, "x y")


def by_blosc2(program: Program) -> Way:
    """Return the way that fuses a program with ``blosc2.jit``."""

    def prepare(*arguments: Array) -> Callable[[], Any]:
        import blosc2

        return functools.partial(blosc2.jit(program), *arguments)

    return prepare


def by_dask(program: Program) -> Way:
    """Return the way that runs a program on arrays of Dask, with threads in this process."""

    def prepare(*arguments: Array) -> Callable[[], Any]:
        import dask
        import dask.array as da

        def measured() -> Any:
            chunks = -(-len(arguments[0]) // (DASK_CHUNKS_PER_CORE * cores()))
            result = program(*(da.from_array(one, (chunks, *one.shape[1:])) for one in arguments))
            (found,) = dask.compute(result, scheduler="threads", num_workers=cores())
            return found

        return measured

    return prepare
