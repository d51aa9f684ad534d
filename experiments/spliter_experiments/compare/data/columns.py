"""Choose among the columns of an input: by name, by number, or the first numeric ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spliter_experiments.harness.errors import InputError, TextColumnError
from spliter_experiments.harness.options import words


@dataclass(frozen=True)
class Wanted:
    """Which columns of an input are wanted.

    Parameters
    ----------
    text : str or None
        Names or numbers between commas; None for the first numeric ones.
    most : int or None
        How many of these at most.
    without : str or None
        Name or number of one that must not be taken: it holds the labels.
    """

    text: str | None = None
    most: int | None = None
    without: str | None = None


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
        How many numeric columns the input has to choose from.
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
    names: Sequence[str], numeric: Sequence[bool], wanted: Wanted, origin: str
) -> Columns:
    """Resolve the user's choice.

    Raises
    ------
    InputError
        If a column does not exist, is named twice, is not numeric or holds the labels, or none
        is left.

    Examples
    --------
    >>> choose_columns(["a", "b", "c"], [True, False, True], Wanted(), "x.csv").names
    ('a', 'c')
    >>> choose_columns(["a", "b", "c"], [True, False, True], Wanted("2,a"), "x.csv").names
    ('c', 'a')
    """
    label = None if wanted.without is None else _find(wanted.without, names, origin)
    usable = [at for at, is_numeric in enumerate(numeric) if is_numeric and at != label]
    if not usable:
        raise InputError(f"{origin} has no numeric column; its columns are {_show(names)}")
    if wanted.text is None:
        positions = usable[: wanted.most]
    else:
        positions = [_find(word, names, origin) for word in words(wanted.text)]
    if not positions:
        raise InputError(f"--columns names no column; {origin} has {_show(names)}")
    if len(set(positions)) < len(positions):
        raise InputError(f"--columns names a column twice: {wanted.text}")
    if label in positions:
        raise InputError(f"--columns names {names[label]}, which holds the labels")
    text = [names[position] for position in positions if not numeric[position]]
    if text:
        raise TextColumnError(
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
