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
    """Wait for a task of any engine; return its result, or raise its error."""
    return gather([future])[0]


def combine(fn: Callable[[Any, Any], Any], futures: Sequence[Any], nbytes: int) -> Any:
    """Combine partial results of about `nbytes` bytes each, and return the total.

    `fn` is associative and commutative, and does not change its arguments.
    """
    if len(futures) * nbytes <= MAX_GATHERED_NBYTES:
        return functools.reduce(fn, gather(futures))
    return wait(reduce(fn, futures))
