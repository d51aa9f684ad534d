"""Partial results of reductions: of the blocks of a partition, and of all partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from spliter.pipeline._calls.reductions import Nothing, Reduction
from spliter.pipeline._calls.split_types import Broadcast, SplitType


class Run(NamedTuple):
    """The partial result of blocks that follow each other; ``Nothing`` if they have no rows."""

    first: int
    last: int
    partial: Any


@dataclass(frozen=True)
class Partial(SplitType):
    """A result of which only the partial one is made."""

    combines: ClassVar[bool] = True
    kind: Any

    @property
    def takes_start(self) -> bool:
        """Whether the function gets the position of the first item."""
        return bool(getattr(self.kind, "takes_start", False))

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine partial results; of no rows, another block may have some."""
        some = [each for each in pieces if not isinstance(each, Nothing)]
        return self.kind.combine(some) if some else pieces[0]


@dataclass(frozen=True)
class Merger:
    """How the client gets the result of a reduction."""

    kind: Any
    errstate: dict[str, Any]

    @classmethod
    def of(cls, kind: SplitType, errstate: dict[str, Any]) -> Merger:
        """Return that of a split type; of results that are equal for all pieces, too."""
        if isinstance(kind, Broadcast):
            kind = Reduction(None, _first, commutative=True)
        modes = {key: mode.replace("call", "ignore") for key, mode in errstate.items()}
        return cls(kind, modes)

    def combine_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Combine the partial results of blocks that follow each other; if commutative, of all."""
        combined: list[Run] = []
        with np.errstate(**self.errstate):
            for run in sorted(runs, key=lambda run: run.first):
                before = combined[-1] if combined else None
                if before is None or not (self.kind.commutative or before.last + 1 == run.first):
                    combined.append(run)
                    continue
                partial = Partial(self.kind).merge([before.partial, run.partial])
                combined[-1] = Run(before.first, run.last, partial)
        return combined

    def finished(self, runs: Sequence[Run]) -> Any:
        """Return the result of all blocks; of no rows, what the function makes of them."""
        with np.errstate(**self.errstate):
            combined = self.kind.combine([run.partial for run in runs])
            return combined if self.kind.finish is None else self.kind.finish(combined)


def _first(one: Any, other: Any) -> Any:
    return one


def combine(
    mergers: Sequence[Merger], one: Sequence[list[Run]], other: Sequence[list[Run]]
) -> list[list[Run]]:
    """Combine the partial results of the blocks of two partitions."""
    return [
        merger.combine_runs((*runs, *others))
        for merger, runs, others in zip(mergers, one, other, strict=True)
    ]
