"""Validate blocks of points, and return their columns as NumPy arrays.

A block is an array of shape (n, ndim), a DataFrame, a single column (an array of shape (n,) or a
Series), or a tuple of these side by side, as yielded by partitions of aligned collections.
Anything else raises an error that says how to convert it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError

Member: TypeAlias = npt.NDArray[Any]
"""Array of shape (n, k) of booleans, integers, real floating point numbers, dates or durations."""

REAL_KINDS = "biuf"
DATE_KINDS = "mM"
"""Kinds of durations (``timedelta64``) and dates (``datetime64``)."""


def real_array(value: Any, name: str, kinds: str = REAL_KINDS) -> npt.NDArray[Any]:
    """Return an array as a plain ndarray if its elements are real and none is masked; a view."""
    if not isinstance(value, np.ndarray):
        raise InvalidArgumentError(f"{name}: {_not_an_array(value)}")
    if value.dtype.kind not in kinds:
        or_dates = " or NumPy's dates" if DATE_KINDS in kinds else ""
        raise InvalidArgumentError(
            f"{name} must be real numbers{or_dates}, got dtype {value.dtype}; convert with "
            "astype(float), or remove columns that are not numeric"
        )
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidArgumentError(
            f"{name}: masked elements are not supported (NumPy's histogram ignores the mask); fill "
            "them, for instance with map_blocks(lambda block: "
            "numpy.ma.filled(block.astype(float), numpy.nan)), which omits their rows"
        )
    return np.asarray(value)


def _not_an_array(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if hasattr(value, "tocsr") or hasattr(value, "todense"):
        return (
            f"a {kind} is sparse, and a histogram counts the zeros too; convert the blocks to "
            "dense ones, for instance with map_blocks(lambda block: block.todense())"
        )
    return f"expected a NumPy array or a pandas object, got a {kind}; convert the blocks first"


def block_members(block: Any) -> list[Member]:
    """Return the columns of a block as arrays of shape (n, k), side by side; see the module.

    They are views if the columns are NumPy arrays. Columns of pandas' nullable number types are
    converted to float64, missing values to NaN.

    Examples
    --------
    >>> import numpy as np
    >>> [member.shape for member in block_members((np.zeros((3, 2)), np.ones(3)))]
    [(3, 2), (3, 1)]
    """
    if isinstance(block, tuple):
        members = [member for part in block for member in block_members(part)]
        if len({len(member) for member in members}) > 1:
            raise InvalidArgumentError(
                "columns must have the same number of rows, got "
                f"{[len(member) for member in members]}"
            )
        return members
    if hasattr(block, "iloc"):
        return _pandas_columns(block)
    array = real_array(block, "a block of points", REAL_KINDS + DATE_KINDS)
    if array.ndim not in {1, 2}:
        raise InvalidArgumentError(
            f"a block of points must have shape (n, ndim) or (n,), got {array.shape}"
        )
    return [array if array.ndim == 2 else array[:, None]]


def without_frames(block: Any) -> Any:
    """Return a block with the columns of pandas objects as arrays of shape (n,), in a tuple.

    Taking rows of a frame takes longer than to count them.

    Examples
    --------
    >>> import pandas as pd
    >>> without_frames((pd.DataFrame({"a": [1], "b": [2]}), np.array([3])))
    (array([1]), array([2]), array([3]))
    """
    if type(block) is np.ndarray:
        return block  # fast path: most blocks, and there may be very many
    parts = block if isinstance(block, tuple) else (block,)
    if set(map(type, parts)) == {np.ndarray} or not any(hasattr(part, "iloc") for part in parts):
        return block
    return tuple(
        array
        for part in parts
        for array in (
            (column[:, 0] for column in _pandas_columns(part)) if hasattr(part, "iloc") else (part,)
        )
    )


def _pandas_columns(block: Any) -> list[Member]:
    if block.ndim == 1:
        return [_pandas_column(block, f"series {block.name!r}")]
    # By position: column names may be duplicated.
    return [
        _pandas_column(block.iloc[:, at], f"column {block.columns[at]!r}")
        for at in range(block.shape[1])
    ]


def _pandas_column(series: Any, name: str) -> Member:
    own_numbers = not isinstance(series.dtype, np.dtype) and series.dtype.kind in REAL_KINDS
    values = (
        series.to_numpy(dtype=np.float64, na_value=np.nan) if own_numbers else np.asarray(series)
    )
    return real_array(values, name, REAL_KINDS + DATE_KINDS)[:, None]


def weights_column(block: Any) -> npt.NDArray[np.float64]:
    """Return a block of weights as float64, the dtype in which NumPy sums weights.

    Examples
    --------
    >>> import numpy as np
    >>> weights_column(np.array([1, 2]))
    array([1., 2.])
    """
    weights = real_array(block, "a block of weights")
    if weights.ndim != 1:
        raise InvalidArgumentError(f"a block of weights must have shape (n,), got {weights.shape}")
    if not np.can_cast(weights.dtype, np.float64):
        raise InvalidArgumentError(
            f"weights of dtype {weights.dtype} cannot be converted to float64 exactly; convert "
            "them first"
        )
    return weights.astype(np.float64, copy=False)
