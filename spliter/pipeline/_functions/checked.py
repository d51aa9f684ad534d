"""Annotated functions as they are called: results are checked, and of no rows they are not called.

A filter may leave no rows of a batch, or of a block of a Split, for which many functions fail or
make other dtypes and columns than for some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter._errors import AlignmentError, AnnotationError
from spliter.backend.contents import count_rows
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta, meta_of
from spliter.pipeline._calls.split_types import Groups, Nothing, Reduction, Rows, SplitType
from spliter.pipeline._running.results import check_length


class Checking:
    """A function that is called in place of another one, whose name it has."""

    fn: Callable[..., Any]

    @property
    def __name__(self) -> str:
        """Name of the function."""
        return str(getattr(self.fn, "__name__", self.fn))


@dataclass(frozen=True)
class AsForOneRow(Checking):
    """A function whose results must be as for one row, as later calls have been captured so.

    Parameters
    ----------
    fn : callable
    metas : tuple of Meta
        Of the results; ``None`` for any.
    checked : tuple of Meta
        The same, but without extents where another axis may be cut.
    empties : tuple
        Results of no rows; ``None`` for any.
    """

    fn: Callable[..., Any]
    metas: tuple[Meta, ...]
    checked: tuple[Meta, ...]
    empties: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and check its results."""
        result = self.fn(*args, **kwargs)
        if len(self.checked) == 1:
            return self._as_for_one_row(result, self.checked[0], self.empties[0])
        if not isinstance(result, tuple | list) or len(result) != len(self.checked):
            return result  # an error that says how many results there are
        return tuple(map(self._as_for_one_row, result, self.checked, self.empties))

    def _as_for_one_row(self, value: Any, meta: Meta, empty: Any) -> Any:
        """Return a result if it is as that for one row; of no items one as for some."""
        found = meta_of(value)
        if meta is not None and _is_like(found, meta):
            return value
        if empty is not None and _is_empty(value):
            return empty
        if meta is None:
            return value
        raise AnnotationError(
            f"{self.__name__} returned {_described(found, value)} for a batch, and "
            f"{_described(meta)} when it was tried on one row; let it return the same dtype and "
            "width for any rows, or call it outside of the pipeline"
        )


def _is_empty(value: Any) -> bool:
    """Return whether an array, a list or a frame has no items, so that Python chose its dtype."""
    if isinstance(value, list | np.ndarray):
        return not np.size(value)
    return hasattr(type(value), "iloc") and not len(value)


def _is_like(found: Meta, meta: Meta) -> bool:
    if isinstance(meta, ArrayMeta) and isinstance(found, ArrayMeta):
        is_alike = len(found.shape) == len(meta.shape) and found.dtype == meta.dtype
        pairs = zip(found.shape, meta.shape, strict=False)
        return is_alike and all(want in (None, extent) for extent, want in pairs)
    return _described(found) == _described(meta)


def _described(meta: Meta, value: Any = None) -> str:
    if isinstance(meta, ArrayMeta):
        shape = str(meta.shape).replace("None", "n")
        return f"an array of {meta.dtype} of shape {shape}"
    if isinstance(meta, FrameMeta):
        columns = f" of {list(meta.empty.columns)}" if meta.empty.ndim > 1 else ""
        return f"a {type(meta.empty).__name__}{columns}"
    return f"a {type(value).__name__}"


@dataclass(frozen=True)
class OnRows(Checking):
    """A function on pieces of unknown lengths: it is not called for no rows, if that can be.

    Parameters
    ----------
    fn : callable
    keys : tuple of int or str
        Positions or names of the arguments that have these rows.
    outputs : tuple of SplitType
    metas : tuple of Meta
        Of the results; ``None`` for any.
    empties : tuple
        Results of no rows; ``None`` if the function has to make them.
    has_rows : tuple of bool
        For each result, whether it must have the rows of the arguments.
    """

    fn: Callable[..., Any]
    keys: tuple[int | str, ...]
    outputs: tuple[SplitType, ...]
    metas: tuple[Meta, ...]
    empties: tuple[Any, ...]
    has_rows: tuple[bool, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and check its results."""
        given = {key: args[key] if isinstance(key, int) else kwargs[key] for key in self.keys}
        counts = sorted({*map(count_rows, given.values())})
        if len(counts) > 1:
            raise AlignmentError(
                f"{self.__name__} got arguments of {counts[0]} and of {counts[-1]} rows for a "
                "batch: results of one function have other rows; mark the rows of both by one "
                "mask, or pass arrays or frames instead of the Split"
            )
        if counts == [0]:
            pairs = zip(self.outputs, self.empties, strict=True)
            nothing = tuple([_of_no_rows(*pair, given) for pair in pairs])
            if not any(each is None for each in nothing):
                return nothing if len(nothing) > 1 else next(iter(nothing), None)
        result = self.fn(*args, **kwargs)
        several = len(self.has_rows) > 1 and isinstance(result, tuple | list)
        for value, has_rows in zip(result if several else (result,), self.has_rows, strict=False):
            if has_rows:
                check_length(Rows(), value, counts[0], self.__name__)
        return result


def _of_no_rows(kind: SplitType, empty: Any, given: dict[int | str, Any]) -> Any:
    """Return what stands for the result of no rows; ``None`` if the function has to make it."""
    if isinstance(kind, Reduction | Groups):
        return Nothing(given)
    return empty.copy() if isinstance(empty, list) or hasattr(type(empty), "iloc") else empty
