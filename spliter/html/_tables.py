"""HTML of a Split and of a Partition: headings and the table of locations."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spliter._format import format_bytes, plural
from spliter._planning.grid import IntArray
from spliter._planning.planner import Location
from spliter._reading.partition_blocks import PartitionBlocks
from spliter.backend.blocks import Movement
from spliter.html._block_map import block_map, colour, shorten

_ROWS = 20
"""Maximum number of rows of the table."""

_NAME_IN_TABLE = 40
"""Maximum number of characters of a location's name in the table."""

OVERLOAD_RATIO = 1.2
"""Blocks of a location over the mean from which it is reported as overloaded (60 of 100 on two)."""


def _imbalance(per_location: IntArray) -> str:
    """Return the largest location's share over the mean: 1.0 is balanced."""
    mean = per_location.mean()
    return f"{per_location.max() / mean:.2f}" if mean else "not known"


def _heading(what: str, facts: str) -> str:
    return f"<div><b>{what}</b>: {facts}</div>"


def _plural(count: int, noun: str) -> str:
    return plural(count, noun, ",")


def _overload_warning(totals: _Totals, advice: str) -> str:
    """Warn if one of several locations has most blocks, and say how to spread them."""
    blocks = totals.blocks
    most = int(blocks.argmax())
    if len(blocks) < 2 or blocks[most] <= max(blocks.sum() / 2, OVERLOAD_RATIO * blocks.mean()):
        return ""
    where = html.escape(shorten(totals.locations[most], _NAME_IN_TABLE))
    return (
        f"<div>{blocks[most]:,} of {_plural(int(blocks.sum()), 'block')} are at one location, "
        f"{where}, and so is most of the work. {html.escape(advice)}</div>"
    )


def _sizes(nbytes: IntArray) -> str:
    """Return the range of block sizes, in words."""
    if not nbytes.any():
        return "sizes not known"
    least, most = format_bytes(int(nbytes.min())), format_bytes(int(nbytes.max()))
    return f"{least} each" if least == most else f"{least} to {most} each"


def _table(totals: _Totals) -> str:
    names = totals.locations
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
    """Totals of each location."""

    locations: Sequence[Location]
    partitions: IntArray
    blocks: IntArray
    nbytes: IntArray
    owner: IntArray
    """Number of the location of each block."""
    block_nbytes: IntArray

    @classmethod
    def of(cls, partitions: Sequence[PartitionBlocks], nblocks: int) -> _Totals:
        locations = sorted({partition.location for partition in partitions})
        number = {location: i for i, location in enumerate(locations)}
        count, blocks, nbytes = np.zeros((3, len(locations)), dtype=np.int64)
        owner, block_nbytes = np.zeros((2, nblocks), dtype=np.int64)
        for partition in partitions:
            at = number[partition.location]
            count[at] += 1
            blocks[at] += len(partition.nbytes)
            nbytes[at] += partition.nbytes.sum()
            owner[partition.indexes.positions] = at
            block_nbytes[partition.indexes.positions] = partition.nbytes
        return cls(locations, count, blocks, nbytes, owner, block_nbytes)


def split_html(
    partitions: Sequence[PartitionBlocks],
    shape: tuple[int, ...],
    moved: Movement,
    options: str,
    advice: str,
) -> str:
    """Return the HTML of an open Split, less than 100 kB for any with a grid of this shape.

    A heading, the imbalance of the locations, a table with a row per location (the first twenty),
    and the block map. `options` are its options in words, `advice` how to spread the blocks.
    """
    nblocks = math.prod(shape)
    totals = _Totals.of(partitions, nblocks)
    note = f"<div>moved: {_plural(moved.blocks, 'block')}, {format_bytes(moved.nbytes)}</div>"
    spread = (
        f"<div>largest location over the mean: {_imbalance(totals.nbytes)} in bytes, "
        f"{_imbalance(totals.blocks)} in blocks</div>"
    )
    several = len(totals.locations) > 1
    return _framed(
        _heading(
            "Split",
            f"{_plural(nblocks, 'block')} ({_sizes(totals.block_nbytes)}), "
            f"{format_bytes(int(totals.nbytes.sum()))}, {_plural(len(partitions), 'partition')} at "
            f"{_plural(len(totals.locations), 'location')}{html.escape(options)}",
        ),
        spread if several else "",
        _overload_warning(totals, advice),
        _table(totals),
        block_map(totals.owner, shape, dict(enumerate(totals.locations))),
        note if moved.blocks else "",
    )


def partition_html(partition: PartitionBlocks, number: int) -> str:
    """Return the HTML of a Partition: a heading, and the map with its own blocks coloured.

    `number` is that of its location, which decides on the colour.
    """
    indexes, nbytes = partition.indexes, partition.nbytes
    where = html.escape(shorten(partition.location, _NAME_IN_TABLE))
    shape = ", ".join("?" if size is None else str(size) for size in indexes.shape)
    facts = (
        f"{_plural(len(nbytes), 'block')} ({_sizes(nbytes)}), "
        f"{format_bytes(int(nbytes.sum()))}, shape ({shape}), at {where}"
    )
    owner = np.full(math.prod(indexes.grid_shape), -1, dtype=np.int64)
    owner[indexes.positions] = number
    drawn = block_map(owner, indexes.grid_shape, {number: partition.location})
    return _framed(_heading("Partition", facts), drawn)


def text_html(text: str) -> str:
    """Return the HTML of a Split that was closed, or has no blocks: its repr without brackets."""
    return f"<b>{html.escape(text[1:-1])}</b>"


def _framed(*parts: str) -> str:
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(parts)}</div>'
