"""Split types of results that combine all rows, such as sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from spliter._errors import AnnotationError
from spliter.pipeline._calls.split_types import SplitType


@dataclass(frozen=True)
class Nothing:
    """The partial result of a piece without rows: the function is not called for it."""

    call: Callable[[], Any]

    def made(self) -> Any:
        """Call the function after all, as no piece has rows."""
        found = self.call()
        return found.made() if isinstance(found, Nothing) else found


class Reduction(SplitType):
    """A result that combines all items, such as a sum.

    Parameters
    ----------
    partial : callable, optional
        Called with a piece in place of the function, with the same arguments; by default the
        function itself.
    merge : callable
        Combines two partial results; associative. Called in the order of the items.
    finish : callable, optional
        Makes the result from the last partial result.
    takes_start : bool, default False
        Whether `partial` gets the keyword ``start``: the position of its first item.
    commutative : bool, default False
        Whether partial results may be combined in any order. Over a Split, fewer of them are sent
        then: one for each partition, not for each run of its blocks that follow each other.

    Examples
    --------
    >>> import operator
    >>> import numpy as np
    >>> from spliter.pipeline import Reduction, Rows, options, pipeline, splittable
    >>> def longest(names):
    ...     return max(map(len, names))
    >>> by_batches = pipeline(splittable(longest, names=Rows(), returns=Reduction(merge=max)))
    >>> with options(batch=2):
    ...     by_batches(["a", "bcd", "ef"])
    3
    """

    combines: ClassVar[bool] = True

    def __init__(
        self,
        partial: Callable[..., Any] | None = None,
        merge: Callable[[Any, Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
        *,
        takes_start: bool = False,
        commutative: bool = False,
    ) -> None:
        if merge is None or not callable(merge):
            raise AnnotationError(
                f"Reduction has no function to merge, got {merge!r}; pass merge=, which combines "
                "two partial results"
            )
        self.partial = partial
        self.merge_two = merge
        self.finish = finish
        self.takes_start = takes_start
        self.commutative = commutative

    def __repr__(self) -> str:
        """Return the name of the class, as functions have no short one."""
        return "Reduction"

    def combine(self, pieces: Sequence[Any]) -> Any:
        """Combine partial results pairwise, in order; not finished."""
        level = [each for each in pieces if not isinstance(each, Nothing)]
        level = level or [pieces[0].made()]
        while len(level) > 1:
            pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
            level = [self.merge_two(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return level[0]

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Combine partial results and finish."""
        last = self.combine(pieces)
        return last if self.finish is None else self.finish(last)


def first_step(fn: Callable[..., Any], outputs: Sequence[SplitType]) -> Callable[..., Any]:
    """Return what is called with a piece in place of a function with some results."""
    if (own := getattr(fn, "first_step", None)) is not None:
        return cast(Callable[..., Any], own)
    partials = [kind.partial for kind in outputs if isinstance(kind, Reduction)]
    return next(filter(None, partials), fn)
