"""``Template``: the type of results with one part per block, given or inferred, and their check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter._errors import InvalidArgumentError
from spliter._reading.column_names import column_names, order_columns
from spliter._reading.kinds import is_sparse
from spliter._reading.rows import count_rows

HINT = (
    "pass dtype= (and trailing_shape=) if the function returns arrays, or an empty result of it as "
    "meta= if it returns DataFrames or Series"
)

ADVICE = "pass an empty result of the function"


@dataclass(frozen=True)
class Template:
    """Type of the values that a function returns for every block, without their rows.

    Parameters
    ----------
    dtype : dtype or None
        Of arrays; ``None`` for frames.
    trailing_shape : tuple of int
        Shape of arrays along the axes after the first `axes` ones.
    meta : DataFrame, Series, Index or sparse matrix, or None
        Without rows; ``None`` for other arrays.
    axes : int
        Leading axes along which results have the shape of their block: up to the last one along
        which the collection has several blocks.
    keeps_index : bool
        Whether results have rows of the index of their block, so that its divisions hold for them.
    """

    dtype: np.dtype[Any] | None
    trailing_shape: tuple[int, ...] = ()
    meta: Any = None
    axes: int = 1
    keeps_index: bool = False

    @classmethod
    def given(
        cls,
        dtype: npt.DTypeLike | None,
        trailing_shape: Sequence[int],
        meta: Any,
        axes: int,
        example: Any,
    ) -> Template | None:
        """Return the template described by the caller, ``None`` if it has to be inferred.

        `dtype` and `trailing_shape` are of arrays, after the first `axes` axes. `meta` is like a
        result, whose rows are ignored, or has names and dtypes, as Dask takes them. `example` is a
        small block like those of the collection, or ``None``.
        """
        try:
            trailing = tuple(trailing_shape)
        except TypeError:
            raise InvalidArgumentError(
                f"trailing_shape must be a sequence of int, got {trailing_shape!r}; rows of 3 "
                "columns have trailing_shape=(3,)"
            ) from None
        if meta is None:
            if dtype is not None:
                return cls(np.dtype(dtype), trailing, axes=axes)
            if trailing:
                raise InvalidArgumentError(
                    f"trailing_shape={trailing} needs a dtype; pass both, or neither to infer both"
                )
            return None
        if dtype is not None or trailing:
            raise InvalidArgumentError(
                "meta already determines dtype and trailing_shape; pass either meta or those"
            )
        if isinstance(meta, tuple | list | Mapping):
            meta = _named(meta, example)
        if isinstance(meta, type) or not (is_frame(meta) or np.shape(meta)):
            raise InvalidArgumentError(
                f"meta={meta!r} is no example of a result; pass dtype= for arrays, or as meta= "
                "(name, dtype) for a Series, {name: dtype} for a DataFrame, or an empty array, "
                "Series or DataFrame"
            )
        if hasattr(type(meta), "iloc"):
            meta = meta.iloc[:0]
        return cls.of(meta, axes, example, f"meta is a {type(meta).__name__}; pass")

    @classmethod
    def of(cls, result: Any, axes: int = 1, example: Any = None, what: str = "") -> Template:
        """Return the template of a result for the block `example`; `what` begins the error.

        It has an axis of rows, further ones up to `axes`, and a dtype.
        """
        what = what or f"the function for map_blocks returned a {type(result).__name__}; return"
        if is_frame(result):
            if axes > 1:
                raise InvalidArgumentError(
                    f"{what} an array, as the collection has blocks along {axes} axes"
                )
            meta = result.iloc[:0] if hasattr(result, "iloc") else result[:0]
            return cls(None, (), meta, keeps_index=_keeps_index(result, example))
        shape = getattr(result, "shape", ())
        if not shape or not hasattr(result, "dtype"):
            raise InvalidArgumentError(
                f"{what} an array, DataFrame or Series with one row for each row of the block"
            )
        if len(shape) < axes:
            raise InvalidArgumentError(
                f"{what} an array of at least {axes} axes, as the collection has blocks along "
                f"them; got shape {tuple(shape)}"
            )
        trailing = tuple(shape[axes:])
        # Not all formats of SciPy can be sliced.
        empty = (0,) * axes + trailing
        meta = type(result)(empty, dtype=result.dtype) if is_sparse(result) else None
        return cls(np.dtype(result.dtype), trailing, meta, axes)

    @classmethod
    def infer(
        cls,
        fn: Callable[..., Any],
        example: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        axes: int,
    ) -> Template:
        """Call a function on an example block, in this process, and use its result as template."""
        try:
            result = fn(example, *args, **kwargs)
        except Exception as error:
            raise InvalidArgumentError(
                "map_blocks called the function on an example block to infer its result type, "
                f"which failed ({type(error).__name__}: {error}); {HINT}"
            ) from error
        return cls.of(result, axes, example)

    def conform(self, result: Any, block: Any, index: tuple[int, ...]) -> Any:
        """Return a result with columns in the order, and of the dtypes, of this template.

        Refuses one for this block of the (first) collection whose kind, columns or shape differ, or
        whose values do not fit into the dtypes.
        """
        whose = f"map_blocks: the function returned {_kind(result)} for block {index}"
        if self.meta is None and is_frame(result):
            raise InvalidArgumentError(
                f"{whose}, but dtype= is for arrays; {ADVICE} as meta= instead"
            )
        if self.meta is not None and _kind(self.meta) != _kind(result):
            raise InvalidArgumentError(f"{whose}, expected {_kind(self.meta)}; {ADVICE} as meta=")
        if self.dtype is not None:
            self._check_shape(result, block, index)
        elif (names := column_names(self.meta)) is not None:
            result = order_columns(
                result, names, f"map_blocks: the result for block {index}", f"{ADVICE} as meta="
            )
        return _cast(result, self.meta if self.dtype is None else self, whose)

    def _check_shape(self, result: Any, block: Any, index: tuple[int, ...]) -> None:
        shape = tuple(getattr(result, "shape", self.trailing_shape))
        axes = self.axes
        if axes > 1 and shape[1:axes] != tuple(block.shape[1:axes]):
            raise InvalidArgumentError(
                f"map_blocks: the function returned shape {shape} for block {index} of shape "
                f"{tuple(block.shape)}, and the collection has blocks along {axes} axes; keep "
                "the sizes along these"
            )
        if hasattr(result, "shape") and shape[axes:] != self.trailing_shape:
            raise InvalidArgumentError(
                f"map_blocks: the function returned shape {shape} for block {index}, "
                f"expected rows of shape {self.trailing_shape}; pass "
                f"trailing_shape={shape[axes:]} if it returns this for every block"
            )


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, Series or Index, of pandas or a similar library."""
    return hasattr(type(value), "iloc") or hasattr(type(value), "to_frame")


