"""Plan partitions from the locations and sizes of blocks and the cores of each location.

Pure functions on integers; no engine, no data, no clock, no randomness: the same input
always gives the same plan. Two steps::

    block        0    1    2    3    4    5          holders of each block
    held by      A    A    AB   B    AB   B
                      |
      1. choose one holder per block   -> least loaded per core, largest blocks first
                      |
    A: 0 1 2         B: 3 4 5
                      |
      2. cut each location's blocks, in collection order, into as many runs as it
         has cores (or as requested), of about the same number of bytes
                      |
    A/0: 0 1   A/1: 2     B/0: 3 4   B/1: 5

Step 1 only chooses among current holders, so a plan moves nothing. Both steps take
time linear in the number of blocks (times the number of replicas of each).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, NewType

import numpy as np
import numpy.typing as npt

from spliter._checks import check_count
from spliter._errors import InvalidArgumentError
from spliter._planning.grid import IntArray
from spliter._planning.schedule import Schedule, cut_evenly

BATCH_SIZE: Final = 100_000
"""Replicated blocks per batch: as Python ints, their holders take ten times the memory of the
arrays, so a batch bounds that memory."""

Location = NewType("Location", str)
"""A place that a task can be pinned to: a worker address, a backend, this process."""


@dataclass(frozen=True)
class Placement:
    """Where each block is and how many bytes it takes: a snapshot.

    Parameters
    ----------
    locations : tuple of Location
        Every location that holds at least one block.
    holder_offsets : ndarray of int64, shape (nblocks + 1,)
        ``holder_ids[holder_offsets[i]:holder_offsets[i + 1]]`` are the holders of
        block ``i``: one or, where the engine keeps replicas, more.
    holder_ids : ndarray of int64
        Indexes into `locations`.
    nbytes : ndarray of int64, shape (nblocks,)
        Bytes of each block, 0 if the engine does not report them.
    everywhere : bool, default False
        Whether all locations can read all blocks, as in files and stores; `holder_ids` are then a
        preference.

    Examples
    --------
    >>> placement = Placement.of([("A",), ("A", "B"), ("B",)], nbytes=[8, 8, 8])
    >>> placement.locations
    ('A', 'B')
    >>> placement.nblocks
    3
    """

    locations: tuple[Location, ...]
    holder_offsets: IntArray
    holder_ids: IntArray
    nbytes: IntArray
    everywhere: bool = False

    @classmethod
    def of(cls, holders: Sequence[Sequence[str]], nbytes: Sequence[int] | IntArray) -> Placement:
        """Build a placement from the locations that hold each block, and the bytes of each."""
        names = sorted({name for held in holders for name in held})
        number = {name: i for i, name in enumerate(names)}
        counts = np.fromiter((len(held) for held in holders), dtype=np.int64, count=len(holders))
        offsets = np.zeros(len(holders) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        ids = np.fromiter(
            (number[name] for held in holders for name in held), dtype=np.int64, count=offsets[-1]
        )
        return cls(
            tuple(Location(name) for name in names),
            offsets,
            ids,
            np.asarray(nbytes, dtype=np.int64),
        )

    @property
    def nblocks(self) -> int:
        """Number of blocks."""
        return len(self.nbytes)


@dataclass(frozen=True, eq=False)
class PlannedPartition:
    """The blocks planned for one partition.

    Parameters
    ----------
    location : Location
        Where all the blocks are: one of the holders, if there are several.
    positions : ndarray of int64
        C-order positions of the blocks in the collection, increasing.
    nbytes : ndarray of int64, same shape
        Bytes of each of the blocks.
    holders : tuple of Location, optional
        Locations at any of which a task may run; none if it must run at `location`.
    """

    location: Location
    positions: IntArray
    nbytes: IntArray
    holders: tuple[Location, ...] = ()


def choose_holders(placement: Placement, capacities: Mapping[Location, int]) -> IntArray:
    """Choose one holder for every block so that bytes per core are balanced.

    Blocks with one holder stay there. The others are placed largest first, each on the
    holder with the fewest bytes per core so far; ties go to the location that sorts
    first, which makes the result deterministic.

    Returns
    -------
    ndarray of int64, shape (nblocks,)
        For each block an index into ``placement.locations``.
    """
    counts = np.diff(placement.holder_offsets)
    if counts.size and counts.min() == 0:
        missing = np.flatnonzero(counts == 0)
        raise InvalidArgumentError(
            f"{missing.size} block(s) have no holder, the first at position {missing[0]}"
        )
    cores = np.array([capacities.get(name, 0) for name in placement.locations], dtype=np.int64)
    if cores.size and cores.min() < 1:
        name = placement.locations[int(np.argmin(cores))]
        raise InvalidArgumentError(f"location {name!r} has no capacity")

    chosen = np.empty(placement.nblocks, dtype=np.int64)
    single = counts == 1
    chosen[single] = placement.holder_ids[placement.holder_offsets[:-1][single]]
    # A block of zero bytes still costs one iteration: weigh it as one byte.
    weights = np.maximum(placement.nbytes, 1)
    load = np.bincount(
        chosen[single], weights=weights[single], minlength=len(placement.locations)
    ).tolist()
    replicated = np.flatnonzero(~single)
    by_size = replicated[np.argsort(-weights[replicated], kind="stable")]
    core_list = cores.tolist()
    per_core = [bytes_there / there for bytes_there, there in zip(load, core_list, strict=True)]
    picked: list[int] = []
    for ids, weight in zip(_holders_of(placement, by_size), weights[by_size].tolist(), strict=True):
        # `ids` is sorted, so a tie goes to the location that sorts first.
        best = min(ids, key=per_core.__getitem__)
        load[best] += weight
        per_core[best] = load[best] / core_list[best]
        picked.append(best)
    chosen[by_size] = picked
    return chosen


def _holders_of(placement: Placement, blocks: IntArray) -> Iterator[list[int]]:
    """Yield the holders of each of some blocks, sorted."""
    for start in range(0, len(blocks), BATCH_SIZE):
        ids, ends = _holders_in_order(placement, blocks[start : start + BATCH_SIZE])
        begin = 0
        for end in ends.tolist():
            yield ids[begin:end]
            begin = end


def _holders_in_order(placement: Placement, blocks: IntArray) -> tuple[list[int], IntArray]:
    """Return the concatenated holders of some blocks, and where each block's holders end.

    They are laid out in the order of use: random access to lists of a million entries would
    take longer than the rest of the plan.
    """
    first = placement.holder_offsets[blocks]
    counts = placement.holder_offsets[blocks + 1] - first
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
    ids = placement.holder_ids[at]
    block = np.repeat(np.arange(len(blocks)), counts)
    ids = ids[np.argsort(block * len(placement.locations) + ids, kind="stable")]
    return ids.tolist(), ends


def plan(
    placement: Placement,
    capacities: Mapping[Location, int],
    partitions_per_location: int | None = None,
    schedule: Schedule | None = None,
    steal: bool = False,
) -> list[PlannedPartition]:
    """Group the blocks into partitions without moving any.

    Parameters
    ----------
    placement : Placement
        Where the blocks are and how big.
    capacities : mapping of Location to int
        Cores (threads) of each location that holds blocks.
    partitions_per_location : int, optional
        Partitions at each location; by default as many as it has cores. There are
        never more partitions at a location than blocks.
    schedule : Schedule, optional
        How to cut the blocks of each location instead.
    steal : bool, default False
        Whether blocks with the same several holders form partitions that any of these may run.

    Returns
    -------
    list of PlannedPartition
        Sorted by the position of each partition's first block; with a schedule, the partitions
        of each location by their weight, the largest first, and those for one location before
        those for several. Together they hold every block exactly once, each partition's blocks
        in collection order.

    Raises
    ------
    InvalidArgumentError
        If `partitions_per_location` is less than 1, or a block has no holder.

    Examples
    --------
    >>> placement = Placement.of([("A",), ("B",), ("A",), ("A",)], nbytes=[8, 8, 8, 8])
    >>> for part in plan(placement, {"A": 2, "B": 2}):
    ...     print(part.location, part.positions.tolist())
    A [0, 2]
    B [1]
    A [3]
    """
    check_partitions_per_location(partitions_per_location)
    chosen = choose_holders(placement, capacities)
    costs = placement.nbytes if schedule is None else schedule.costs(placement.nbytes)
    shared = _shared_groups(placement, capacities, chosen) if steal else []
    found: list[PlannedPartition] = []
    for group in [*_pinned_groups(placement, capacities, chosen, shared), *shared]:
        here = costs[group.positions]
        chunks = (
            cut_evenly(here, min(partitions_per_location or group.cores, len(here)))
            if schedule is None
            else schedule.cut(here, group.cores)
        )
        for chunk in chunks:
            blocks = group.positions[chunk]
            nbytes = placement.nbytes[blocks]
            found.append(PlannedPartition(group.location, blocks, nbytes, group.holders))
    if shared:
        found = _balanced(found, capacities)
    elif steal and len(placement.locations) > 1 and placement.everywhere:
        found = [replace(part, holders=placement.locations) for part in found]
    return _in_order(found, None if schedule is None else costs)


class _Group(NamedTuple):
    """Blocks that are cut into partitions together."""

    location: Location
    positions: IntArray
    cores: int
    holders: tuple[Location, ...] = ()


def _pinned_groups(
    placement: Placement,
    capacities: Mapping[Location, int],
    chosen: IntArray,
    shared: Sequence[_Group],
) -> list[_Group]:
    """Return the blocks of each location that no other one shares."""
    left = np.ones(placement.nblocks, dtype=bool)
    for group in shared:
        left[group.positions] = False
    # A stable sort groups the blocks by location and keeps collection order inside.
    order = np.flatnonzero(left)[np.argsort(chosen[left], kind="stable")]
    bounds = np.searchsorted(chosen[order], np.arange(len(placement.locations) + 1)).tolist()
    return [
        _Group(location, order[start:stop], capacities[location])
        for location, start, stop in zip(placement.locations, bounds, bounds[1:], strict=False)
        if start < stop
    ]


def _shared_groups(
    placement: Placement, capacities: Mapping[Location, int], chosen: IntArray
) -> list[_Group]:
    """Group the blocks that have several holders by these.

    A group is cut for the cores that a plan without stealing gives it, times the number of its
    holders, as any of them may come to help; but not for more cores than they have. Even a small
    group takes a few partitions, so there are at most as many groups as cores, the heaviest ones.
    The blocks of the others stay where a plan without stealing has them.
    """
    cores = np.array([capacities[location] for location in placement.locations], dtype=np.int64)
    weights = np.maximum(placement.nbytes, 1)
    shares = weights * (cores / np.maximum(np.bincount(chosen, weights, len(cores)), 1))[chosen]
    replicated = np.flatnonzero(np.diff(placement.holder_offsets) > 1)
    groups: dict[tuple[int, ...], list[int]] = {}
    for block, ids in zip(replicated.tolist(), _holders_of(placement, replicated), strict=True):
        groups.setdefault(tuple(ids), []).append(block)
    heaviest = sorted(groups.items(), key=lambda item: -int(weights[item[1]].sum()))
    found = []
    for held, blocks in heaviest[: int(cores.sum())]:
        wanted = max(round(float(shares[blocks].sum()) * len(held)), 1)
        holders = tuple(placement.locations[number] for number in held)
        count = min(wanted, sum(capacities[holder] for holder in holders))
        found.append(_Group(holders[0], np.array(blocks), count, holders))
    return found


def _balanced(
    parts: Sequence[PlannedPartition], capacities: Mapping[Location, int]
) -> list[PlannedPartition]:
    """Choose a location for each partition among its holders, as for blocks."""
    placement = Placement.of(
        [part.holders or (part.location,) for part in parts],
        [int(part.nbytes.sum()) for part in parts],
    )
    return [
        replace(part, location=placement.locations[number])
        for part, number in zip(parts, choose_holders(placement, capacities).tolist(), strict=True)
    ]


def _in_order(
    parts: Sequence[PlannedPartition], costs: npt.NDArray[Any] | None
) -> list[PlannedPartition]:
    """Sort by rank at the location (the costliest partition first), then by the first block."""
    ranks: Counter[Location] = Counter()
    found: list[tuple[int, int, PlannedPartition]] = []
    if costs is not None:
        parts = sorted(parts, key=lambda it: (-float(costs[it.positions].sum()), bool(it.holders)))
    for part in parts:
        found.append((ranks[part.location], int(part.positions[0]), part))
        ranks[part.location] += costs is not None
    return [part for *_, part in sorted(found, key=lambda ranked: ranked[:2])]


def check_partitions_per_location(value: object) -> None:
    """Reject anything but ``None`` or a whole number of at least 1."""
    if value is not None:
        check_count("partitions_per_location", value, instead="None (one per core) or ")
