"""Read the next blocks of a partition while the loop works on this one.

A source of blocks that are stored offers them as :class:`Fetches`. Threads of the process then read
as many of the following blocks as keep the loop from waiting::

    loop      read 0 | work 0 | work 1 | work 2 | work 3 | ...
    threads            read 1 -------|
                       read 2 ---------------|
                         read 3 ---------------|

How many is decided from measured times alone (:func:`next_depth`): a loop starts with as many as
the last one at its location has read ahead in the end. It is bounded by the bytes that all loops at
one location may hold (:class:`Window`). The loop reads a block itself if no thread has begun to.
"""

from __future__ import annotations

import contextvars
import functools
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeVar

from spliter._reading.pace import Following, Pace, Prefetch

TimedRead: TypeAlias = Future[tuple[Any, float]]
ArgumentT = TypeVar("ArgumentT")
PendingT = TypeVar("PendingT")

WINDOW_NBYTES: Final = 64 * 2**20
"""Bytes that the loops at one location may hold read ahead: enough for 50 reads of a megabyte,
small next to the memory of a core."""

MAX_THREADS: Final = 64
"""Threads of a process that read. A block whose turn comes before a thread is free is read by its
loop."""

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
        Bytes of each block; 0 for those in memory, whose reads do not decide on the depth.
    prefetch : "auto", False or int
        How many blocks to read ahead; option of :func:`spliter.split`.
    location : str
        Loops at the same location share one window.
    has_memory : callable
        Returns whether this process has memory for reading ahead at the moment.
    processes : int
        Number of processes that run tasks at the location; each gets its part of the window.
    finish : callable, optional
        Takes the number of a block and what `read` returned; returns what the loop gets. Called at
        the block's turn, in the loop's thread.
    """

    read: Callable[[int], Any]
    nbytes: Sequence[int]
    prefetch: Prefetch = "auto"
    location: str = ""
    has_memory: Callable[[], bool] = lambda: True
    processes: int = 1
    finish: Callable[[int, Any], Any] | None = None

    def only(self, numbers: Sequence[int]) -> Fetches:
        """Return the reads of some of the blocks, in this order."""
        finish = self.finish
        return replace(
            self,
            read=lambda at: self.read(numbers[at]),
            nbytes=[self.nbytes[number] for number in numbers],
            finish=finish and (lambda at, found: finish(numbers[at], found)),
        )


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
        self.depth: int = 0
        """How many blocks the last loop has read ahead in the end; the next one starts with it."""

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


_windows: Final[dict[tuple[int, str, int], Window]] = {}

_abandoned: Final[dict[Future[Any], str]] = {}
"""Reads that go on though their loop has been left, and the Split that they belong to."""


def window_of(location: str, processes: int = 1) -> Window:
    """Return the window, or this process's part of it, that the loops at a location share."""
    return _windows.setdefault(
        (os.getpid(), location, processes), Window(WINDOW_NBYTES // processes)
    )


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked one starts its own."""
    return ThreadPoolExecutor(MAX_THREADS, "spliter-read")


def timed(read: Callable[[ArgumentT], Any], argument: ArgumentT) -> tuple[Any, float]:
    """Return what a read returns, and its seconds."""
    begun = time.perf_counter()
    return read(argument), time.perf_counter() - begun


def start_read(read: Callable[[ArgumentT], Any], argument: ArgumentT) -> TimedRead:
    """Start :func:`timed` in a thread of this process, which gets a copy of this one's context.

    Raises `RuntimeError` if the interpreter is shutting down.
    """
    context = contextvars.copy_context()
    return _threads(os.getpid()).submit(context.run, timed, read, argument)


class LookAhead(Iterator[Any], ABC, Generic[PendingT]):
    """An iterator that begins the next items while the program works on this one.

    It keeps no reference to an item that it has returned. An error is raised at the turn of its
    item.

    Parameters
    ----------
    nbytes : sequence of int
        Bytes of memory of each item.
    window : Window
        Bounds the bytes of what was begun.
    has_memory : callable
        As for :class:`Fetches`.
    split : str
        Token of the Split that the items belong to.
    pace : Pace
        How many to begin; that of the loop before this one, if there was one.
    following : callable, optional
        Reads what comes after the last item.
    """

    def __init__(
        self,
        nbytes: Sequence[int],
        window: Window,
        has_memory: Callable[[], bool],
        split: str,
        pace: Pace,
        following: Following | None = None,
    ) -> None:
        self._nbytes = nbytes
        self._end = len(nbytes)
        self._pace = pace
        self._following = following
        self._has_memory = has_memory
        self._split = split
        self._window = window
        window.add_loop()
        self._begun: deque[tuple[PendingT, int]] = deque()
        self._held = 0
        self._turn = 0
        self._next = 0  # number of the first item that was not begun
        self._given = 0.0
        self._is_closed = False
        self.deepest: int = 0
        """Largest number of items that were begun at once."""
        self.unused: int = 0
        """Reads that were not cancelled in time when the loop was left."""

    @abstractmethod
    def _begin(self, number: int) -> PendingT:
        """Begin an item before its turn; raise RuntimeError if no thread can be started."""

    def _begin_now(self, number: int) -> PendingT | None:
        """Begin an item whose turn has come, before those that follow; None to just finish it."""

    @abstractmethod
    def _finish(self, number: int, pending: PendingT | None) -> tuple[Any, float]:
        """Return an item and the seconds of its slowest read; infinite if it needed none."""

    @abstractmethod
    def _drop(self, pending: PendingT) -> None:
        """Cancel the reads of an item."""

    def __next__(self) -> Any:
        number = self._turn
        if number and not self._is_closed:
            self._pace.add_work(time.perf_counter() - self._given)
        if self._is_closed or number == self._end:
            self.close()
            raise StopIteration
        self._turn = number + 1
        self._next = max(self._next, self._turn)
        begun: tuple[PendingT | None, int] | None = None
        try:
            begun = self._begun.popleft() if self._begun else (self._begin_now(number), 0)
            self._start()
            item = self._take(number, *begun)
            self._given = time.perf_counter()
            self._start()
        except StopIteration as error:  # would end the program's loop
            self.close()
            raise RuntimeError("a read raised StopIteration") from error
        except BaseException:
            self.close()
            raise
        finally:
            begun = None  # an error refers to this frame, and the read to the error
        return item

    def _start(self) -> None:
        """Begin the following items, as many as depth and window allow."""
        depth = self._pace.depth
        room = depth - self.begin(depth)
        if self._following and room > 0 and self._next == self._end:
            self._following(self._pace, room)

    def begin(self, depth: int) -> int:
        """Begin items until so many are ahead of the loop; return how many are."""
        end = min(self._turn + depth, self._end)
        if self._next < end and self._has_memory():
            self._begin_until(end)
        self.deepest = max(self.deepest, len(self._begun))
        return len(self._begun)

    def _begin_until(self, end: int) -> None:
        while self._next < min(end, self._end):  # beginning an item may find the last one
            nbytes = self._nbytes[self._next]
            if not self._window.take(nbytes, self._held):
                return
            self._held += nbytes
            try:
                self._begun.append((self._begin(self._next), nbytes))
            except RuntimeError:  # the interpreter is shutting down
                self._give_back(nbytes)
                return
            self._next += 1

    def _take(self, number: int, pending: PendingT | None, nbytes: int) -> Any:
        """Return an item as soon as it has been read."""
        asked = time.perf_counter()
        try:
            item, seconds = self._finish(number, pending)
        finally:
            self._give_back(nbytes)
            pending = None
        self._pace.add_wait(time.perf_counter() - asked, seconds)
        return item

    def _give_back(self, nbytes: int, loops: int = 0) -> None:
        self._held -= nbytes
        self._window.give_back(nbytes, loops)

    def _drop_read(self, read: Future[Any]) -> None:
        """Cancel a read; one that is running ends by itself."""
        if not read.cancel():
            self.unused += 1
            _abandoned[read] = self._split
            read.add_done_callback(_forget)  # at once, if it has ended

    def close(self) -> None:
        """Drop what was begun, and begin nothing more; reads that are running end by themselves."""
        if self._is_closed:
            return
        self._is_closed = True
        while self._begun:
            self._drop(self._begun.popleft()[0])
        self._give_back(self._held, loops=1)

    def __del__(self) -> None:
        self.close()


class ReadAhead(LookAhead[TimedRead]):
    """An iterator over blocks that reads the next ones while the program works.

    `split`, `pace` and `following` are those of :class:`LookAhead`.
    """

    def __init__(
        self,
        fetches: Fetches,
        split: str = "",
        pace: Pace | None = None,
        following: Following | None = None,
    ) -> None:
        self.fetches: Fetches = fetches
        window = window_of(fetches.location, fetches.processes)
        pace = pace or Pace(fetches.prefetch, start=window.depth)
        super().__init__(fetches.nbytes, window, fetches.has_memory, split, pace, following)

    def _begin(self, number: int) -> TimedRead:
        return start_read(self.fetches.read, number)

    def _finish(self, number: int, pending: TimedRead | None) -> tuple[Any, float]:
        if pending is None or pending.cancel():
            block, seconds = timed(self.fetches.read, number)
        else:
            block, seconds = pending.result()
        finish, is_read = self.fetches.finish, self.fetches.nbytes[number]
        whole = block if finish is None else finish(number, block)
        return whole, seconds if is_read else math.inf

    def _drop(self, pending: TimedRead) -> None:
        self._drop_read(pending)

    def close(self) -> None:
        """Drop what was begun; the next loop at the location starts with the depth of this one."""
        if self._pace.is_auto and not self._is_closed:
            self._window.depth = self._pace.depth
        super().close()


def _forget(read: Future[Any]) -> None:
    _abandoned.pop(read, None)


def wait_for_abandoned(split: str) -> None:
    """Wait a bounded time until no read goes on for a Split whose loop has been left."""
    wait([read for read, of in list(_abandoned.items()) if of == split], CLOSE_SECONDS)
