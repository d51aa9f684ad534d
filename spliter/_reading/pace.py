"""Decide how many items a loop begins before their turn, from measured times alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias

import numpy as np

from spliter._errors import InvalidArgumentError

Prefetch: TypeAlias = Literal["auto", False] | int

MAX_DEPTH: Final = 32
"""Blocks that "auto" reads ahead at most: as many requests at once as a store still serves well."""

WORTHWHILE_SECONDS: Final = 0.001
"""Reads that are faster are left to the loop: handing one to a thread and back takes 0.1 ms,
several times that while other threads compute."""

SLACK: Final = 1.5
"""Seconds of a typical read over those of the fastest one. Over a store 20 ms away, with 5 ms of
work on each block, loops that read 6 blocks ahead take 0.53 s, 8 blocks 0.49 s."""


def check_prefetch(value: object) -> None:
    """Reject values other than "auto", False and numbers of blocks."""
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0
    if not (is_number or value is False or (isinstance(value, str) and value == "auto")):
        raise InvalidArgumentError(
            f'prefetch must be "auto", False or an int >= 1 (blocks to read ahead), got {value!r}'
        )


def next_depth(
    depth: int,
    waited: float,
    fastest: float,
    worked: float,
    worthwhile: float = WORTHWHILE_SECONDS,
) -> int:
    """Return how many blocks to read ahead.

    Parameters
    ----------
    depth : int
        The number so far; 0 if the loop has read its last block itself.
    waited : float
        Seconds that the loop has waited for its last block.
    fastest : float
        Seconds of the fastest read so far: the one that shared the store with the fewest others.
    worked : float
        Seconds that the loop works on a block.
    worthwhile : float
        Seconds of the fastest read that threads are used for.

    Returns
    -------
    int
        If the loop has waited, as many as it can work on during a typical read, or one more than
        before, up to twice as many: single reads may be slow, and a store that serves one read
        after the other is not faster for more of them. Otherwise one less, if there are more.

    Examples
    --------
    >>> next_depth(1, waited=0.020, fastest=0.020, worked=0.005)
    7
    >>> next_depth(5, waited=0, fastest=0.020, worked=0.010)
    4
    >>> next_depth(0, waited=0.020, fastest=0.020, worked=0.005)
    1
    >>> next_depth(5, waited=0.0001, fastest=0.0001, worked=0.005)
    0
    """
    if fastest < worthwhile:
        return 0
    if not depth:
        return 1
    typical = SLACK * fastest
    enough = min(math.ceil(typical / max(worked, typical / MAX_DEPTH)) + 1, MAX_DEPTH)
    if waited > worked / 20:
        return min(max(depth + 1, enough), 2 * enough, MAX_DEPTH)
    return max(depth - 1, enough) if depth > enough else depth


class Pace:
    """How many items loops begin ahead, and the times it was decided from.

    Loops that follow each other in a thread share one. `worthwhile` are the seconds of the fastest
    read that threads are used for, `start` is the number for "auto" until something was measured.
    """

    def __init__(
        self, prefetch: Prefetch, worthwhile: float = WORTHWHILE_SECONDS, start: int = 0
    ) -> None:
        self._worthwhile = worthwhile
        self.is_auto: bool = prefetch == "auto"
        self.depth: int = int(prefetch) if prefetch != "auto" else start
        self._worked: float | None = None
        self._fastest = math.inf
        self._waited = 0.0

    def add_wait(self, seconds: float, read: float) -> None:
        """Take into account how long the loop has waited for an item, and how long a read took.

        That is infinite if nothing was read.
        """
        self._waited, self._fastest = seconds, min(self._fastest, read)
        if self._worked is None:
            self.add_work(seconds)  # as if it worked as long as it waited
            self._worked = None

    def add_work(self, seconds: float) -> None:
        """Take into account how long the loop has worked on an item, and decide on the depth."""
        if not self.is_auto or self._fastest == math.inf:
            return
        mean = self._worked
        # Recent items count most, and one of them alone does not decide.
        self._worked = seconds if mean is None else (3 * mean + seconds) / 4
        times = self._waited, self._fastest, self._worked
        self.depth = next_depth(self.depth, *times, self._worthwhile)


Following: TypeAlias = Callable[[Pace, int], None]
"""Reads so many blocks of what the thread runs next; called by a loop with nothing left to read."""

FOLLOWING: Final[ContextVar[Following | None]] = ContextVar("following", default=None)
"""That of the current thread of a team."""
