"""What one iteration over a partition took: measured where it ran, and used to plan the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spliter._planning.grid import IntArray
from spliter._planning.planner import Location


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
