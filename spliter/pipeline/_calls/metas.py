"""What is known of values before they exist: shape and dtype of arrays, a frame without rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int | None, ...]
"""Shape of an array; ``None`` along an axis whose length is not known before evaluation."""

DTYPES: Final = "biufcmM"
"""Kinds of dtypes whose calls can be captured: not texts and objects."""


class ArrayMeta(NamedTuple):
    """Shape and dtype of an array that need not exist yet.

    Parameters
    ----------
    shape : tuple of int or None
        ``None`` along an axis of unknown length.
    dtype : dtype
        Of the elements.
    exact : bool
        Whether the library itself guarantees both, so that results can be written into an array
        allocated before the call.
    """

    shape: Shape
    dtype: np.dtype[Any]
    exact: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the shape is known."""
        return None not in self.shape

    @property
    def length(self) -> int | None:
        """Number of rows, if known."""
        return self.shape[0] if self.shape else None

    @property
    def empty(self) -> Any:
        """An array like it without rows; a number if it has no axes."""
        rows = (0, *[extent or 0 for extent in self.shape[1:]])
        return np.ones(rows if self.shape else (), self.dtype)[()]


@dataclass(frozen=True, slots=True)
class FrameMeta:
    """Type of a frame that need not exist yet.

    Parameters
    ----------
    empty : DataFrame, Series or Index
        One without rows.
    length : int or None
        Number of rows, if known.
    index : object
        Labels of the rows, or what stands for them: the same object for the same labels.
    exact : bool
        Whether the dtypes are those of the rows, whatever their values.
    """

    empty: Any
    length: int | None
    index: Any = field(default_factory=object)
    exact: bool = True

    @property
    def is_known(self) -> bool:
        """Whether the number of rows is known."""
        return self.length is not None


Meta: TypeAlias = ArrayMeta | FrameMeta | None
"""What is known of a value before evaluation; ``None``: nothing."""


def meta_of(value: Any) -> Meta:
    """Return the meta of a value that exists.

    Parameters
    ----------
    value : object
        Anything; arrays, not of subclasses, and frames have a meta.
    """
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return ArrayMeta(value.shape, value.dtype)
    if isinstance(value, float):  # pandas' extreme of no rows
        return ArrayMeta((), np.dtype(float))
    if hasattr(type(value), "iloc"):
        # A view would make pandas copy the frame when it is changed.
        return FrameMeta(value.iloc[:0].copy(), len(value), value.index)
    return None
