"""Format values for people: bytes with a unit, counts with a noun, types by name."""

from __future__ import annotations

from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with a binary unit.

    Examples
    --------
    >>> [format_bytes(nbytes) for nbytes in (0, 1023, 1536, 2**70)]
    ['0 B', '1023 B', '1.5 KiB', '1048576.0 PiB']
    """
    value = float(nbytes)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def plural(count: int, noun: str, form: str = "d") -> str:
    """Return a count and its noun, whose plural ends in "s"; `form` is a format of the count.

    Examples
    --------
    >>> plural(1, "block"), plural(2000, "block", ",")
    ('1 block', '2,000 blocks')
    """
    return f"{count:{form}} {noun}" + ("" if count == 1 else "s")


def describe_type(value: Any) -> str:
    """Return the name of a value's type, with its module; of a list, that of its first element too.

    Examples
    --------
    >>> describe_type([1.5]), describe_type(())
    ('a list of float', 'an empty tuple')
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(value, list | tuple):
        return f"a {name} of {describe_type(value[0])}" if value else f"an empty {name}"
    return name
