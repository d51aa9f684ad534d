"""Parse TOML of unknown origin, and find the lines of its keys, which :mod:`tomllib` drops.

The line finder parses only as much TOML as it needs to recognize tables and keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

MOST_CHARACTERS = 1_000_000
"""Maximum size of a file; many times the longest scenario."""

Place: TypeAlias = "tuple[str | int, ...]"
"""Path to a value: keys and, in arrays of tables, indexes."""

_TABLE = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[^=\s.]+)*)\s*=""")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; every error in it is a ValueError with a message.

    Raises
    ------
    ValueError
        If the text is not TOML, too long or too deeply nested, or has an overlong number.

    Examples
    --------
    >>> parse_toml("nodes = [1, 2]")
    {'nodes': [1, 2]}
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def lines_of(text: str) -> dict[Place, int]:
    r"""Return the line, from 1, of each table and key in a TOML file.

    Examples
    --------
    >>> lines = lines_of("a = 1\n\n[[b]]\nc = 2\n[[b]]\nc = 3\n")
    >>> lines["a",], lines["b", 1, "c"]
    (1, 6)
    """
    lines: dict[Place, int] = {}
    arrays: dict[Place, int] = {}
    table: Place = ()
    closing = ""
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if depth:
            depth += _balance(line)
            continue
        if header := _TABLE.match(line):
            table = _table_place(header[1] == "[[", _keys(header[2]), arrays)
            lines[table] = number
        elif key := _KEY.match(line):
            lines[(*table, *_keys(key[1]))] = number
            rest = line[key.end() :]
            closing = next((q for q in ('"""', "'''") if rest.count(q) == 1), "")
            depth = 0 if closing else _balance(rest)
    return lines


def nearest_line(lines: Mapping[Place, int], place: Sequence[str | int]) -> int | None:
    """Return the line of a value or, if unknown, of its innermost table with a known line."""
    for end in range(len(place), 0, -1):
        if tuple(place[:end]) in lines:
            return lines[tuple(place[:end])]
    return None


def _table_place(is_array: bool, keys: Sequence[str], arrays: dict[Place, int]) -> Place:
    """Return the path of a table; a key that names an array refers to its last table."""
    place: Place = ()
    for key in keys[:-1]:
        place = (*place, key)
        if place in arrays:
            place = (*place, arrays[place])
    place = (*place, keys[-1])
    if is_array:
        arrays[place] = arrays.get(place, -1) + 1
        place = (*place, arrays[place])
    return place


def _keys(dotted: str) -> list[str]:
    return [key.strip().strip("\"'") for key in dotted.split(".")]


def _balance(line: str) -> int:
    """Return the number of brackets opened and not closed in a line."""
    bare = _STRING.sub("", line).partition("#")[0]
    return sum(bare.count(opening) for opening in "[{") - sum(bare.count(end) for end in "]}")
