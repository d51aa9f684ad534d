"""How a Split looks in a notebook: its block map, one row of cells per location."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spliter._partition import Partition
    from spliter._split import Split

_CELLS = 240
"""Most cells drawn for one collection; a cell then stands for several blocks."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with a binary unit.

    Parameters
    ----------
    nbytes : float
        Number of bytes, >= 0.

    Returns
    -------
    str
        Such as ``'1.5 MiB'``.

    Examples
    --------
    >>> format_bytes(1536)
    '1.5 KiB'
    """
    value = float(nbytes)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def _colour(number: int, of: int) -> str:
    return f"hsl({360 * number // max(of, 1)}, 55%, 60%)"


def _block_map(split: Split) -> str:
    """Draw the blocks in collection order, coloured by location."""
    locations = split.locations
    number = {location: i for i, location in enumerate(locations)}
    owner = np.zeros(split.nblocks, dtype=np.int64)
    for partition in split[:]:
        owner[partition.indexes.positions] = number[partition.location]
    shown = owner[:: max(-(-split.nblocks // _CELLS), 1)]
    cells = "".join(
        f'<span style="display:inline-block;width:10px;height:10px;margin:1px;'
        f'background:{_colour(int(i), len(locations))}"></span>'
        for i in shown
    )
    return f'<div style="line-height:12px;max-width:600px">{cells}</div>'


def _row(location: str, colour: str, partitions: Sequence[Partition]) -> str:
    blocks = sum(len(partition) for partition in partitions)
    nbytes = sum(partition.nbytes for partition in partitions)
    return (
        f'<tr><td style="text-align:left"><span style="color:{colour}">&#9632;</span> '
        f"{html.escape(location)}</td><td>{len(partitions)}</td><td>{blocks}</td>"
        f"<td>{format_bytes(nbytes)}</td></tr>"
    )


def split_html(split: Split) -> str:
    """Return the HTML of a Split.

    Parameters
    ----------
    split : Split
        An open or closed Split.

    Returns
    -------
    str
        A heading, a table with a row per location, and the block map.
    """
    if not len(split) or repr(split) == "<Split: closed>":
        return f"<b>{html.escape(repr(split)[1:-1])}</b>"
    locations = split.locations
    rows = "".join(
        _row(
            location,
            _colour(i, len(locations)),
            [partition for partition in split[:] if partition.location == location],
        )
        for i, location in enumerate(locations)
    )
    moved = split.moved
    note = (
        f"<div>moved: {moved.blocks} blocks, {format_bytes(moved.nbytes)}</div>"
        if moved.blocks
        else ""
    )
    return (
        f"<div><b>Split</b>: {split.nblocks} blocks, {format_bytes(split.nbytes)}, "
        f"{len(split)} partitions{html.escape(split._told_materialization())}</div>"
        "<table><thead><tr><th>location</th><th>partitions</th><th>blocks</th>"
        f"<th>size</th></tr></thead><tbody>{rows}</tbody></table>{_block_map(split)}{note}"
    )