def _kind(value: Any) -> str:
    if not is_frame(value):
        return f"a {type(value).__name__}"
    if hasattr(value, "columns"):
        return "a DataFrame"
    return "a Series" if hasattr(type(value), "iloc") else "an Index"


def _named(meta: Any, example: Any) -> Any:
    """Return the empty Series of a pair of name and dtype, or the DataFrame of several."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        raise InvalidArgumentError(
            f"meta={meta!r} names columns of pandas, which this program has not imported; import it"
        )
    first = example[0] if isinstance(example, tuple) else example
    index = first.index[:0] if hasattr(type(first), "iloc") else None
    try:
        if isinstance(meta, tuple) and len(meta) == 2 and not isinstance(meta[1], tuple):
            return pandas.Series(name=meta[0], dtype=meta[1], index=index)
        columns = {
            name: pandas.Series(dtype=dtype, index=index) for name, dtype in dict(meta).items()
        }
        return pandas.DataFrame(columns, index=index)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"meta={meta!r} is neither (name, dtype) nor {{name: dtype}} ({error}); pass one of "
            "these or an empty result of the function"
        ) from None


def _keeps_index(result: Any, example: Any) -> bool:
    """Return whether a result has only labels of the index of its block, as far as is seen."""
    first = example[0] if isinstance(example, tuple) else example
    if not (hasattr(type(first), "iloc") and hasattr(type(result), "iloc")):
        return False
    new, old = result.index, first.index
    return bool(new.dtype == old.dtype and new.names == old.names and new.isin(old).all())


def _cast(result: Any, like: Any, whose: str) -> Any:
    """Return a result with the dtypes of a frame or template; reject those that lose values."""
    is_array = isinstance(like, Template)
    found, wanted = _dtypes(result), _dtypes(like)
    if any(one is None for one in found):  # not "in": NumPy equates None with float64
        raise InvalidArgumentError(f"{whose}, expected an array")
    if found == wanted:
        return result
    is_empty = not count_rows(result)
    if is_empty and not is_array:
        return like
    for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if not (is_empty or _fits(one, other)):
            column = f" in column {result.columns[at]!r}" if len(found) > 1 else ""
            fix = f"dtype={str(one)!r}" if is_array else "that as meta="
            raise InvalidArgumentError(
                f"{whose}, of dtype {one}{column}, expected {other}; pass {fix} if it fits all "
                "results, or convert them in the function"
            )
    if is_array:
        return result.astype(wanted[0])
    casts = [
        one if hasattr(one, "categories") else other
        for one, other in zip(found, wanted, strict=True)
    ]
    by_name = hasattr(result, "columns")
    return result.astype(dict(zip(result.columns, casts, strict=True)) if by_name else casts[0])


def _dtypes(value: Any) -> list[Any]:
    return list(value.dtypes) if hasattr(value, "columns") else [getattr(value, "dtype", None)]


def _fits(found: Any, wanted: Any) -> bool:
    """Return whether values of one dtype can be converted to another without a loss."""
    if wanted in (found, np.dtype(object)):
        return True
    if isinstance(found, np.dtype) and isinstance(wanted, np.dtype):
        return found.names == wanted.names and np.can_cast(found, wanted, "safe")
    if hasattr(found, "categories") and hasattr(wanted, "categories"):
        return bool(found.ordered == wanted.ordered)
    if type(found) is not type(wanted) or found.kind not in "biufO":
        return False
    if found.kind == "O":  # texts in another storage
        return bool(found.type is wanted.type is str)
    return np.can_cast(found.numpy_dtype, wanted.numpy_dtype, "safe")  # numbers that may be missing
