"""Read the next blocks of a partition while the loop works on this one.

A source of blocks that are stored offers them as :class:`Fetches`. Threads of the process then read
as many of the following blocks as keep the loop from waiting::

    loop      read 0 | work 0 | work 1 | work 2 | work 3 | ...
    threads            read 1 -------|
                       read 2 ---------------|
                         read 3 ---------------|

How many is decided from measured times alone (:func:`next_depth`), and bounded by the bytes that
all loops at one location may hold (:class:`Window`). The loop reads a block itself if no thread has
begun to.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from spliter._errors import InvalidArgumentError

Prefetch: TypeAlias = Literal["auto", False] | int

WINDOW_NBYTES: Final = 64 * 2**20
"""Bytes that the loops at one location may hold read ahead: enough for 50 reads of a megabyte,
small next to the memory of a core."""

MAX_DEPTH: Final = 32
"""Blocks that "auto" reads ahead at most: as many requests at once as a store still serves well."""

MAX_THREADS: Final = 64
"""Threads of a process that read. A block whose turn comes before a thread is free is read by its
loop."""

WORTHWHILE_SECONDS: Final = 0.001
"""Reads that are faster are left to the loop: handing one to a thread and back takes 0.1 ms,
several times that while other threads compute."""

CLOSE_SECONDS: Final = 5.0
"""Maximum wait, when a Split is closed, for reads of loops that were left early."""


@dataclass(frozen=True, eq=False)
class Fetches:
    """The blocks of a partition as reads that may run in threads of the process.

    Parameters
    ----------
    read : callable
        Takes the number of a block in the partition and returns the block, or a tuple of aligned
        blocks. Called once for each number; in any order and in several threads at once.
    nbytes : sequence of int
        Bytes of each block.
    prefetch : "auto", False or int
        How many blocks to read ahead; option of :func:`spliter.split`.
    location : str
        Loops at the same location share one window.
    has_memory : callable
        Returns whether this process has memory for reading ahead at the moment.
    """

    read: Callable[[int], Any]
    nbytes: Sequence[int]
    prefetch: Prefetch = "auto"
    location: str = ""
    has_memory: Callable[[], bool] = lambda: True


def check_prefetch(value: object) -> None:
    """Reject values other than "auto", False and numbers of blocks.

    Raises
    ------
    InvalidArgumentError
        For any other value.
    """
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0
    if not (is_number or value is False or (isinstance(value, str) and value == "auto")):
        raise InvalidArgumentError(
            f'prefetch must be "auto", False or an int >= 1 (blocks to read ahead), got {value!r}'
        )


def next_depth(depth: int, waited: float, fastest: float, worked: float) -> int:
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

    Returns
    -------
    int
        If the loop has waited, as many as it can work on during one read, or one more than
        before, up to twice as many: single reads may be slow, and a store that serves one read
        after the other is not faster for more of them. Otherwise one less, if there are more.

    Examples
    --------
    >>> next_depth(1, waited=0.020, fastest=0.020, worked=0.005)
    5
    >>> next_depth(5, waited=0, fastest=0.020, worked=0.010)
    4
    >>> next_depth(0, waited=0.020, fastest=0.020, worked=0.005)
    1
    >>> next_depth(5, waited=0.0001, fastest=0.0001, worked=0.005)
    0
    """
    if fastest < WORTHWHILE_SECONDS:
        return 0
    if not depth:
        return 1
    enough = min(math.ceil(fastest / max(worked, fastest / MAX_DEPTH)) + 1, MAX_DEPTH)
    if waited > worked / 20:
        return min(max(depth + 1, enough), 2 * enough, MAX_DEPTH)
    return max(depth - 1, enough) if depth > enough else depth


class Window:
    """Bytes read ahead by the loops at one location; thread-safe.

    Examples
    --------
    >>> window = Window(limit=10)
    >>> window.take(20, held=0), window.take(1, held=20)  # one block, of any size
    (True, False)
    """

    def __init__(self, limit: int = WINDOW_NBYTES) -> None:
        self._limit = limit
        self._lock = threading.RLock()  # a loop that is garbage-collected returns its bytes
        self.nbytes: int = 0
        self.loops: int = 0

    def take(self, nbytes: int, held: int) -> bool:
        """Return whether a loop that holds some bytes may read more, and count them if so."""
        share = self._limit // max(self.loops, 1)  # of a partition with its equals, for any store
        with self._lock:
            fits = self.nbytes + nbytes <= self._limit and (not held or held + nbytes <= share)
            if self.nbytes and not fits:
                return False
            self.nbytes += nbytes
            return True

    def give_back(self, nbytes: int, loops: int = 0) -> None:
        """Count bytes that are no longer read ahead, and loops that have ended."""
        with self._lock:
            self.nbytes -= nbytes
            self.loops -= loops

    def add_loop(self) -> None:
        """Count a loop that will share the window."""
        with self._lock:
            self.loops += 1


