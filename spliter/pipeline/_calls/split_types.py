"""Split types: how an argument of a call is cut into pieces, and how its results are merged."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, SupportsIndex, TypeAlias

import numpy as np

from spliter._errors import AnnotationError
from spliter._reading.concatenate import concatenate
from spliter._reading.rows import count_rows, take_rows
from spliter.pipeline._calls.metas import ArrayMeta
from spliter.pipeline._options import MAX_PLAIN_ROWS, plain_nbytes


class SplitType:
    """How values of one kind are cut into pieces of consecutive items, and merged again.

    Subclass it as a frozen dataclass for values of your own: two types are equal if class and
    parameters are. Arguments whose types have the same number of items are cut at the same places.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from spliter.pipeline import SplitType, options, pipeline, splittable
    >>> @dataclass(frozen=True)
    ... class Documents(SplitType):
    ...     def nbytes(self, docs):
    ...         return sum(map(len, docs))
    ...
    ...     def split(self, docs, start, stop):
    ...         return docs[start:stop]
    ...
    ...     def merge(self, pieces):
    ...         return [doc for piece in pieces for doc in piece]
    >>> def upper(docs):
    ...     return [doc.upper() for doc in docs]
    >>> shout = pipeline(splittable(upper, docs=Documents(), returns=Documents()))
    >>> with options(batch=2):
    ...     shout(["a", "b", "c"])
    ['A', 'B', 'C']
    """

    combines: ClassVar[bool] = False
    """Whether a result combines the rows of all pieces, so that no call can use a piece of it."""

    def __init_subclass__(cls) -> None:
        """Refuse to derive from another type of this package: not all uses call its methods."""
        super().__init_subclass__()
        for base in cls.__bases__:
            is_ours = base.__module__.startswith("spliter.") and base is not SplitType
            if is_ours and not cls.__module__.startswith("spliter."):
                raise AnnotationError(
                    f"{cls.__name__} is derived from {base.__name__}, which is cut and merged "
                    "without its methods; derive it from SplitType, and define length, split and "
                    "merge"
                )

    def length(self, value: Any) -> int:
        """Return the number of items of a value."""
        return len(value)

    def nbytes(self, value: Any) -> int:
        """Return the approximate bytes of a value, by which the size of a batch is chosen."""
        return int(getattr(value, "nbytes", 100 * self.length(value)))

    def split(self, value: Any, start: int, stop: int) -> Any:
        """Return the items from `start` to before `stop`; a view where the value allows it.

        Of an argument that is changed in place it must be one.
        """
        raise AnnotationError(f"{type(self).__name__} has no method split; define it")

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Return one value with the items of all pieces, in order."""
        raise AnnotationError(f"{type(self).__name__} has no method merge; define it")


class Axis(SplitType):
    """Arrays, cut along one axis; along axis 0 also frames, sparse matrices and lists.

    A list is cut by its items, a tuple of arrays or frames in each of them.
    """

    def __init__(self, axis: int = 0) -> None:
        if not isinstance(axis, SupportsIndex):
            raise AnnotationError(f"the axis is {axis!r}; pass an int, such as Axis(1)")
        self.axis: int = operator.index(axis)

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is along the same axis."""
        return isinstance(other, Axis) and self.axis == other.axis

    def __hash__(self) -> int:
        """Return the axis."""
        return self.axis

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return "Rows()" if self.axis == 0 else f"Axis({self.axis})"

    def length(self, value: Any) -> int:
        """Return the extent along the axis."""
        return int(value.shape[self.axis]) if hasattr(value, "shape") else count_rows(value)

    def nbytes(self, value: Any) -> int:
        """Return the bytes of the items; of frames approximately."""
        if isinstance(value, np.ndarray):
            return value.nbytes
        if hasattr(type(value), "iloc"):
            return 8 * int(value.size)  # memory_usage() takes longer than most calls
        return super().nbytes(value)

    def split(self, value: Any, start: int, stop: int) -> Any:
        """Return a view of items."""
        if isinstance(value, np.ndarray):
            before = (slice(None),) * (self.axis % value.ndim)
            return value[(*before, slice(start, stop))]
        return take_rows(value, slice(start, stop))

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces along the axis."""
        pieces = without_empty(pieces, self.axis)
        return np.concatenate(pieces, axis=self.axis) if self.axis else concatenate(pieces)


@functools.cache
def axis(number: int) -> Axis:
    """Return the one object ``Axis(number)``, as comparing one with itself is cheap."""
    return Axis(number)


ROWS: Final = axis(0)


