"""Check and encode the labels of classifiers, which may differ from block to block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError
from spliter_apps._row_values import as_array

Array: TypeAlias = npt.NDArray[Any]


def encode_labels(labels: Array, classes: Array) -> npt.NDArray[np.intp]:
    """Return the numbers of labels among the sorted classes, which must have each of them."""
    # An empty block may have any dtype, and strings cannot be compared with numbers.
    if not len(labels):
        return np.empty(0, dtype=np.intp)
    return np.searchsorted(classes, labels).astype(np.intp, copy=False)


def check_one_kind(several: Iterable[npt.NDArray[Any]]) -> None:
    """Reject labels of several kinds: NumPy would make text of numbers next to text.

    Labels without rows, and arrays of objects, are ignored.

    Examples
    --------
    >>> check_one_kind([np.array(["a"]), np.array(["bcd"]), np.array([])])
    """
    kinds = {labels.dtype.kind for labels in several if len(labels)} - {"O"}
    named = {"U": "strings", "S": "bytes", "M": "dates", "m": "durations"}
    found = sorted({named.get(kind, "numbers") for kind in kinds}, reverse=True)
    if len(found) > 1:
        raise InvalidArgumentError(
            f"labels must be of one kind, got {' and '.join(found)}; convert them to one"
        )


def distinct(several: Sequence[Array]) -> Array:
    """Return the distinct labels in several columns of one kind, sorted."""
    check_one_kind(several)
    # An empty block may have any dtype, which would be that of the result.
    filled = [labels for labels in several if len(labels)] or several[:1]
    try:
        return np.unique(np.concatenate(filled))
    except TypeError as error:
        raise InvalidArgumentError(f"labels must be of one sortable kind: {error}") from error


def label_column(block: Any, rows: int, what: str) -> Array:
    """Return a block of labels, of shape (n,) or (n, 1), as one column; a view if possible."""
    values = as_array(what, block)
    if values.shape not in {(rows,), (rows, 1)}:
        raise InvalidArgumentError(
            f"{what}: expected labels of shape ({rows},) for {rows} points, got {values.shape}"
        )
    labels: Array = values.reshape(-1)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidArgumentError(f"{what}: Input y contains NaN or infinity.")
    if labels.dtype.kind == "O" and any(map(_is_missing, labels)):
        raise InvalidArgumentError(f"{what}: Input y contains NaN or None.")
    return labels


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        # NaN differs from itself; comparing pandas' NA raises TypeError.
        return bool(label != label)  # noqa: PLR0124
    except TypeError:
        return True
