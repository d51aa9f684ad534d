"""Cut the blocks of a location into partitions by the schedules of parallel loops.

A schedule turns a number of blocks and of cores into the sizes of successive chunks. Most start
with large chunks, which cost few tasks, and end with small ones, which keep all cores busy until
the end although blocks take unequal time::

    1,000 blocks on 4 cores
    STATIC   250  250  250  250
    GSS      250  188  141  106  79  59 ...                    1  1  1
    FAC2     125  125  125  125  63  63  63  63  31 ...        1  1  1
    SS         1    1    1    1   1 ...

Each chunk becomes a partition. All chunks are known before the first task starts: the same blocks
and cores always give the same partitions. Pure functions on integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter._checks import check_choice, check_count
from spliter._errors import InvalidArgumentError
from spliter._planning.grid import IntArray

Order: TypeAlias = Literal["contiguous", "strided"]
Sizes: TypeAlias = Callable[[int, int], Iterator[int]]
"""Endless sizes of successive chunks, given the numbers of blocks and of cores."""

AUTO: Final = "AUTO"
"""FAC2 for the first pass, then STATIC with the seconds that each block took as weights."""

STAGES: Final = 3
"""Stages of FISS, as in the example of its authors (Philip and Das 1997)."""

GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Successive multiples modulo 1 spread evenly over [0, 1)."""


@dataclass(frozen=True, eq=False)
class Schedule:
    r"""How to cut the blocks of each location into partitions.

    Parameters
    ----------
    kind : str
        Name of the schedule, in any case; see Notes.
    min_blocks : int, default 1
        Least number of blocks of a partition; the last one may have fewer.
    weights : array-like of shape (nblocks,), optional
        Expected cost of each block of the collection, in C order of the grid and in any unit; by
        default its bytes.
    order : {"contiguous", "strided"}, optional
        Which blocks form a partition: neighbours, or blocks spread over the whole collection, so
        that a costly region is shared by all partitions. Inside a partition blocks are in the
        order of the collection either way. By default neighbours if blocks are read from files or
        stores, else spread.

    Raises
    ------
    InvalidArgumentError
        If an argument is none of these.

    Notes
    -----
    With *n* blocks, of which *r* remain, and *p* cores, the next chunk has

    ==========  ============================================  ===============================
    kind        blocks                                        source
    ==========  ============================================  ===============================
    STATIC      n/p                                           DAPHNE, D4.3
    MSTATIC     n/4p                                          DAPHNE's runtime
    SS          1                                             Tang and Yew 1986
    GSS         r/p                                           Polychronopoulos and Kuck 1987
    TSS         n/2p at first, decreasing by a whole number   Tzen and Ni 1993
    FAC2        r/2p, the same for p chunks                   Hummel, Schonberg and Flynn 1992
    TFSS        the mean of the next p chunks of TSS          Chronopoulos et al. 2001
    FISS        n/5p, more by a fixed amount in 3 stages      Philip and Das 1997
    VISS        n/4p, more by half as much in each stage      Philip and Das 1997
    PLS         n/2p for half of the blocks, then GSS         Shih, Yang and Tseng 2007
    MFSC        the mean of all chunks of FAC2                Banicescu, Ciorba and Srivastava 2013
    PSS         r/1.5p                                        Girkar et al. 2006
    ==========  ============================================  ===============================

    AUTO is FAC2, or STATIC if it has weights. At the start of later passes it becomes STATIC with
    the measured seconds of each block as weights, if that promises to save 5 % of the pass; so
    partitions, and the last bits of sums of floats, differ from run to run.

    ``"dynamic"`` is SS, ``"guided"`` GSS and ``"factoring"`` FAC2. MSTATIC, and the half of PLS,
    are taken from ``LoadPartitioning.h`` of DAPHNE's runtime. With fewer than about eight times
    the square of p blocks the decrease of TSS rounds to 0, and all chunks of TSS and TFSS are
    equal. `split` starts partitions largest first, also those of FISS and VISS.

    Examples
    --------
    >>> Schedule("guided").sizes(20, 4)
    [5, 4, 3, 2, 2, 1, 1, 1, 1]
    >>> Schedule("FAC2", min_blocks=2).sizes(20, 4)
    [3, 3, 3, 3, 2, 2, 2, 2]
    """

    kind: str
    min_blocks: int = 1
    weights: npt.ArrayLike | None = field(default=None, repr=False)
    order: Order | None = None

    def __post_init__(self) -> None:
        kind = ALIASES.get(str(self.kind).lower(), str(self.kind).upper())
        if kind not in (*FORMULAS, AUTO):
            raise _unknown(self.kind)
        object.__setattr__(self, "kind", kind)
        check_count("min_blocks", self.min_blocks)
        check_choice("order", self.order, "contiguous", "strided", None)
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights))

    def __str__(self) -> str:
        """Return the kind and the order in words."""
        kind = self.kind
        if kind == AUTO:
            cut = "FAC2" if self.weights is None else "STATIC by weights"
            kind = f"AUTO ({cut} now; not reproducible)"
        elif self.weights is not None:
            kind = f"{kind} by weights"
        return f"{kind}, {self.order}" if self.order else kind

    def with_order(self, order: Order) -> Schedule:
        """Return this schedule; with an order, if it has none."""
        return self if self.order else replace(self, order=order)

    def sizes(self, blocks: int, cores: int) -> list[int]:
        """Return the numbers of blocks of all chunks, if all blocks weigh the same.

        Parameters
        ----------
        blocks, cores : int
            Numbers of blocks and of cores of one location.

        Returns
        -------
        list of int
            At least 1 each; they add up to `blocks`.

        Raises
        ------
        InvalidArgumentError
            If `blocks` is not an int of at least 0, or `cores` one of at least 1.
        """
        check_count("blocks", blocks, 0)
        check_count("cores", cores)
        if not blocks:
            return []
        found: list[int] = []
        kind = self.kind
        if kind == AUTO:
            kind = "FAC2" if self.weights is None else "STATIC"
        formula = FORMULAS[kind](blocks, cores)
        while blocks:
            found.append(min(max(next(formula), self.min_blocks), blocks))
            blocks -= found[-1]
        return found

    def costs(self, nbytes: IntArray) -> npt.NDArray[Any]:
        """Return the expected cost of each block of a collection: its weight, or its bytes.

        Raises
        ------
        InvalidArgumentError
            If there is not one weight for each block.
        """
        if self.weights is None:
            return nbytes
        weights = np.asarray(self.weights)
        if weights.shape != nbytes.shape:
            raise InvalidArgumentError(
                f"weights have shape {weights.shape}, and the collection has {len(nbytes)} blocks; "
                "pass one weight for each"
            )
        return weights

    def cut(self, weights: npt.NDArray[Any], cores: int) -> list[IntArray]:
        """Cut the blocks of one location into chunks.

        Parameters
        ----------
        weights : ndarray of shape (n,)
            Cost of each block, in any unit.
        cores : int
            Cores of the location.

        Returns
        -------
        list of ndarray of int64
            Indexes of the blocks of each chunk, increasing; together all of 0 to n - 1. With
            unequal weights a chunk has about its share of the weight, not of the blocks.
        """
        blocks = len(weights)
        if not blocks:
            return []
        order = _spread(blocks) if self.order == "strided" else np.arange(blocks)
        bounds = cut_in_proportion(weights[order], self.sizes(blocks, cores)).tolist()
        return [np.sort(order[start:stop]) for start, stop in itertools.pairwise(bounds)]


