"""Parse TOML files of users, and list the mistakes in their entries."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

MOST_CHARACTERS = 1_000_000
"""Maximum size of a file; many times the longest scenario."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; every error in it is a ValueError with a message.

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


def mistakes(error: ValidationError, hidden: Collection[str] = ()) -> str:
    """Return a line for each mistake: the entry, what is wrong with it, and its value.

    Parameters
    ----------
    error : ValidationError
        Raised by pydantic.
    hidden : collection of str
        Keys of the path that pydantic has added: the names of the variants of a union.
    """
    lines = []
    for found in error.errors():
        entry = ".".join(str(key) for key in found["loc"] if key not in hidden)
        given = found["input"]
        shown = f", got {given!r}" if isinstance(given, str | int | float | bool) else ""
        what = found["msg"].removeprefix("Value error, ")
        lines.append(f"  {entry + ': ' if entry else ''}{what}{shown}")
    return "\n".join(lines)
