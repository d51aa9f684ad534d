"""Labels and weights: split them with the points they belong to, and check their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, Split, is_collection, split
from spliter_apps._differences import native, refuse_masked

MESSAGE_NBYTES = 4 * 2**20
"""Maximum bytes of an array sent to a location by one task; Dask warns about messages of 10 MB."""


def split_with(
    X: Any, members: Mapping[str, Any], *, backend: str | None = None, **options: Any
) -> Split:
    """Split blocked points together with labels and weights, all of which may be lazy.

    `members` are those of :func:`block_like`. Lazy collections stay persisted while the Split is
    open.
    """
    given = {name: value for name, value in members.items() if value is not None}
    with ExitStack() as stack:
        if any(map(is_in_memory, given.values())):
            # Keep lazy points persisted, so that both Splits use one computation.
            stack.enter_context(split(X, persist=True, backend=backend))
        aligned = block_like(X, given, backend=backend, persist=True)
        parts = split(X, *aligned.values(), persist=True, backend=backend, **options)
    try:
        check_columns(parts)
    except InvalidArgumentError:
        with parts:
            raise
    return parts


def block_like(
    X: Any, members: Mapping[str, Any], *, backend: str | None = None, persist: bool = False
) -> dict[str, Any]:
    """Return labels and weights as collections that can be split together with blocked points.

    Collections are returned as they are. An array in memory is cut like the points, and each part
    is sent to the location of its points. Nested lists, and lists of numbers or strings, are arrays
    in memory; lists of arrays are blocks. ``None`` is skipped. The keys of `members` name the
    values in errors.

    Notes
    -----
    Costs one task per partition for each array in memory, and one more pass to count rows if the
    sizes of blocks are unknown.

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
    """Return whether labels or weights are one array in memory, as opposed to blocks.

    Blocks are all that :func:`spliter.split` accepts, except lists of lists.
    """
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return True  # labels of several outputs, row by row
    # hasattr() on the type: Dask's delayed values pretend to have every attribute.
    is_array = isinstance(value, np.ndarray) or hasattr(type(value), "tocsr")
    return is_array or not is_collection(value)


def as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return labels or weights, in memory or of one block, as an array in native byte order.

    It has at least one axis. Columns of pandas' nullable number types become float64.
    """
    refuse_masked(value, name)
    try:
        if hasattr(type(value), "tocsr"):
            raise TypeError("is a sparse matrix; pass a dense array")
        dtype: Any = getattr(value, "dtype", None)
        if not isinstance(dtype, np.dtype) and getattr(dtype, "kind", "O") in "biuf":
            # A nullable number type of pandas: NumPy would create an object array.
            return np.asarray(value.to_numpy(dtype=np.float64, na_value=np.nan))
        array: npt.NDArray[Any] = native(np.asarray(value))
        if not array.ndim:
            raise TypeError(
                f"must have one entry for each row of the points, got {value!r}; pass an array, "
                "or a collection blocked like the points along axis 0"
            )
        return array
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from error


def as_weights(name: str, value: Any, rows: int) -> npt.NDArray[np.float64]:
    """Return weights, in memory or of one block, as one column of finite float64 numbers.

    Examples
    --------
    >>> as_weights("sample_weight", [1, 2], 2)
    array([1., 2.])
    """
    weights = as_array(name, value)
    if weights.shape != (rows,):
        raise InvalidArgumentError(
            f"{name}: expected weights of shape ({rows},), one for each of {rows} points, got "
            f"{weights.shape}"
        )
    if weights.dtype.kind not in "biuf":
        raise InvalidArgumentError(
            f"{name}: weights must be real numbers, got dtype {weights.dtype}; convert with "
            "astype(float)"
        )
    if not np.isfinite(weights).all():
        raise InvalidArgumentError(
            f"{name}: weights must be finite, got NaN or infinity; remove these points"
        )
    return weights.astype(np.float64, copy=False)


def _send_to_blocks(parts: Split, array: Any) -> Any:
    """Return an array as a collection whose blocks are at the locations of the points' blocks."""
    results = []
    for partition in parts:
        values = array[partition.get_item_indexes()]
        count = max(-(-values.nbytes // MESSAGE_NBYTES), 1)
        chunks: list[Any] = np.array_split(values, count)
        if count > 1:
            chunks = [partition.submit(_receive, part) for part in chunks]
        results.append((partition, partition.submit(_cut_by_blocks, chunks)))
    return persist_if_lazy(
        parts.assemble(results, dtype=array.dtype, trailing_shape=array.shape[1:])
    )


def persist_if_lazy(made: Any) -> Any:
    """Persist a collection made by tasks if it is lazy, so that it can be split."""
    return made.persist() if hasattr(type(made), "persist") else made


def _receive(_: Partition, part: Any) -> Any:
    """Keep one message of an array at the location; the body of a task."""
    return part


def _cut_by_blocks(partition: Partition, chunks: Sequence[Any]) -> list[Any]:
    """Cut an array by the blocks of the points; the body of a task."""
    return partition.cut(chunks[0] if len(chunks) == 1 else np.concatenate(chunks))


def check_columns(parts: Split) -> None:
    """Reject points with several blocks along axis 1 (features)."""
    if any(nblocks > 1 for nblocks in parts.grid.shape[1:]):
        raise InvalidArgumentError(
            f"the points must have one block along axis 1, got a grid of {parts.grid.shape} "
            "blocks; rechunk them"
        )
