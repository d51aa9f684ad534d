"""Draw the block map: which location has which blocks, as an inline SVG.

A square stands for one block, or for several if there are more blocks than squares; such a
square is divided in proportion to the blocks of each location. The size of the drawing is
bounded for any number of blocks. The colours are the colour-blind-safe palette of Okabe and Ito;
squares also show the number of their location, so no information is in the colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spliter._planning.grid import IntArray

ACROSS = 20
"""Maximum number of squares in a row, and of rows."""

_SIDE = 18
_GAP = 2
_STRIPES = 3
"""Maximum number of locations shown in one square; the rest is left pale."""

NAME_SHOWN = 32
"""Maximum number of characters of a location's name in a tooltip."""

_COLOURS = (
    ("#e69f00", "#000"),
    ("#56b4e9", "#000"),
    ("#009e73", "#000"),
    ("#f0e442", "#000"),
    ("#0072b2", "#fff"),
    ("#d55e00", "#000"),
    ("#cc79a7", "#000"),
    ("#a0a0a0", "#000"),
)
"""Fill colour and a legible text colour. All fills contrast with white and black."""

_PALE = "#8884"


def colour(number: int) -> str:
    """Return the colour of a location from its number; the eight colours repeat.

    Examples
    --------
    >>> colour(0), colour(8) == colour(0)
    ('#e69f00', True)
    """
    return _COLOURS[number % len(_COLOURS)][0]


def shorten(name: str, most: int = NAME_SHOWN) -> str:
    """Return a name, its middle replaced by an ellipsis if it is long.

    Examples
    --------
    >>> shorten("tcp://10.0.0.1:8786", most=9)
    'tcp:…8786'
    """
    if len(name) <= most:
        return name
    head = most // 2
    return f"{name[:head]}…{name[len(name) - (most - head - 1) :]}"


@dataclass(frozen=True)
class _Square:
    """The blocks that one square stands for."""

    row: int
    column: int
    first: int
    last: int
    shares: tuple[tuple[int, int], ...]
    """Numbers of locations and how many of the blocks each has, largest first."""

    @property
    def blocks(self) -> int:
        return sum(count for _, count in self.shares)


def block_map(owner: IntArray, grid: tuple[int, ...], names: Mapping[int, str]) -> str:
    """Draw blocks in the order of their collection, coloured by location: SVG of less than 80 kB.

    Blocks along one axis are drawn line by line, like text; of several axes the first goes down and
    the others across. `owner` has the number of each block's location, -1 for blocks drawn pale;
    `names` has those of the locations. The tooltip of a square names its blocks.

    Examples
    --------
    >>> drawn = block_map(np.array([0, 1, 1]), (3,), {0: "A", 1: "B"})
    >>> drawn.count("<title>"), "block 2 at B" in drawn
    (3, True)
    """
    squares = list(_squares(owner, grid))
    width = _SIDE * (1 + max(square.column for square in squares))
    height = _SIDE * (1 + max(square.row for square in squares))
    return (
        f'<svg role="img" aria-label="blocks by location" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="max-width:100%">'
        f"{_fills(squares)}{_numbers(squares, len(names))}{_tooltips(squares, grid, names)}</svg>"
    )


