"""``schedule="AUTO"``: cut by what each block took, if that promises a shorter pass.

Pure functions on what was measured; the clocks of different locations are never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._planning.passes import Pass
from spliter._planning.planner import Location, PlannedPartition

GAIN: Final = 0.05
"""Least share of a pass that a new plan must promise to save."""

Seconds: TypeAlias = npt.NDArray[np.float64]


def seconds_of_blocks(passes: Iterable[Pass], nblocks: int) -> Seconds | None:
    """Return the seconds that each block took in the last passes; None unless all were measured."""
    seconds = np.full(nblocks, np.nan)
    for one in passes:
        if one.is_whole:
            seconds[one.positions] = one.seconds
    return None if np.isnan(seconds).any() else seconds


def promises_gain(
    planned: Iterable[PlannedPartition], seconds: Seconds, passes: Sequence[Pass]
) -> bool:
    """Return whether a plan promises a shorter pass than the last one, by the seconds of blocks.

    It has at most one partition for each core. `passes` are those over the present plan.
    """
    promised = max(float(seconds[part.positions].sum()) for part in planned)
    of_location: dict[Location | None, list[Pass]] = {}
    for one in passes:
        of_location.setdefault(one.place, []).append(one)
    took = max(
        max(one.ended for one in some) - min(one.begun for one in some)
        for some in of_location.values()
    )
    return promised < (1 - GAIN) * took
