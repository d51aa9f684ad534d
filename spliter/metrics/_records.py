"""Measure iterations over partitions, and keep the last one of each.

Two clock readings per block, one before it is read and one after; nothing is sent. The records stay
in the process that runs the task until the program asks for them::

    for block in partition:      read | compute | read | compute | ... | end
                                 waiting  seconds[0]     seconds[1]
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from spliter._grid import IntArray
from spliter._planner import Location
from spliter._read_ahead import LookAhead
from spliter._unsupported import checked
from spliter.metrics._prometheus import Totals

MAX_SPLITS: Final = 64
"""Splits whose records a process keeps: those measured last. A record takes 12 bytes per block."""

STOLEN: Final[ContextVar[bool]] = ContextVar("stolen", default=False)
"""Whether the current thread of a team took its partition from the queue of another one."""


@dataclass(frozen=True, eq=False)
class Pass:
    """One iteration over a partition, from the request of the first block to the end of the last.

    Parameters
    ----------
    split : str
        Token of its Split.
    positions : ndarray of int64, shape (n,)
        C-order positions of the blocks in the collection.
    nbytes : int
        Bytes of the blocks.
    thread : tuple of int
        Process and thread that ran it.
    begun : float
        Time of the first request, in seconds since the epoch.
    duration, cpu : float
        Seconds that passed, and that the thread computed.
    seconds : ndarray of float32, shape (m,)
        Seconds between receiving each block and requesting the next one; fewer than blocks if the
        iteration was left early.
    waiting : float
        Seconds spent reading blocks.
    stolen : bool
        Whether a thread took the partition from the queue of another one.
    place : Location or None
        Where it ran, if that is known.
    read_ahead, unused : int
        Blocks that were read ahead, at most; reads of blocks or records that were not used, because
        the loop was left before.
    """

    split: str
    positions: IntArray
    nbytes: int
    thread: tuple[int, int]
    begun: float
    duration: float
    cpu: float
    seconds: npt.NDArray[np.float32]
    waiting: float
    stolen: bool = False
    place: Location | None = None
    read_ahead: int = 0
    unused: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """What distinguishes the partition from others of the same plan."""
        return key_of(self.positions)

    @property
    def ended(self) -> float:
        """Time of its end, in seconds since the epoch."""
        return self.begun + self.duration

    @property
    def is_whole(self) -> bool:
        """Whether every block was measured by itself."""
        return len(self.seconds) == len(self.positions)


def key_of(positions: IntArray) -> tuple[int, int]:
    """Return what distinguishes a partition from others of the same plan."""
    return int(positions[0]), len(positions)


class MeasuredBlocks(Iterator[Any]):
    """An iterator over blocks that measures its iteration.

    It keeps no reference to a block that it has returned: the program may release that before it
    requests the next one.

    Parameters
    ----------
    blocks : iterator
        The blocks.
    split : str
        Token of the Split.
    positions : ndarray of int64, shape (n,)
        C-order positions of the blocks in the collection.
    nbytes : int
        Bytes of the blocks.
    """

    def __init__(self, blocks: Iterator[Any], split: str, positions: IntArray, nbytes: int) -> None:
        self._blocks = blocks
        self._of = split, positions, nbytes
        self._seconds: list[float] = []
        self._waiting = 0.0
        self._begun = self._given = self._cpu = 0.0
        self._thread = 0
        self._has_ended = False
        self._kind: type | None = None  # of the last block: most loops have blocks of one kind

    def __next__(self) -> Any:
        asked = time.perf_counter()
        if self._begun:
            self._seconds.append(asked - self._given)
        else:
            self._begun, self._cpu, self._thread = asked, time.thread_time(), threading.get_ident()
        try:
            block = next(self._blocks)
            kind = type(block)
            if kind is not self._kind or kind is tuple:
                checked(block)
                self._kind = kind
            return block
        except StopIteration:
            if not self._has_ended:
                RECORDS.add(self._end())
            raise
        except BaseException:
            self._has_ended = True  # nothing to learn from it
            raise
        finally:
            self._given = time.perf_counter()
            self._waiting += self._given - asked

    def __del__(self) -> None:
        if self._begun and not self._has_ended:  # the program has left the loop early
            self._seconds.append(time.perf_counter() - self._given)
            RECORDS.add_later(self._end())

    def _end(self) -> Pass:
        self._has_ended = True
        # Between the two readings of the other clock, so that no thread computes longer.
        cpu = time.thread_time()
        duration = time.perf_counter() - self._begun
        here = threading.get_ident()
        ahead = self._blocks if isinstance(self._blocks, LookAhead) else None
        if ahead is not None:
            ahead.close()
        return Pass(
            *self._of,
            thread=(os.getpid(), here),
            begun=time.time() - duration,
            duration=duration,
            # The clock of a thread says nothing to another one.
            cpu=cpu - self._cpu if here == self._thread else 0.0,
            seconds=np.array(self._seconds, np.float32),
            waiting=self._waiting,
            stolen=STOLEN.get(),
            read_ahead=0 if ahead is None else ahead.deepest,
            unused=0 if ahead is None else ahead.unused,
        )


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
