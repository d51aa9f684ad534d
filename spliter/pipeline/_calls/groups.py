"""Split type of a group-by: one row per group, merged by the groups' keys; imports no pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, ClassVar, Final

from spliter._errors import AnnotationError
from spliter._reading.concatenate import concatenate
from spliter.pipeline._calls.reductions import Nothing
from spliter.pipeline._calls.split_types import SplitType, without_empty

COMBINED_BY: Final = {
    **dict.fromkeys(("sum", "mean", "count", "size"), "sum"),
    "min": "min",
    "max": "max",
}
"""Aggregates, and what combines those of pieces: a mean is that of sums and counts."""


@dataclass(frozen=True)
class Groups(SplitType):
    """One row per group: the function returns the group-by itself, and this names its aggregate.

    The call gives the aggregate, also where nothing is cut.

    Parameters
    ----------
    aggregate : {"sum", "mean", "min", "max", "count", "size"}
        Method of pandas' group-by.

    Examples
    --------
    >>> import pandas as pd
    >>> from spliter.pipeline import Groups, Rows, options, pipeline, splittable
    >>> @pipeline
    ... @splittable(cities=Rows(), returns=Groups("mean"))
    ... def by_state(cities):
    ...     return cities.groupby("state")["people"]
    >>> cities = pd.DataFrame({"state": ["a", "b", "a"], "people": [100, 600, 800]})
    >>> with options(batch=2):
    ...     by_state(cities)
    state
    a    450.0
    b    600.0
    Name: people, dtype: float64
    """

    combines: ClassVar[bool] = True
    commutative: ClassVar[bool] = True
    aggregate: str = "sum"

    def __post_init__(self) -> None:
        """Refuse an aggregate that those of pieces do not give."""
        if self.aggregate not in COMBINED_BY:
            raise AnnotationError(
                f"Groups has the aggregate {self.aggregate!r}, which does not follow from those of "
                f"pieces; pass one of {', '.join(COMBINED_BY)}, or annotate a Reduction"
            )

    def checked(self, grouped: Any, name: str) -> Any:
        """Return what the function `name` has returned, if it is a group-by to be combined."""
        if not hasattr(type(grouped), "ngroups"):
            wrong = f"a {type(grouped).__name__}"
        elif not (getattr(grouped, "as_index", True) and getattr(grouped, "sort", True)):
            wrong = "a group-by with as_index=False or sort=False"
        else:
            return grouped
        raise AnnotationError(
            f"{name} returned {wrong}, and its result is annotated as {self!r}; return the "
            'group-by itself, as frame.groupby("key")["column"], with sorted keys as the index'
        )

    def whole(self, grouped: Any) -> Any:
        """Return the aggregate of a group-by; means are doubles, also of short floats.

        What pandas gives of these depends on the number of groups.
        """
        found = getattr(grouped, self.aggregate)()
        if self.aggregate != "mean":
            return found
        if found.ndim == 1:
            return found.astype(float) if found.dtype == "f4" else found
        return found.astype({name: float for name, dtype in found.dtypes.items() if dtype == "f4"})

    def partial(self, grouped: Any) -> tuple[Any, ...]:
        """Return what is combined of a piece: rows, and of means no rows of them, too."""
        if self.aggregate != "mean":
            return (self.whole(grouped),)
        counts, means = grouped.count(), grouped.mean()
        sums = (means * counts).where(counts > 0, 0.0)
        both = sums.to_frame(0) if sums.ndim == 1 else sums
        frame = grouped.obj
        dtypes = [frame.dtype] if sums.ndim == 1 else frame.dtypes[[*sums.columns]]
        for at, dtype in enumerate(dtypes):
            if dtype.kind in "iub":  # exact up to 2**51; the sum of integers could overflow
                both.isetitem(at, both.iloc[:, at].round())
        for at, count in enumerate(counts.to_numpy().reshape(len(counts), -1).T):
            both.insert(both.shape[1], f"count {at}", count, allow_duplicates=True)
        return both, means[:0]

    def combine(self, pieces: Sequence[Any]) -> tuple[Any, ...]:
        """Combine the rows of equal keys."""
        kept = [p for p in pieces if not isinstance(p, Nothing)] or [pieces[0].made()]
        joined = concatenate(without_empty([rows for rows, *_ in kept]))
        levels = list(range(joined.index.nlevels))
        grouped = joined.groupby(
            level=levels if len(levels) > 1 else 0, dropna=False, observed=True
        )
        by = COMBINED_BY[self.aggregate]
        # Sums without values are 0; one that is NaN has infinities of both signs.
        found = grouped.sum(skipna=False) if by == "sum" else self.whole(grouped)
        return found, *kept[0][1:]

    def finish(self, parts: tuple[Any, ...]) -> Any:
        """Return the result, from what has been combined."""
        if self.aggregate != "mean":
            return parts[0]
        both, empty = parts
        middle = both.shape[1] // 2
        means = both.iloc[:, :middle] / both.iloc[:, middle:].to_numpy()
        return means.iloc[:, 0].rename(empty.name) if empty.ndim == 1 else means

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine the rows of equal keys, which are sorted."""
        return self.finish(self.combine(pieces))

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return f"Groups({self.aggregate!r})"


@dataclass(frozen=True)
class Aggregated:
    """A function that returns group-bys, and the types of its results."""

    fn: Callable[..., Any]
    kinds: tuple[Any, ...]

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", self.fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return aggregates in place of group-bys."""
        return self._each(Groups.whole, self.fn(*args, **kwargs))

    def first_step(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is combined in place of group-bys; called with pieces."""
        return self._each(Groups.partial, self.fn(*args, **kwargs))

    def _each(self, step: Callable[[Groups, Any], Any], found: Any) -> Any:
        is_one = len(self.kinds) == 1
        results = (found,) if is_one else found
        if not isinstance(results, tuple | list) or len(results) != len(self.kinds):
            return found  # an error that says how many results there are
        made = [
            step(kind, kind.checked(each, self.__name__)) if isinstance(kind, Groups) else each
            for kind, each in zip(self.kinds, results, strict=True)
        ]
        return made[0] if is_one else tuple(made)


def aggregated(fn: Callable[..., Any], kinds: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a function that gives aggregates in place of the group-bys of another one."""
    return Aggregated(fn, kinds) if any(isinstance(kind, Groups) for kind in kinds) else fn


def bound(fn: Callable[..., Any], owner: Any) -> Callable[..., Any]:
    """Return the method of an object."""
    if isinstance(fn, Aggregated):
        return Aggregated(MethodType(fn.fn, owner), fn.kinds)
    return MethodType(fn, owner)
