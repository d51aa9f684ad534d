"""Choose among the columns of an input: by name, by number, or the first numeric ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spliter_experiments._errors import InputError
from spliter_experiments._options import words

DEFAULT_MOST = 5
"""Columns taken where the user chooses none: a grid of bins grows with every column."""


@dataclass(frozen=True)
class Columns:
    """The columns of an input that are read.

    Parameters
    ----------
    names : tuple of str
        Their names; the numbers of the columns where the input has none.
    positions : tuple of int
        Where they stand in the input.
    numeric : int
        How many numeric columns the input has.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    numeric: int

    @classmethod
    def numbered(cls, count: int) -> Columns:
        """Make `count` columns that bear their number as a name."""
        return cls(tuple(map(str, range(count))), tuple(range(count)), count)

    def __len__(self) -> int:
        return len(self.names)


def choose_columns(
    names: Sequence[str], numeric: Sequence[bool], wanted: str | None, origin: str
) -> Columns:
    """Resolve the user's choice.

    Parameters
    ----------
    names : sequence of str
        All columns of the input.
    numeric : sequence of bool, same length
        Which of them hold numbers.
    wanted : str or None
        Names or numbers between commas; None for the first numeric ones.
    origin : str
        What to call the input in errors.

    Raises
    ------
    InputError
        If a column does not exist, is named twice or is not numeric, or none is.

    Examples
    --------
    >>> choose_columns(["a", "b", "c"], [True, False, True], None, "x.csv").names
    ('a', 'c')
    >>> choose_columns(["a", "b", "c"], [True, False, True], "2,a", "x.csv").names
    ('c', 'a')
    """
    usable = [position for position, is_numeric in enumerate(numeric) if is_numeric]
    if not usable:
        raise InputError(f"{origin} has no numeric column; its columns are {_show(names)}")
    if wanted is None:
        positions = usable[:DEFAULT_MOST]
    else:
        positions = [_find(word, names, origin) for word in words(wanted)]
    if not positions:
        raise InputError(f"--columns names no column; {origin} has {_show(names)}")
    if len(set(positions)) < len(positions):
        raise InputError(f"--columns names a column twice: {wanted}")
    text = [names[position] for position in positions if not numeric[position]]
    if text:
        raise InputError(
            f"not numeric in {origin}: {_show(text)}; the numeric columns are "
            f"{_show([names[position] for position in usable])}"
        )
    chosen = tuple(names[position] for position in positions)
    return Columns(chosen, tuple(positions), len(usable))


def _find(word: str, names: Sequence[str], origin: str) -> int:
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < len(names):
        return int(word)
    raise InputError(f"{origin} has no column {word!r}; it has {_show(names)}")


def _show(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return f"{shown}, … ({len(names)} columns)" if len(names) > most else shown
