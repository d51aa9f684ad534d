"""Keep the last pass over each partition, in the process that ran it until the program asks."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from spliter._planning.passes import Pass
from spliter._planning.planner import Location
from spliter.metrics._prometheus import Totals

MAX_SPLITS: Final = 64
"""Splits whose records a process keeps: those measured last. A record takes 12 bytes per block."""

STOLEN: Final[ContextVar[bool]] = ContextVar("stolen", default=False)
"""Whether the current thread of a team took its partition from the queue of another one."""


class Records:
    """The last pass over each partition, for the Splits measured last; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._splits: OrderedDict[str, dict[tuple[int, int], Pass]] = OrderedDict()
        self._left: deque[Pass] = deque()

    def add_later(self, one: Pass) -> None:
        """Add a pass from a destructor: it may run while its own thread holds the locks."""
        self._left.append(one)

    def _settle(self) -> None:
        while self._left:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._add(self._left.popleft())

    def add(self, one: Pass) -> None:
        """Add a pass that ended in this process, or in one that no longer exists."""
        self._settle()
        self._add(one)

    def _add(self, one: Pass) -> None:
        TOTALS.add(
            passes=1,
            blocks=len(one.positions),
            bytes=one.nbytes,
            seconds=one.duration,
            cpu_seconds=one.cpu,
            waiting_seconds=one.waiting,
            unused_reads=one.unused,
            steals=one.stolen,
        )
        self.keep([one])

    def keep(self, passes: Iterable[Pass]) -> None:
        """Keep passes that another process has counted."""
        with self._lock:
            for one in passes:
                self._splits.setdefault(one.split, {})[one.key] = one
                self._splits.move_to_end(one.split)
            while len(self._splits) > MAX_SPLITS:
                self._splits.popitem(last=False)

    def of(self, split: str) -> list[Pass]:
        """Return the passes over a Split."""
        self._settle()
        with self._lock:
            return list(self._splits.get(split, {}).values())

    def take(self, split: str) -> list[Pass]:
        """Remove and return the passes over a Split."""
        self._settle()
        with self._lock:
            return list(self._splits.pop(split, {}).values())

    def take_all(self) -> list[Pass]:
        """Remove and return the passes over all Splits."""
        self._settle()
        with self._lock:
            tokens = list(self._splits)
        return [one for token in tokens for one in self.take(token)]


def take_passes(split: str, location: Location) -> list[Pass]:
    """Return the passes over a Split that ended in this process; the body of a task."""
    return [replace(one, place=location) for one in RECORDS.take(split)]


RECORDS: Final = Records()
"""The records of this process."""

TOTALS: Final = Totals()
"""The counters of this process."""
