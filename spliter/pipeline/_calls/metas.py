"""What is known of arrays before they exist, and which values count as arrays."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import numpy as np

Shape: TypeAlias = tuple[int | None, ...]
"""Shape of an array; ``None`` along an axis whose length is not known before evaluation."""

DTYPES: Final = "biufcmM"
"""Kinds of dtypes whose calls can be captured: not texts and objects."""


class ArrayMeta(NamedTuple):
    """Shape and dtype of an array that need not exist yet."""

    shape: Shape
    dtype: np.dtype[Any]
    exact: bool = True  # guaranteed, so that results can be written into an array made before

    @property
    def is_known(self) -> bool:
        """Whether the shape is known."""
        return None not in self.shape

    @property
    def length(self) -> int | None:
        """Number of rows, if known."""
        return self.shape[0] if self.shape else None

    def is_like(self, array: Any) -> bool:
        """Return whether an array has the dtype and the shape of a row."""
        return bool(array.dtype == self.dtype and array.shape[1:] == self.shape[1:])

    @property
    def empty(self) -> Any:
        """An array like it without rows; a number if it has no axes."""
        rows = (0, *[extent or 0 for extent in self.shape[1:]])
        return np.ones(rows if self.shape else (), self.dtype)[()]


Meta: TypeAlias = ArrayMeta | None
"""What is known of a value before evaluation; ``None``: nothing."""


def meta_of(value: Any) -> Meta:
    """Return the meta of a value that exists; ``None`` if it is neither an array nor a number."""
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return ArrayMeta(value.shape, value.dtype)
    return None


def plain_array(value: Any) -> Any:
    """Return the array of a memory map; any other value unchanged."""
    return value.view(np.ndarray) if type(value) is np.memmap else value


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, Series or Index of pandas; subclasses are not."""
    kind = type(value)
    is_pandas = kind.__module__.partition(".")[0] == "pandas"
    return is_pandas and (hasattr(kind, "iloc") or hasattr(kind, "get_indexer"))


def is_array(value: Any) -> TypeGuard[np.ndarray[Any, Any]]:
    """Return whether a value is an array whose calls can be captured."""
    is_plain = type(value) is np.ndarray or type(value) is np.memmap
    return is_plain and value.ndim > 0 and value.dtype.kind in DTYPES
