"""HTML of a Split and of a Partition: headings and the table of locations."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from spliter._format import format_bytes, plural
from spliter._planning.grid import BlockGrid, IntArray
from spliter._planning.planner import Location
from spliter.backend.blocks import Movement
from spliter.html._block_map import block_map, colour, shorten

_ROWS = 20
"""Maximum number of rows of the table."""

_NAME_IN_TABLE = 40
"""Maximum number of characters of a location's name in the table."""

OVERLOAD_RATIO = 1.2
"""Blocks of a location over the mean from which it is reported as overloaded (60 of 100 on two)."""


class ShownPartition(Protocol):
    """Attributes of a :class:`spliter.Partition` that its HTML shows."""

    @property
    def location(self) -> Location: ...
    @property
    def location_number(self) -> int: ...
    @property
    def indexes(self) -> Any: ...
    @property
    def block_nbytes(self) -> IntArray: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int | None, ...]: ...
    def __len__(self) -> int: ...


class ShownSplit(Protocol):
    """Attributes of a :class:`spliter.Split` that its HTML shows."""

    @property
    def locations(self) -> Sequence[Location]: ...
    @property
    def nblocks(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def grid(self) -> BlockGrid: ...
    @property
    def moved(self) -> Movement: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> Sequence[ShownPartition]: ...


def _imbalance(per_location: IntArray) -> str:
    """Return the largest location's share over the mean: 1.0 is balanced."""
    mean = per_location.mean()
    return f"{per_location.max() / mean:.2f}" if mean else "not known"


def _heading(what: str, facts: str) -> str:
    return f"<div><b>{what}</b>: {facts}</div>"


def _plural(count: int, noun: str) -> str:
    return plural(count, noun, ",")


def _overload_warning(split: ShownSplit, blocks: IntArray, advice: str) -> str:
    """Warn if one of several locations has most blocks, and say how to spread them."""
    most = int(blocks.argmax())
    if len(blocks) < 2 or blocks[most] <= max(split.nblocks / 2, OVERLOAD_RATIO * blocks.mean()):
        return ""
    where = html.escape(shorten(split.locations[most], _NAME_IN_TABLE))
    return (
        f"<div>{blocks[most]:,} of {_plural(split.nblocks, 'block')} are at one location, {where}, "
        f"and so is most of the work. {html.escape(advice)}</div>"
    )


def _sizes(nbytes: IntArray) -> str:
    """Return the range of block sizes, in words."""
    if not nbytes.any():
        return "sizes not known"
    least, most = format_bytes(int(nbytes.min())), format_bytes(int(nbytes.max()))
    return f"{least} each" if least == most else f"{least} to {most} each"


def _table(split: ShownSplit, totals: _Totals) -> str:
    names = split.locations
    rows = "".join(
        _row(
            "td",
            f"{at + 1}",
            f'<span style="color:{colour(at)}">&#9632;</span> '
            f"{html.escape(shorten(name, _NAME_IN_TABLE))}",
            f"{totals.partitions[at]:,}",
            f"{totals.blocks[at]:,}",
            format_bytes(int(totals.nbytes[at])),
        )
        for at, name in enumerate(names[:_ROWS])
    )
    left = len(names) - _ROWS
    more = f'<tr><td colspan="5">and {left:,} more locations</td></tr>' if left > 0 else ""
    return (
        '<table style="margin:6px 0;font-size:12px">'
        f"<thead>{_row('th', '#', 'location', 'partitions', 'blocks', 'size')}</thead>"
        f"<tbody>{rows}{more}</tbody></table>"
    )


def _row(tag: str, number: str, location: str, *counts: str) -> str:
    """Return a table row; every cell has an explicit style that overrides the page's.

    Jupyter's style wraps lines in cells, that of the documentation makes cells wide.
    """
    right, left = (
        f'<{tag} style="text-align:{side};white-space:nowrap;min-width:0;padding:2px 3px">'
        for side in ("right", "left")
    )
    cells = [right + number, left + location, *(right + count for count in counts)]
    return f"<tr>{''.join(f'{cell}</{tag}>' for cell in cells)}</tr>"


@dataclass(frozen=True)
class _Totals:
    """Totals of each location, in the order of `Split.locations`."""

    partitions: IntArray
    blocks: IntArray
    nbytes: IntArray
    owner: IntArray
    """Number of the location of each block."""
    block_nbytes: IntArray

    @classmethod
    def of(cls, split: ShownSplit) -> _Totals:
        locations = split.locations
        number = {location: i for i, location in enumerate(locations)}
        partitions, blocks, nbytes = np.zeros((3, len(locations)), dtype=np.int64)
        owner, block_nbytes = np.zeros((2, split.nblocks), dtype=np.int64)
        for partition in split[:]:
            at = number[partition.location]
            partitions[at] += 1
            blocks[at] += len(partition)
            nbytes[at] += partition.nbytes
            owner[partition.indexes.positions] = at
            block_nbytes[partition.indexes.positions] = partition.block_nbytes
        return cls(partitions, blocks, nbytes, owner, block_nbytes)


def split_html(split: ShownSplit, options: str, advice: str) -> str:
    """Return the HTML of an open or closed Split: less than 100 kB for any.

    A heading, the imbalance of the locations, a table with a row per location (the first twenty),
    and the block map. `options` are its options in words, `advice` how to spread the blocks.
    """
    if not len(split) or repr(split).endswith("closed>"):
        return f"<b>{html.escape(repr(split)[1:-1])}</b>"
    totals = _Totals.of(split)
    locations = split.locations
    moved = split.moved
    note = (
        f"<div>moved: {_plural(moved.blocks, 'block')}, {format_bytes(moved.nbytes)}</div>"
        if moved.blocks
        else ""
    )
    spread = (
        f"<div>largest location over the mean: {_imbalance(totals.nbytes)} in bytes, "
        f"{_imbalance(totals.blocks)} in blocks</div>"
        if len(locations) > 1
        else ""
    )
    return _framed(
        _heading(
            "Split",
            f"{_plural(split.nblocks, 'block')} ({_sizes(totals.block_nbytes)}), "
            f"{format_bytes(split.nbytes)}, {_plural(len(split), 'partition')} at "
            f"{_plural(len(locations), 'location')}{html.escape(options)}",
        ),
        spread,
        _overload_warning(split, totals.blocks, advice),
        _table(split, totals),
        block_map(totals.owner, split.grid.shape, dict(enumerate(locations))),
        note,
    )


def partition_html(partition: ShownPartition) -> str:
    """Return the HTML of a Partition: a heading, and the map with its own blocks coloured."""
    indexes = partition.indexes
    where = html.escape(shorten(partition.location, _NAME_IN_TABLE))
    shape = ", ".join("?" if size is None else str(size) for size in partition.shape)
    facts = (
        f"{_plural(len(partition), 'block')} ({_sizes(partition.block_nbytes)}), "
        f"{format_bytes(partition.nbytes)}, shape ({shape}), at {where}"
    )
    owner = np.full(math.prod(indexes.grid_shape), -1, dtype=np.int64)
    number = partition.location_number
    owner[indexes.positions] = number
    drawn = block_map(owner, indexes.grid_shape, {number: partition.location})
    return _framed(_heading("Partition", facts), drawn)


def _framed(*parts: str) -> str:
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(parts)}</div>'