def _squares(owner: IntArray, grid: tuple[int, ...]) -> Iterator[_Square]:
    """Divide the blocks among squares."""
    at = np.arange(len(owner))
    across = len(owner) // max(grid[0], 1)
    if across == 1:
        square = at // -(-len(owner) // ACROSS**2)
        columns = ACROSS
    else:
        down = -(-grid[0] // ACROSS)
        aside = -(-across // ACROSS)
        columns = -(-across // aside)
        square = (at // across // down) * columns + at % across // aside
        # Neighbouring blocks may be in different squares: sort, keeping their order.
    order = np.argsort(square, kind="stable")
    numbers, starts = np.unique(square[order], return_index=True)
    for number, blocks in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        owners, counts = np.unique(owner[blocks], return_counts=True)
        most_first = np.argsort(-counts, kind="stable")
        yield _Square(
            number // columns,
            number % columns,
            int(blocks[0]),
            int(blocks[-1]),
            tuple(zip(owners[most_first].tolist(), counts[most_first].tolist(), strict=True)),
        )


def _fills(squares: Sequence[_Square]) -> str:
    """Fill each square in stripes; one path for each colour, to keep the text short."""
    outlines: dict[str, list[str]] = {}
    side = _SIDE - _GAP
    for square in squares:
        left = 0.0
        for number, count in square.shares[:_STRIPES]:
            wide = side * count / square.blocks
            if wide < 1:  # too narrow to be seen
                break
            fill = colour(number) if number >= 0 else _PALE
            outlines.setdefault(fill, []).append(_box(square, left, wide))
            left += wide
        if side - left > 0.01:
            outlines.setdefault(_PALE, []).append(_box(square, left, side - left))
    return "".join(
        f'<path fill="{fill}" d="{"".join(boxes)}"/>' for fill, boxes in outlines.items()
    )


def _box(square: _Square, left: float = 0, wide: float = _SIDE - _GAP) -> str:
    x, y = square.column * _SIDE + left, square.row * _SIDE
    return f"M{x:.4g} {y}h{wide:.3g}v{_SIDE - _GAP}H{x:.4g}z"


def _numbers(squares: Sequence[_Square], locations: int) -> str:
    """Write the numbers of their locations into the squares, if there are several locations."""
    if locations < 2:
        return ""
    written: dict[tuple[str, int], list[str]] = {}
    for square in squares:
        number = square.shares[0][0]
        if len(square.shares) == 1 and 0 <= number < 999:
            middle = square.column * _SIDE + (_SIDE - _GAP) // 2
            text = f'<text x="{middle}" y="{square.row * _SIDE + 12}">{number + 1}</text>'
            ink = _COLOURS[number % len(_COLOURS)][1]
            written.setdefault((ink, 11 if number < 99 else 8), []).append(text)
    return "".join(
        f'<g fill="{ink}" font-size="{size}" font-family="sans-serif" text-anchor="middle">'
        f"{''.join(texts)}</g>"
        for (ink, size), texts in written.items()
    )


def _tooltips(squares: Sequence[_Square], grid: tuple[int, ...], names: Mapping[int, str]) -> str:
    shown = {number: _in_tooltip(name) for number, name in names.items()}
    tooltips = "".join(
        f'<path d="{_box(square)}"><title>{_tooltip(square, grid, shown)}</title></path>'
        for square in squares
    )
    return f'<g fill="none" pointer-events="all">{tooltips}</g>'


def _in_tooltip(name: str) -> str:
    """Return a name for a tooltip, no longer than 64 characters when those of HTML are escaped."""
    escaped = html.escape(shorten(name))
    return escaped if len(escaped) <= 2 * NAME_SHOWN else html.escape(shorten(name, 10))


def _tooltip(square: _Square, grid: tuple[int, ...], names: Mapping[int, str]) -> str:
    if square.blocks == 1:
        number = square.shares[0][0]
        where = f" at {names[number]}" if number >= 0 else " in another partition"
        return f"block {_index(square.first, grid)}{where}"
    shares = square.shares[:_STRIPES]
    # A square that stands for several blocks names its locations by number: names are long.
    parts = [
        f"{count} {f'at {number + 1}' if number >= 0 else 'others'}" for number, count in shares
    ]
    if left := square.blocks - sum(count for _, count in shares):
        parts.append(f"{left} elsewhere")
    first, last = _index(square.first, grid), _index(square.last, grid)
    return f"blocks {first} to {last}: {', '.join(parts)}"


def _index(position: int, grid: tuple[int, ...]) -> str:
    if len(grid) == 1:
        return str(position)
    return str(tuple(int(i) for i in np.unravel_index(position, grid)))