def parse_schedule(schedule: object) -> Schedule | None:
    """Return a schedule, or the one that has a name; ``None`` for none."""
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        return Schedule(schedule)
    raise _unknown(schedule)


def _unknown(schedule: object) -> InvalidArgumentError:
    names = ", ".join([*FORMULAS, AUTO, *ALIASES])
    return InvalidArgumentError(
        f"schedule {schedule!r} is unknown; pass a Schedule or one of {names}"
    )


def cut_in_proportion(weights: npt.NDArray[Any], sizes: npt.ArrayLike) -> IntArray:
    """Cut a run of blocks into contiguous parts whose weights are in given proportions.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Weight of each block, in order: bytes, or any other measure of its cost.
    sizes : array-like of shape (k,)
        Relative weight wanted of each part, positive; k <= n.

    Returns
    -------
    ndarray of int64, shape (k + 1,)
        Offsets of the cuts, strictly increasing from 0 to n: no part is empty.

    Examples
    --------
    >>> cut_in_proportion(np.array([4, 4, 4, 4, 4]), [1, 1]).tolist()
    [0, 3, 5]
    >>> cut_in_proportion(np.array([1, 1, 1, 3]), [2, 1]).tolist()
    [0, 3, 4]
    """
    if weights.dtype.kind in "iu":
        # A block of zero bytes still costs one iteration: weigh it as one byte.
        weights = np.maximum(weights, 1)
    elif not weights.any():
        weights = np.ones(len(weights))
    # A block belongs to the part in which its middle byte falls.
    middles = np.cumsum(weights) - weights / 2
    wanted = np.cumsum(sizes, dtype=np.float64)
    inner = np.searchsorted(middles, weights.sum() * wanted[:-1] / wanted[-1], side="right")
    cuts = np.concatenate([[0], inner, [len(weights)]])
    parts = np.arange(len(cuts))
    at_least_one = np.maximum.accumulate(cuts - parts) + parts
    return np.minimum(at_least_one, len(weights) - parts[::-1]).astype(np.int64)


