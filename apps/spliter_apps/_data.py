"""Split the input of an estimator: points, labels and weights, in memory or in blocks.

Input is either *in memory* (an array, a DataFrame, a sparse matrix, nested lists: what
scikit-learn takes) or *blocked* (a :class:`spliter.Split`, or a collection that
:func:`spliter.split` takes). Arrays in memory are cut into views and split in this process,
so that an estimator has one code path, on partitions, whatever its input was. Labels and weights
in memory next to blocked points are sent to these (:func:`~spliter_apps._row_values.block_like`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from spliter import InvalidArgumentError, Split, is_collection, split
from spliter_apps._row_values import block_like, check_columns, is_in_memory

Materialize: TypeAlias = bool | Literal["auto"]

PIECE_ROWS = 65_536
"""Rows of the pieces that an array in memory is cut into, unless the caller says."""


def is_blocked(X: Any) -> bool:
    """Tell whether input is a collection of blocks, and not one array in memory.

    Parameters
    ----------
    X : object
        What an estimator was given as points.

    Returns
    -------
    bool
        ``True`` for a Split, a list whose elements are blocks of points (two-dimensional
        arrays, DataFrames, sparse matrices, an engine's futures), and an engine's own
        collections. ``False`` for what scikit-learn takes: arrays (also memory maps),
        DataFrames, sparse matrices, nested lists.

    Examples
    --------
    >>> import numpy as np
    >>> is_blocked(np.zeros((2, 3))), is_blocked([[0, 1], [2, 3]])
    (False, False)
    >>> is_blocked([np.zeros((2, 3)), np.zeros((4, 3))])
    True
    """
    if isinstance(X, Split):
        return True
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return False
    if isinstance(X, list | tuple):
        return bool(X) and _may_be_block(X[0]) and is_collection(X)
    return is_collection(X)


def _may_be_block(element: Any) -> bool:
    """Whether a list's element can be a block of points: a row, or a number, is none."""
    if isinstance(element, list | tuple | int | float | str | np.generic):
        return False
    if isinstance(element, np.ndarray):
        return element.ndim == 2
    # A Series is a row of a nested list; asked of the type, as there are objects (delayed
    # values) that make up any attribute they are asked for.
    return not hasattr(type(element), "ndim") or element.ndim == 2


@dataclass(frozen=True)
class Data:
    """Input of an estimator, split. A context manager: closes the Split that it made.

    Parameters
    ----------
    parts : Split
        Yields blocks of points, or tuples of points, labels and weights.
    in_memory : bool
        Whether the input was one array here, so that results are to be arrays as well.
    owned : bool
        Whether the Split was made for this, and is to be closed.
    """

    parts: Split
    in_memory: bool
    owned: bool

    def __enter__(self) -> Data:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the Split if it was made here."""
        if self.owned:
            self.parts.close()

    def gathered(self, collection: Any) -> Any:
        """Return a result in the form of the input.

        Parameters
        ----------
        collection : collection
            What :meth:`spliter.Split.map_blocks` or :meth:`spliter.Split.assemble` made.

        Returns
        -------
        ndarray or collection
            One array where the input was one, else the collection itself.
        """
        return np.concatenate(collection) if self.in_memory else collection


def open_data(
    X: Any,
    *aligned: Any,
    materialize: Materialize = "auto",
    partitions_per_location: int | None = None,
    piece_rows: int = PIECE_ROWS,
    names: Sequence[str] = ("y", "sample_weight"),
) -> Data:
    """Split an estimator's input; persist lazy collections as long as the result is open.

    Parameters
    ----------
    X : Split, collection, or validated array or CSR matrix of shape (n, n_features)
        Points. A Split is used as it is (and not closed); it has to have been made of as
        many collections as there are points and `aligned`, which must be ``None`` then.
    *aligned : collection or array of shape (n, ...), or None
        What goes with the points: labels, weights. Blocked like `X` or in memory where `X` is
        blocked (see :func:`block_like`), validated arrays where it is in memory. ``None`` is
        left out.
    materialize, partitions_per_location
        As for :func:`spliter.split`; not for a Split, which has been told, and not to
        materialize for an array in memory, which is in one piece already.
    piece_rows : int
        Rows of the pieces that an array is cut into.
    names : sequence of str
        What to call `aligned` in errors.

    Returns
    -------
    Data
        With a Split whose partitions yield points, or tuples of points and what goes
        with them.

    Raises
    ------
    InvalidArgumentError
        If an array next to blocked points does not have one entry for each row, or the points
        are cut along the features.
    AlignmentError, UnsupportedCollectionError, LazyCollectionError, BlockLostError
        As :func:`spliter.split`.
    """
    given = {name: value for name, value in zip(names, aligned, strict=False) if value is not None}
    if isinstance(X, Split):
        for name in given:
            raise InvalidArgumentError(
                f"{name} goes with the points, not with a Split of them; make the Split of both, "
                f"split(X, {name}), and leave {name} out, or pass the collection itself as X"
            )
        data = Data(X, in_memory=False, owned=False)
    elif is_blocked(X):
        with ExitStack() as stack:
            if any(map(is_in_memory, given.values())):
                # Held meanwhile, so that lazy points are computed once for both Splits.
                stack.enter_context(split(X, persist=True))
            parts = split(
                X,
                *block_like(X, given, persist=True).values(),
                materialize=materialize,
                partitions_per_location=partitions_per_location,
                persist=True,
            )
        data = Data(parts, in_memory=False, owned=True)
    else:
        pieces = [_cut(value, piece_rows) for value in (X, *given.values())]
        parts = split(*pieces, partitions_per_location=partitions_per_location, backend="local")
        data = Data(parts, in_memory=True, owned=True)
    try:
        check_columns(data.parts)
    except InvalidArgumentError:
        with data:
            raise
    return data


def _cut(array: Any, rows: int) -> list[Any]:
    """Cut an array into views (of a sparse matrix, copies), one at least."""
    length = array.shape[0]
    if length <= rows:
        return [array]
    return [array[at : at + rows] for at in range(0, length, rows)]


def check_members(data: Data, ncollections: int, of_what: str) -> None:
    """Refuse a Split that was not made of the collections an estimator needs.

    Parameters
    ----------
    data : Data
        Input.
    ncollections : int
        How many collections it must be made of.
    of_what : str
        Which, such as ``"split(X, y)"``.

    Raises
    ------
    InvalidArgumentError
        If it has another number.
    """
    if data.parts.ncollections != ncollections:
        raise InvalidArgumentError(
            f"expected a Split made by {of_what}, got one of {data.parts.ncollections} collections"
        )
