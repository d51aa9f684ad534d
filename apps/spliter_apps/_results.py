"""How an application gets at what its tasks return: with the fewest hops that the size allows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from spliter import gather, reduce

MOST_GATHERED_NBYTES = 4 * 2**20
"""Bytes of partial results that are added up here rather than by tasks: below that, the tasks
of a reduction take longer to go through a scheduler than the results take to come."""


def wait(future: Any) -> Any:
    """Wait for a task and return its result.

    Parameters
    ----------
    future : future
        Of any engine.

    Returns
    -------
    object
        The result; what the task raised is raised.

    Raises
    ------
    InvalidArgumentError
        If this is the engine's event loop, which must not wait.
    """
    return gather([future])[0]


def combine(fn: Callable[[Any, Any], Any], futures: Sequence[Any], nbytes: int) -> Any:
    """Combine partial results and return what comes of it.

    Parameters
    ----------
    fn : callable
        Associative and commutative; does not change its arguments.
    futures : sequence of future
        One at least.
    nbytes : int
        About the size of one result.

    Returns
    -------
    object
        The combined result, from left to right where the results are gathered here.
    """
    if len(futures) * nbytes <= MOST_GATHERED_NBYTES:
        return functools.reduce(fn, gather(futures))
    return wait(reduce(fn, futures))