def cut_evenly(weights: npt.NDArray[Any], parts: int) -> list[IntArray]:
    """Cut blocks into contiguous parts of about the same weight, each given by its indexes."""
    bounds = cut_in_proportion(weights, np.ones(parts)).tolist()
    return [np.arange(start, stop) for start, stop in itertools.pairwise(bounds)]


def _spread(blocks: int) -> IntArray:
    """Return an order of blocks in which every run is spread evenly over all of them."""
    return np.argsort(np.arange(blocks) * GOLDEN % 1, kind="stable").astype(np.int64)


def _checked_weights(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        found = np.array(weights, np.float64)  # a copy: later changes would escape these checks
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"weights are not numbers: {error}") from error
    if found.ndim != 1:
        raise InvalidArgumentError(f"weights must be one per block, got shape {found.shape}")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if wrong.size:
        raise InvalidArgumentError(
            f"weights must be finite and at least 0, got {found[wrong[0]]} for block {wrong[0]}"
        )
    largest = found.max(initial=0)
    found /= largest if largest > 0 else 1.0  # their sum must not overflow
    found.flags.writeable = False
    return found


# --- the schedules: endless sizes of successive chunks ------------------------------------------


def _ceil(blocks: float, parts: float) -> int:
    return max(math.ceil(blocks / parts), 1)


def _static(blocks: int, cores: int) -> Iterator[int]:
    for part in range(cores):
        yield max(blocks * (part + 1) // cores - blocks * part // cores, 1)


def _constant(size: Callable[[int, int], int]) -> Sizes:
    return lambda blocks, cores: itertools.repeat(size(blocks, cores))


def _of_the_rest(parts_per_core: float) -> Sizes:
    def sizes(blocks: int, cores: int) -> Iterator[int]:
        while True:
            size = _ceil(blocks, parts_per_core * cores)
            yield size
            blocks -= size

    return sizes


def _trapezoid(blocks: int, cores: int) -> Iterator[int]:
    first = _ceil(blocks, 2 * cores)
    chunks = _ceil(2 * blocks, first + 1)
    step = (first - 1) // max(chunks - 1, 1)
    return (max(first - step * number, 1) for number in itertools.count())


def _in_stages(of_stage: Sizes) -> Sizes:
    def sizes(blocks: int, cores: int) -> Iterator[int]:
        for size in of_stage(blocks, cores):
            yield from itertools.repeat(size, cores)

    return sizes


def _factoring(blocks: int, cores: int) -> Iterator[int]:
    while True:
        size = _ceil(blocks, 2 * cores)
        yield size
        blocks -= size * cores


def _trapezoid_factoring(blocks: int, cores: int) -> Iterator[int]:
    chunks = _trapezoid(blocks, cores)
    while True:
        yield max(sum(itertools.islice(chunks, cores)) // cores, 1)


def _fixed_increase(blocks: int, cores: int) -> Iterator[int]:
    first = blocks / (STAGES + 2) / cores
    # So much that the stages together have all blocks.
    step = (blocks / cores - STAGES * first) / (STAGES * (STAGES - 1) / 2)
    return (max(round(first + step * stage), 1) for stage in itertools.count())


def _variable_increase(blocks: int, cores: int) -> Iterator[int]:
    size = increase = blocks // (4 * cores)
    while True:
        yield max(size, 1)
        increase //= 2
        size += increase


def _performance_based(blocks: int, cores: int) -> Iterator[int]:
    size = _ceil(blocks, 2 * cores)
    yield from itertools.repeat(size, cores)
    yield from _of_the_rest(1)(blocks - size * cores, cores)


def _modified_fixed_size(blocks: int, cores: int) -> int:
    return _ceil(blocks, len(Schedule("FAC2").sizes(blocks, cores)))


FORMULAS: Final[dict[str, Sizes]] = {
    "STATIC": _static,
    "SS": _constant(lambda blocks, cores: 1),
    "GSS": _of_the_rest(1),
    "TSS": _trapezoid,
    "FAC2": _in_stages(_factoring),
    "TFSS": _in_stages(_trapezoid_factoring),
    "FISS": _in_stages(_fixed_increase),
    "VISS": _in_stages(_variable_increase),
    "PLS": _performance_based,
    "MSTATIC": _constant(lambda blocks, cores: _ceil(blocks, 4 * cores)),
    "MFSC": _constant(_modified_fixed_size),
    "PSS": _of_the_rest(1.5),
}
ALIASES: Final = {"dynamic": "SS", "guided": "GSS", "factoring": "FAC2"}
