"""The table of the last pass over a Split: what each partition took, and where cores were idle."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, overload

from spliter._format import format_bytes
from spliter._planning.grid import BlockIndexes
from spliter._planning.passes import Pass, key_of
from spliter._planning.planner import Location

COLUMNS: Final = (
    "location",
    "partitions",
    "blocks",
    "size",
    "seconds",
    "cpu",
    "waiting",
    "ahead",
    "unused",
    "idle",
    "steals",
)


class MeasuredPartition(Protocol):
    """Attributes of a :class:`spliter.Partition` that the table shows."""

    @property
    def location(self) -> Location: ...
    @property
    def holders(self) -> tuple[Location, ...]: ...
    @property
    def indexes(self) -> BlockIndexes: ...
    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True)
class PartitionMetrics:
    """What the last pass over one partition took.

    Parameters
    ----------
    location : Location
        Where it was planned.
    blocks, nbytes : int
        Blocks and their bytes.
    seconds : float
        Time from the request of the first block to the end of the iteration.
    cpu_seconds : float
        CPU time of the iterating thread in that time; threads of libraries are not counted.
    waiting_seconds : float
        Time spent reading blocks: from other locations, from disk.
    read_ahead : int
        Blocks that were read before their turn, at most.
    unused_reads : int
        Reads of blocks, or of their records, that were not used, because the loop was left before.
    stolen : bool
        Whether another location ran it, or a thread that took it from the queue of another one.
    """

    location: Location
    blocks: int
    nbytes: int
    seconds: float
    cpu_seconds: float
    waiting_seconds: float
    read_ahead: int
    unused_reads: int
    stolen: bool


class Metrics(Sequence[PartitionMetrics]):
    """What the last pass over each partition took; see :meth:`spliter.Split.metrics`.

    A sequence with an entry for each partition that was iterated over, of which
    ``pandas.DataFrame`` makes a table. Its text and its HTML have a row for each location.

    Parameters
    ----------
    partitions : sequence of PartitionMetrics
        In the order of the Split.
    idle_seconds : mapping of Location to float
        For each location the time that its cores were idle before the last of them was done, added
        over the cores.
    cores : mapping of Location to int
        Cores of each location.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionMetrics],
        idle_seconds: Mapping[Location, float],
        cores: Mapping[Location, int],
    ) -> None:
        self._partitions = partitions
        self.idle_seconds: Mapping[Location, float] = idle_seconds
        self._cores = cores

    def __len__(self) -> int:
        """Return the number of partitions that were iterated over."""
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> PartitionMetrics: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionMetrics]: ...
    def __getitem__(self, index: int | slice) -> PartitionMetrics | Sequence[PartitionMetrics]:
        """Return the metrics of one partition, or of several."""
        return self._partitions[index]

    @property
    def hint(self) -> str | None:
        """Advice if the cores were not used: threads that wait for each other; None otherwise."""
        computing = sum(one.seconds - one.waiting_seconds for one in self)
        threads = max((self._cores[one.location] for one in self), default=1)
        if threads < 2 or not computing:
            return None
        share = sum(one.cpu_seconds for one in self) / computing
        # Threads that take turns have 1 / threads of the time each: nearer to that than to 1.
        if share > (1 + 1 / threads) / 2:
            return None
        return (
            f"Threads computed for {share:.0%} of their time: the function probably holds Python's "
            "interpreter lock. Start more processes with one thread each, or use functions that "
            "release it, as most of NumPy's do. (A function that sleeps or reads files looks the "
            "same, and so do cores that other programs use.)"
        )

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for location, idle in self.idle_seconds.items():
            here = [one for one in self if one.location == location]
            rows.append(
                (
                    location,
                    f"{len(here):,}",
                    f"{sum(one.blocks for one in here):,}",
                    format_bytes(sum(one.nbytes for one in here)),
                    f"{sum(one.seconds for one in here):.3g}",
                    f"{sum(one.cpu_seconds for one in here):.3g}",
                    f"{sum(one.waiting_seconds for one in here):.3g}",
                    f"{max((one.read_ahead for one in here), default=0):,}",
                    f"{sum(one.unused_reads for one in here):,}",
                    f"{idle:.3g}",
                    f"{sum(one.stolen for one in here):,}",
                )
            )
        return rows

    def __repr__(self) -> str:
        """Return a table of the locations, and the hint."""
        rows = [COLUMNS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            )
            for row in rows
        ]
        return "\n".join(lines + ([self.hint] if self.hint else []))

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Iterable[str]) -> str:
            return (
                "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
            )

        body = "".join(row("td", cells) for cells in self._rows())
        hint = f"<div>{html.escape(self.hint)}</div>" if self.hint else ""
        return f"<table><thead>{row('th', COLUMNS)}</thead><tbody>{body}</tbody></table>{hint}"


def report(
    partitions: Iterable[MeasuredPartition], passes: Iterable[Pass], cores: Mapping[Location, int]
) -> Metrics:
    """Return the table of the last passes over partitions; those of earlier plans are ignored."""
    by_key = {one.key: one for one in passes}
    rows: list[PartitionMetrics] = []
    here: dict[Location, list[Pass]] = {}
    for partition in partitions:
        one = by_key.get(key_of(partition.indexes.positions))
        if one is None:
            continue
        # Without holders it ran where it was planned: one process may have several locations.
        place = one.place if one.place and partition.holders else partition.location
        here.setdefault(place, []).append(one)
        rows.append(
            PartitionMetrics(
                partition.location,
                len(one.positions),
                partition.nbytes,
                one.duration,
                one.cpu,
                one.waiting,
                one.read_ahead,
                one.unused,
                one.stolen or place != partition.location,
            )
        )
    idle = {place: idle_seconds(some, cores.get(place, 1)) for place, some in sorted(here.items())}
    return Metrics(rows, idle, cores)


def idle_seconds(passes: Sequence[Pass], cores: int) -> float:
    """Return how long cores of a location were idle before the last one was done, added up.

    A core that ran nothing was idle all the time.
    """
    begun = min(one.begun for one in passes)
    ends: dict[tuple[int, int], float] = {}
    for one in passes:
        ends[one.thread] = max(ends.get(one.thread, begun), one.ended)
    last = sorted(ends.values())[-cores:]
    last += [begun] * (cores - len(last))
    return sum(max(last) - end for end in last)
