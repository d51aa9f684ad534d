"""Name blocks in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_NAMED: Final = 5
"""Blocks named in a message: enough to recognise a pattern, few enough to read."""


def name_blocks(blocks: Sequence[tuple[int, ...]]) -> str:
    """Return the number of some blocks and their first indexes.

    Examples
    --------
    >>> name_blocks([(0,), (7,)])
    '2 block(s) ((0,), (7,))'
    """
    named = ", ".join(map(str, blocks[:MAX_NAMED]))
    return f"{len(blocks)} block(s) ({named}{', ...' if len(blocks) > MAX_NAMED else ''})"
