"""Parse comma-separated names and numbers from the command line; errors list the choices."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from spliter_experiments.harness.errors import OptionError


def words(text: str) -> tuple[str, ...]:
    """Split at commas; drop surrounding spaces and empty parts.

    >>> words("a, b,,c")
    ('a', 'b', 'c')
    """
    return tuple(piece for piece in (raw.strip() for raw in text.split(",")) if piece)


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Parse whole numbers from 1, of at most nine digits, such as ``1,4,16``.

    >>> parse_counts("--nodes", "16,4,4")
    (16, 4, 4)
    """
    found = words(text)
    if not found or not all(re.fullmatch("0*[1-9][0-9]{0,8}", word) for word in found):
        raise OptionError(f"{option} takes whole numbers from 1, such as 1,4,16; got {text!r}")
    return tuple(map(int, found))


def parse_ways(text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Parse the names of ways; None selects all.

    >>> parse_ways("b,a", known=["a", "b", "c"])
    ('b', 'a')
    """
    if text is None:
        return tuple(known)
    names = words(text)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f"there is no way {', '.join(map(repr, unknown))}" if unknown else "no way is given"
        raise OptionError(f"--ways: {wrong}; the ways are {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def parse_workloads(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Parse the names of workloads; ``all`` selects all.

    >>> parse_workloads("b, a", known=["a", "b", "c"])
    ('b', 'a')
    """
    names = tuple(known) if text == "all" else words(text)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise OptionError(
            f"--workload {text!r} is unknown; take all, or some of {', '.join(known)}"
        )
    return tuple(dict.fromkeys(names))
