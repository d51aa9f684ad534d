"""Split type of a group-by: one row per group, merged by the groups' keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spliter._errors import AnnotationError
from spliter.backend.contents import concatenate
from spliter.pipeline._calls.reductions import Nothing
from spliter.pipeline._calls.split_types import SplitType, without_empty


@dataclass(frozen=True)
class Groups(SplitType):
    """Result of a pandas group-by with one row per group, whose index is the group's key.

    Parameters
    ----------
    aggregate : str
        Commutative aggregate that combines the rows of equal keys: ``"sum"``, ``"min"``,
        ``"max"``.
    """

    combines: ClassVar[bool] = True
    aggregate: str = "sum"

    def __post_init__(self) -> None:
        """Refuse an aggregate that does not combine partial results of its own."""
        if self.aggregate not in ("sum", "min", "max"):
            raise AnnotationError(
                f"Groups has the aggregate {self.aggregate!r}, and combines rows of equal keys by "
                'sum, min or max; pass "sum", "min" or "max", or annotate a function that gives '
                "sums and counts"
            )

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine rows of equal keys; keys are sorted, as pandas does by default."""
        pieces = [p for p in pieces if not isinstance(p, Nothing)] or [pieces[0].call()]
        if not all(hasattr(type(each), "iloc") for each in pieces):
            raise AnnotationError(
                f"a function whose result is annotated as {self!r} returned a "
                f"{type(pieces[0]).__name__}; return a frame or series whose index has the keys, "
                "or correct the annotation"
            )
        joined = concatenate(without_empty(pieces))
        levels = list(range(joined.index.nlevels))
        level = levels if len(levels) > 1 else 0
        grouped = joined.groupby(level=level, dropna=False, observed=True)
        return getattr(grouped, self.aggregate)()
