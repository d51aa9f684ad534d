"""Parse comma-separated names and numbers from the command line; errors list the choices."""

from __future__ import annotations

from collections.abc import Sequence

from spliter_experiments.harness.errors import OptionError


def words(text: str) -> tuple[str, ...]:
    """Split at commas; drop surrounding spaces and empty parts.

    >>> words("a, b,,c")
    ('a', 'b', 'c')
    """
    return tuple(piece for piece in (raw.strip() for raw in text.split(",")) if piece)


def is_count(word: str) -> bool:
    """Return whether a word is a whole number from 1, with at most nine digits.

    >>> [is_count(word) for word in ("12", "0", "-1", "1" * 5000, "one")]
    [True, False, False, False, False]
    """
    return word.isascii() and word.isdecimal() and len(word) <= 9 and int(word) > 0


def parse_sweep(text: str) -> tuple[int, ...]:
    """Parse blocks per core such as ``1,4,16``: whole numbers from 1, sorted, without duplicates.

    >>> parse_sweep("16,4,4")
    (4, 16)
    """
    try:
        numbers = {int(word) for word in words(text)}
    except ValueError:
        numbers = set()
    if not numbers or min(numbers) < 1:
        raise OptionError(
            "--sweep takes whole numbers of blocks per core, from 1, such as 1,4,16,48; "
            f"got {text!r}"
        )
    return tuple(sorted(numbers))


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