class Rows(Axis):
    """Arrays, frames, sparse matrices and lists, cut by rows; equal to ``Axis(0)``.

    As a result it may declare what is known before the call runs. What is not declared is opaque:
    it can be passed on to annotated functions and operators; its shape and dtype evaluate.

    Parameters
    ----------
    like : str, optional
        Name of the argument, an array, whose dtype and shape of a row the result has.
    dtype : dtype or type, optional
        Of the result; ``np.floating`` for that of `like` if it has floats, and else ``float64``.
    shape : tuple of int, optional
        Of one row; by default that of `like`, or ``()``.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import Rows, lazy, splittable
    >>> def scaled(points):
    ...     return points / np.abs(points).max(axis=1, keepdims=True)
    >>> by_batches = splittable(scaled, points=Rows(), returns=Rows(like="points"))
    >>> by_batches(lazy(np.ones((5, 3)))).shape
    (5, 3)
    """

    def __init__(
        self, like: str | None = None, *, dtype: Any = None, shape: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(0)
        is_any = dtype is None or dtype is np.floating
        sizes = shape if isinstance(shape, tuple) else (shape,)
        try:
            self.dtype: Any = dtype if is_any else np.dtype(dtype)
            has_sizes = all(type(each) is int and each >= 0 for each in sizes)
            if not isinstance(like, str | None) or not (shape is None or has_sizes):
                raise TypeError("not the name of an argument, or not the extents of a row")
            if shape is not None and dtype is None and like is None:
                raise TypeError("no dtype")
        except TypeError as error:
            raise AnnotationError(
                f"Rows declares like={like!r}, dtype={dtype!r}, shape={shape!r}: {error}; pass "
                'Rows(like="x") with the name of an argument, or Rows(dtype=float, shape=(3,))'
            ) from error
        self.like: str | None = like
        self.shape: Any = shape if shape is None else sizes

    def row_of(self, like: ArrayMeta | None) -> tuple[tuple[int | None, ...], Any]:
        """Return the shape and the dtype of a row, given the meta of `like`."""
        dtype, shape = self.dtype, self.shape
        if like is not None:
            shape = like.shape[1:] if shape is None else shape
            is_float = dtype is np.floating and like.dtype.kind == "f"
            dtype = like.dtype if dtype is None or is_float else dtype
        return shape or (), np.dtype(float) if dtype is np.floating else dtype

    def __repr__(self) -> str:
        """Return the call that makes it."""
        given = {"like": self.like, "dtype": self.dtype, "shape": self.shape}
        parts = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"Rows({', '.join(parts)})"


@dataclass(frozen=True)
class Broadcast(SplitType):
    """Passed whole with every piece; as a result, equal for all pieces. Use ``broadcast``."""

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Return the first piece."""
        return pieces[0]

    def __repr__(self) -> str:
        """Return the public name."""
        return "broadcast"


@dataclass(frozen=True)
class Unknown(SplitType):
    """Result with an unknown number of items per piece, such as a filter's. Use ``unknown``."""

    token: int = 0

    @property
    def has_positions(self) -> bool:
        """Whether these are the rows of a Split, whose positions each partition knows."""
        return self.token == -1

    def merge(self, pieces: Sequence[Any]) -> Any:
        """Concatenate pieces."""
        return axis(0).merge(pieces)

    def __repr__(self) -> str:
        """Return the public name."""
        return "unknown"


def without_empty(pieces: Sequence[Any], axis: int = 0) -> Sequence[Any]:
    """Return pieces without empty arrays and frames, unless all are: they may have other dtypes."""
    kept = [
        each
        for each in pieces
        if not (type(each) is np.ndarray or hasattr(type(each), "iloc")) or each.shape[axis]
    ]
    return kept or pieces


@dataclass(frozen=True)
class Generic:
    """Any split type, but the same one wherever a name, such as ``"S"``, occurs."""

    name: str


@dataclass(frozen=True)
class Mut:
    """An argument that the function changes in place. Use ``mut``."""

    type: SplitType | Generic


broadcast: Final = Broadcast()
"""Split type of arguments that every piece gets whole."""

unknown: Final = Unknown()
"""Split type of results with an unknown number of items, such as those of a filter."""

AnyType: TypeAlias = SplitType | Generic | Mut


def mut(type: SplitType | Generic) -> Mut:
    """Annotate an argument that the function changes in place, with how it is cut.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import Rows, mut, options, pipeline, splittable
    >>> def scale_rows(m, by):
    ...     m *= by
    >>> table = np.ones((4, 2))
    >>> with options(batch=3):
    ...     pipeline(splittable(scale_rows, m=mut(Rows()), returns=None))(table, 5)
    >>> table.sum()
    np.float64(40.0)
    """
    return Mut(type)


def nbytes_of(value: Any, kind: SplitType) -> int:
    """Return the approximate bytes of a value."""
    try:
        return int(kind.nbytes(value))
    except Exception as error:
        raise AnnotationError(
            f"{kind!r} gives no number of bytes of a value: {error}; correct its methods nbytes "
            "and length, which must return numbers"
        ) from error


def share_of(value: Any, kind: SplitType | None = None) -> float:
    """Return how large a value is: 1 if it is the largest one whose calls run at once."""
    if hasattr(type(value), "iloc") and (kind is None or isinstance(kind, Axis)):
        return len(value) / MAX_PLAIN_ROWS
    is_sized = kind is not None or hasattr(value, "__len__")
    return nbytes_of(value, kind or axis(0)) / plain_nbytes() if is_sized else 0.0


def item_nbytes(type: SplitType, value: Any) -> float:
    """Return the bytes of one item of a value."""
    return nbytes_of(value, type) / max(type.length(value), 1)
