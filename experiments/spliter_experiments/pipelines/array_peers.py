"""Other ways to run the programs of NumPy: numba and dask.array.

Each library is imported by the way that needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from spliter_experiments.pipelines.variants import Array, Program, Variant, cores

DASK_CHUNKS_PER_CORE = 4
"""Chunks of dask.array: enough to keep the cores busy, few enough that tasks cost nothing."""


def compiled(name: str) -> Variant:
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


def by_dask(program: Program) -> Variant:
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
