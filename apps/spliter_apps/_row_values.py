"""Send labels and weights that are in memory to the blocks of the points they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, Split, is_collection, split

MESSAGE_NBYTES = 4 * 2**20
"""Most bytes of an array that one task takes to a location: Dask warns of 10 MB in a message."""


def block_like(
    X: Any, members: Mapping[str, Any], *, backend: str | None = None, persist: bool = False
) -> dict[str, Any]:
    """Return labels, weights and the like as collections that can be split with blocked points.

    Collections are returned as they are. An array in memory is cut like the points, and each
    piece is sent to the location of its points.

    Parameters
    ----------
    X : blocked collection of shape (n, n_features)
        The points.
    members : mapping of str to collection or array-like of shape (n, ...), or None
        By the names that errors use. Nested lists, and lists of numbers or strings, are
        arrays in memory; lists of arrays are blocks. ``None`` is left out.
    backend, persist
        As for :func:`spliter.split`.

    Returns
    -------
    dict of str to collection
        For ``split(X, *result.values())``, in the order of `members`.

    Raises
    ------
    InvalidArgumentError
        If an array does not have one entry for each row of `X`.
    LazyCollectionError, UnsupportedCollectionError, BlockLostError
        As :func:`spliter.split`.

    Notes
    -----
    Costs one task per partition for each array in memory, and one more pass over lengths where
    the sizes of blocks are not known.

    Examples
    --------
    >>> import numpy as np
    >>> X = [np.zeros((2, 3)), np.zeros((1, 3))]
    >>> block_like(X, {"y": ["a", "b", "a"], "sample_weight": None})
    {'y': [array(['a', 'b'], dtype='<U1'), array(['a'], dtype='<U1')]}
    """
    given = {name: value for name, value in members.items() if value is not None}
    arrays = {name: as_array(name, value) for name, value in given.items() if is_in_memory(value)}
    if arrays:
        with split(X, partitions_per_location=1, backend=backend, persist=persist) as parts:
            check_columns(parts)
            parts.resolve_item_indexes()
            rows = int(parts.grid.row_counts.sum())
            for name, array in arrays.items():
                if len(array) != rows:
                    raise InvalidArgumentError(
                        f"{name} has {len(array)} entries and the points have {rows} rows; pass "
                        "one entry for each row"
                    )
                given[name] = _send_to_blocks(parts, array)
    return given


def is_in_memory(value: Any) -> bool:
    """Tell whether labels or weights are one array here, and not a collection of blocks.

    Parameters
    ----------
    value : collection or array-like
        Labels or weights.

    Returns
    -------
    bool
        ``False`` for whatever :func:`spliter.split` takes, but for lists of lists.
    """
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return True  # labels of several outputs, row by row
    # Asked of the type: delayed values make up any attribute that they are asked for.
    is_array = isinstance(value, np.ndarray) or hasattr(type(value), "tocsr")
    return is_array or not is_collection(value)


def as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return labels or weights in memory as an array. Their values are not checked.

    Parameters
    ----------
    name : str
        What to call them in errors.
    value : array-like of shape (n, ...)
        Labels or weights.

    Returns
    -------
    ndarray
        Of one axis at least. Columns of pandas' own number types become float64.

    Raises
    ------
    InvalidArgumentError
        If there is no array of that, or it is sparse.
    """
    try:
        if hasattr(type(value), "tocsr"):
            raise TypeError("is a sparse matrix; pass a dense array")
        if np.ndim(value) == 0:
            raise TypeError(
                f"must have one entry for each row of the points, got {value!r}; pass an array, "
                "or a collection blocked like the points along axis 0"
            )
        dtype: Any = getattr(value, "dtype", None)
        if not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "O") in "biuf":
            # A number type of pandas' own, which NumPy would make objects of.
            return np.asarray(value.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asanyarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from error


def _send_to_blocks(parts: Split, array: Any) -> Any:
    """Return an array as a collection whose blocks are where those of the points are."""
    results = []
    for partition in parts:
        values = array[partition.get_item_indexes()]
        count = max(-(-values.nbytes // MESSAGE_NBYTES), 1)
        pieces: list[Any] = np.array_split(values, count)
        if count > 1:
            pieces = [partition.submit(_receive, piece) for piece in pieces]
        results.append((partition, partition.submit(_cut_by_blocks, pieces)))
    return persisted(parts.assemble(results, dtype=array.dtype, trailing_shape=array.shape[1:]))


def persisted(made: Any) -> Any:
    """Return a collection that tasks have made so that it can be split.

    Parameters
    ----------
    made : collection
        Of :meth:`spliter.Split.assemble` or :meth:`spliter.Split.map_blocks`.

    Returns
    -------
    collection
        Persisted if it is lazy, as those of Dask are; else itself.
    """
    return made.persist() if hasattr(type(made), "persist") else made


def _receive(_: Partition, piece: Any) -> Any:
    """Run at a location: keep one message of an array."""
    return piece


def _cut_by_blocks(partition: Partition, pieces: Sequence[Any]) -> list[Any]:
    """Run at a location: cut an array by the blocks of the points."""
    return partition.cut(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


def check_columns(parts: Split) -> None:
    """Refuse points that are cut along their features.

    Parameters
    ----------
    parts : Split
        Of points, and what goes with them.

    Raises
    ------
    InvalidArgumentError
        With the grid of blocks.
    """
    if any(nblocks > 1 for nblocks in parts.grid.shape[1:]):
        raise InvalidArgumentError(
            f"the points are cut along their features: their grid of blocks is {parts.grid.shape}; "
            "rechunk them to one block along axis 1"
        )