_windows: weakref.WeakValueDictionary[tuple[int, str], Window] = weakref.WeakValueDictionary()
_windows_lock = threading.Lock()

_abandoned: Final[dict[Future[Any], str]] = {}
"""Reads that go on though their loop has been left, and the Split that they belong to."""


def window_of(location: str) -> Window:
    """Return the window that the loops at a location share."""
    with _windows_lock:
        return _windows.setdefault((os.getpid(), location), Window())


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked one starts its own."""
    return ThreadPoolExecutor(MAX_THREADS, "spliter-read")


def _timed(read: Callable[[int], Any], number: int) -> tuple[Any, float]:
    begun = time.perf_counter()
    return read(number), time.perf_counter() - begun


class ReadAhead(Iterator[Any]):
    """An iterator over blocks that reads the next ones while the program works.

    It keeps no reference to a block that it has returned. An error of a read is raised at the turn
    of its block.

    Parameters
    ----------
    fetches : Fetches
        The blocks.
    split : str
        Token of their Split.
    """

    def __init__(self, fetches: Fetches, split: str = "") -> None:
        self._fetches = fetches
        self._split = split
        self._window = window_of(fetches.location)
        self._window.add_loop()
        self._reads: deque[tuple[Future[tuple[Any, float]], int]] = deque()
        self._held = 0
        self._turn = 0
        self._next = 0  # number of the first block that no read was started for
        self._depth = 0 if fetches.prefetch == "auto" else int(fetches.prefetch)
        self._given = self._waited = 0.0
        self._worked: float | None = None
        self._fastest = math.inf
        self._is_closed = False
        self.deepest: int = 0
        """Largest number of blocks that were read ahead at once."""
        self.unused: int = 0
        """Blocks that were read and not returned, as the loop has been left."""

    def __next__(self) -> Any:
        number = self._turn
        if self._is_closed or number == len(self._fetches.nbytes):
            self.close()
            raise StopIteration
        asked = time.perf_counter()
        if number:
            self._adapt(asked - self._given)
        self._turn = number + 1
        self._next = max(self._next, self._turn)
        begun = self._reads.popleft() if self._reads else None
        try:
            self._start()
            block = self._take(number, begun)
            self._given = time.perf_counter()
            self._waited = self._given - asked
            if number == 0:
                self._adapt(self._waited)  # as if it worked as long as it waited
            self._start()
        except BaseException:
            self.close()
            raise
        finally:
            del begun  # an error refers to this frame, and the read to the error
        return block

    def _adapt(self, worked: float) -> None:
        """Decide on the depth, now that the loop has worked for some seconds on a block."""
        if self._fetches.prefetch == "auto":
            mean = self._worked
            # Recent blocks count most, and one of them alone does not decide.
            self._worked = worked if mean is None or self._turn < 2 else (3 * mean + worked) / 4
            self._depth = next_depth(self._depth, self._waited, self._fastest, self._worked)

    def _start(self) -> None:
        """Start to read the following blocks, as many as depth and window allow."""
        end = min(self._turn + self._depth, len(self._fetches.nbytes))
        if self._next >= end or not self._fetches.has_memory():
            return
        pool = _threads(os.getpid())
        for number in range(self._next, end):
            nbytes = self._fetches.nbytes[number]
            if not self._window.take(nbytes, self._held):
                return
            self._held += nbytes
            try:
                read = pool.submit(_timed, self._fetches.read, number)
            except RuntimeError:  # the interpreter is shutting down
                self._give_back(nbytes)
                return
            self._reads.append((read, nbytes))
            self._next = number + 1
        self.deepest = max(self.deepest, len(self._reads))

    def _take(self, number: int, begun: tuple[Future[tuple[Any, float]], int] | None) -> Any:
        """Return a block: as soon as it has been read, or read now."""
        if begun is not None:
            read, nbytes = begun
            try:
                if not read.cancel():
                    block, seconds = read.result()
                    self._fastest = min(self._fastest, seconds)
                    return block
            finally:
                self._give_back(nbytes)
                del read, begun
        block, seconds = _timed(self._fetches.read, number)
        self._fastest = min(self._fastest, seconds)
        return block

    def _give_back(self, nbytes: int, loops: int = 0) -> None:
        self._held -= nbytes
        self._window.give_back(nbytes, loops)

    def close(self) -> None:
        """Drop what was read, and start nothing more; reads that are running end by themselves."""
        if self._is_closed:
            return
        self._is_closed = True
        while self._reads:
            read, _ = self._reads.popleft()
            if not read.cancel():
                self.unused += 1
                _abandoned[read] = self._split
                read.add_done_callback(_forget)  # at once, if it has ended
        self._give_back(self._held, loops=1)

    def __del__(self) -> None:
        self.close()


def _forget(read: Future[Any]) -> None:
    _abandoned.pop(read, None)


def wait_for_abandoned(split: str) -> None:
    """Wait a bounded time until no read goes on for a Split whose loop has been left."""
    wait([read for read, of in list(_abandoned.items()) if of == split], CLOSE_SECONDS)
