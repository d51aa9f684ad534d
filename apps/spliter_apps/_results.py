"""Fetch or combine the results of an application's tasks with as few messages as possible."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from spliter import gather, reduce

MAX_GATHERED_NBYTES = 4 * 2**20
"""Total bytes of partial results up to which the client combines them itself: scheduling the
tasks of a reduction takes longer than transferring so little."""


def wait(future: Any) -> Any:
    """Wait for a task and return its result.

    Parameters
    ----------
    future : future
        A future of any engine.

    Returns
    -------
    object
        The result. The task's error is raised.

    Raises
    ------
    InvalidArgumentError
        If called on the engine's event loop, which must not wait.
    """
    return gather([future])[0]


def combine(fn: Callable[[Any, Any], Any], futures: Sequence[Any], nbytes: int) -> Any:
    """Combine partial results and return the total.

    Parameters
    ----------
    fn : callable
        Associative and commutative; does not change its arguments.
    futures : sequence of future
        At least one.
    nbytes : int
        Approximate size of one result.

    Returns
    -------
    object
        The combined result; combined from left to right if the client does it.
    """
    if len(futures) * nbytes <= MAX_GATHERED_NBYTES:
        return functools.reduce(fn, gather(futures))
    return wait(reduce(fn, futures))
