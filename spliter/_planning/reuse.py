"""Decide whether and when to concatenate a partition's blocks; pure functions.

A pass over a partition costs something per *block* in addition to its cost per row: the
vectorised functions are called once for each block. A few NumPy calls take as long as copying
about 40 kB, so copying smaller blocks into one costs less than even a single pass over them. For
larger blocks the copy pays off after several passes. The number of passes is not known in
advance, so the blocks are copied just before the pass at which the copy would break even: the
total is at most twice the optimal cost. (``python -m benchmarks materialize`` measures both: for
passes of plain NumPy over 20 columns they were equal at 160 to 280 rows, 26 to 45 kB. For
functions that check their input on each call, as in scikit-learn, they are equal at 50 times
that; those need ``materialize=True``.)

From about 1,000 rows per block on, the cost of the calls is negligible (a k-means pass over
blocks of 10, 50, 200 and 1,000 rows of 20 columns cost 7.8, 2.7, 1.4 and 1.0 times one over one
array), and the blocks are never copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from spliter._errors import InvalidArgumentError
from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Location

Materialize: TypeAlias = bool | Literal["auto"]

CALL_NBYTES = 38_400
"""Bytes copied in the time of a few NumPy calls, by ``python -m benchmarks materialize``."""

MAX_ROWS = 1_000
"""Mean rows per block above which materializing gains nothing (measured, see above)."""


@dataclass(frozen=True)
class Materialization:
    """Whether the partitions of a Split are materialized, from which pass, and why.

    Parameters
    ----------
    from_pass : int or None
        The first pass (1, 2, ...) over concatenated blocks; ``None`` for never.
    reason : str
        Readable reason.

    Examples
    --------
    >>> Materialization(1, "requested")
    Materialization(from_pass=1, reason='requested')
    >>> str(Materialization(3, "about 600 rows per block"))
    'materialized from pass 3 on (about 600 rows per block)'
    """

    from_pass: int | None
    reason: str

    def __str__(self) -> str:
        """Return the decision in words."""
        if self.from_pass is None:
            return f"not materialized ({self.reason})"
        since = "" if self.from_pass == 1 else f" from pass {self.from_pass} on"
        return f"materialized{since} ({self.reason})"

    def applies_to(self, number: int) -> bool:
        """Return whether pass `number`, counted from 1, is over concatenated blocks."""
        return self.from_pass is not None and number >= self.from_pass


NOT_MATERIALIZED: Final = Materialization(None, "not requested")


def passes_to_pay(block_nbytes: float) -> int:
    """Return the number of passes after which concatenating blocks of so many bytes breaks even.

    Examples
    --------
    >>> [passes_to_pay(nbytes) for nbytes in (0, 38_400, 38_401, 160_000)]
    [1, 1, 2, 5]
    """
    return max(1, math.ceil(block_nbytes / CALL_NBYTES))


def decide(
    materialize: Materialize,
    grid: BlockGrid,
    nbytes: Mapping[Location, int],
    blocks_per_partition: int,
    free: Callable[[], Mapping[Location, int | None]],
) -> Materialization:
    """Decide whether the partitions of a Split are to be materialized.

    Parameters
    ----------
    nbytes : mapping of Location to int
        Bytes of the blocks at each location.
    blocks_per_partition : int
        Number of blocks of the largest partition.
    free : callable
        Returns the free bytes of memory at each location, ``None`` if unknown. Called only if
        all other conditions favour a copy.

    Returns
    -------
    Materialization
        ``"auto"`` does not materialize if blocks have 1,000 rows or more on average, partitions
        have one block each, sizes are unknown, the blocks form several columns, or a location
        has too little memory for a copy of its blocks. Otherwise :func:`passes_to_pay` gives
        the first pass.

    Raises
    ------
    InvalidArgumentError
        If `materialize` is ``True`` and the blocks form several columns.
    """
    columns = grid.nblocks != grid.shape[0]
    if materialize is True:
        if columns:
            raise InvalidArgumentError(
                f"a grid of {grid.shape} blocks cannot be materialized, because a partition may "
                "hold parts of rows; rechunk it to one block along every axis but the first"
            )
        return Materialization(1, "requested")
    if materialize is False:
        return NOT_MATERIALIZED
    if columns:
        return Materialization(None, "blocks in several columns")
    if blocks_per_partition < 2:
        return Materialization(None, "one block per partition")
    if grid.extent[0] is None:
        return Materialization(None, "unknown number of rows per block")
    rows = grid.extent[0] / grid.nblocks
    if rows == 0:
        return Materialization(None, "no rows")
    about = f"about {rows:,.0f} rows per block"
    if rows >= MAX_ROWS:
        return Materialization(None, about)
    room_at = free()
    for location, wanted in nbytes.items():
        room = room_at.get(location)
        if room is not None and wanted > room:
            return Materialization(None, f"too little free memory at {location}")
    return Materialization(passes_to_pay(sum(nbytes.values()) / grid.nblocks), about)
