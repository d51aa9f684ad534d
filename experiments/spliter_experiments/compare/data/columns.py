"""Select columns of an input by name, by number, or the first numeric ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spliter_experiments.harness.errors import InputError, TextColumnError
from spliter_experiments.harness.options import words


@dataclass(frozen=True)
class Wanted:
    """Requested columns of an input, by comma-separated names or numbers.

    Without a text these are the first `most` numeric ones. The column `without`, that of the
    labels, must not be among them.
    """

    text: str | None = None
    most: int | None = None
    without: str | None = None


@dataclass(frozen=True)
class Columns:
    """Selected columns of an input: names and positions, and how many numeric ones the input has.

    Columns of an input without names are named by their numbers.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    numeric: int

    @classmethod
    def numbered(cls, count: int) -> Columns:
        """Return `count` columns named by their numbers."""
        return cls(tuple(map(str, range(count))), tuple(range(count)), count)

    def __len__(self) -> int:
        return len(self.names)


def choose_columns(
    names: Sequence[str], numeric: Sequence[bool], wanted: Wanted, origin: str
) -> Columns:
    """Resolve the requested columns.

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
