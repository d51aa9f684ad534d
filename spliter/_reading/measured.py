"""Measure iterations over partitions.

Two clock readings per block, one before it is read and one after; nothing is sent::

    for block in partition:      read | compute | read | compute | ... | end
                                 waiting  seconds[0]     seconds[1]
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from spliter._planning.grid import IntArray
from spliter._planning.passes import Pass
from spliter._reading.kinds import checked
from spliter._reading.read_ahead import LookAhead
from spliter.metrics._records import RECORDS, STOLEN


class MeasuredBlocks(Iterator[Any]):
    """An iterator over blocks that measures its iteration, for the records of this process.

    It keeps no reference to a block that it has returned: the program may release that before it
    requests the next one. `split` is the token of the Split, `positions` and `nbytes` are of all
    blocks.
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
