"""Find calls that access the same memory, one of which writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from spliter.pipeline._graph import Call, Node

EXACT_WORK: Final = 1000
"""Steps that NumPy may take to find whether two strided views share an element, a few microseconds;
else they count as overlapping."""


def conflicts(earlier: Call, later: Call) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of inputs of two calls that share memory, one of which is written.

    Parameters
    ----------
    earlier, later : Call
        May be the same call; its inputs are then compared with each other.
    """
    if not earlier.writes and not later.writes:
        return
    for one in earlier.inputs:
        for other in later.inputs:
            written = one in earlier.writes or other in later.writes
            same_input = earlier is later and one is other
            if written and not same_input and _overlap(one.data, other.data):
                yield one, other


def same_view(one: Node, other: Node) -> bool:
    """Return whether two values are the same elements in the same order."""
    first, second = one.data, other.data
    if first is second:
        return True
    return (
        isinstance(first, np.ndarray)
        and isinstance(second, np.ndarray)
        and first.__array_interface__ == second.__array_interface__
    )


def _overlap(one: Any, other: Any) -> bool:
    if one is None or other is None:  # the result of a pending call has memory of its own
        return False
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return one is other
    if not np.may_share_memory(one, other):
        return False
    try:
        return bool(np.shares_memory(one, other, max_work=EXACT_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
