"""Put blocks into dataClay, or have its backends make them.

``from_array``  cuts an array into blocks and sends them
``distribute``  sends blocks of any kind
``generate``    makes the blocks at the backends; they may be larger than a message
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import BlockGrid, InvalidArgumentError, Location
from spliter.backend import count_rows
from spliter_backends._shared.readable import block_nbytes, cut
from spliter_backends.dataclay.client.session import Session
from spliter_backends.dataclay.collection import DataClayArray
from spliter_backends.dataclay.executor import current_executor
from spliter_backends.dataclay.message import MESSAGE_LIMIT
from spliter_backends.dataclay.objects import Block, keep_blocks

PlacementRule: TypeAlias = Literal["round-robin", "runs"] | Sequence[int]
"""Placement of blocks: round robin, runs of consecutive blocks, or a backend's number for each."""

Chunks: TypeAlias = int | Sequence[int | Sequence[int]]


def from_array(
    x: npt.NDArray[Any],
    chunks: Chunks | None = None,
    *,
    backends: Sequence[uuid.UUID] | None = None,
    placement: PlacementRule = "round-robin",
) -> DataClayArray:
    """Cut an array into blocks and put them into dataClay.

    Parameters
    ----------
    x : ndarray of at least one axis
    chunks : int or sequence, optional
        Rows per block; or for each axis the size of a block, or the sizes of all. By default
        one block per backend.
    backends : sequence of UUID, optional
        Target backends; by default all.
    placement : {"round-robin", "runs"} or sequence of int
        Distribution over the backends: in turn, equal runs of consecutive blocks, or by number.

    Returns
    -------
    DataClayArray
        Of the shape and dtype of `x`.

    Raises
    ------
    InvalidArgumentError
        If `chunks` or `placement` do not fit, or a block is too large for one message; nothing
        is sent then.

    Examples
    --------
    >>> from spliter_backends.dataclay import from_array
    >>> x = from_array(np.arange(10), chunks=4)  # doctest: +SKIP
    >>> x.chunks, x.shape  # doctest: +SKIP
    (((4, 4, 2),), (10,))
    """
    executor = current_executor()
    chosen = _backends(executor.session, backends)
    if x.ndim == 0:
        raise InvalidArgumentError("an array without axes has no rows to cut into blocks")
    sizes = _chunk_sizes(x.shape, chunks if chunks is not None else -(-len(x) // len(chosen)) or 1)
    starts = [(0, *itertools.accumulate(axis)) for axis in sizes]
    grid = BlockGrid(sizes)
    blocks = [
        x[tuple(slice(at[i], at[i + 1]) for at, i in zip(starts, index, strict=True))]
        for index in np.ndindex(grid.shape)
    ]
    return _send_blocks(executor.session, blocks, sizes, x.dtype, chosen, placement)


def distribute(
    blocks: Sequence[Any],
    *,
    backends: Sequence[uuid.UUID] | None = None,
    placement: PlacementRule = "round-robin",
) -> DataClayArray:
    """Put blocks of any kind into dataClay, consecutive along axis 0.

    Parameters
    ----------
    blocks : sequence of block
        Arrays, data frames, sparse matrices, lists; anything picklable.
    backends, placement
        As in :func:`from_array`.

    Returns
    -------
    DataClayArray
        With the rows of each block, and one block along each further axis of a common size.

    Raises
    ------
    InvalidArgumentError
        As :func:`from_array`.

    Examples
    --------
    >>> from spliter_backends.dataclay import distribute
    >>> frames = distribute([first, second], placement=[0, 0])  # doctest: +SKIP
    """
    executor = current_executor()
    if not blocks:
        raise InvalidArgumentError("there are no blocks to distribute")
    trailing = {tuple(getattr(block, "shape", ())[1:]) for block in blocks}
    further = trailing.pop() if len(trailing) == 1 else ()
    dtypes = {block.dtype for block in blocks if isinstance(block, np.ndarray)}
    arrays = all(isinstance(block, np.ndarray) for block in blocks)
    chunks = (tuple(count_rows(block) for block in blocks), *((size,) for size in further))
    dtype = dtypes.pop() if arrays and len(dtypes) == 1 else None
    chosen = _backends(executor.session, backends)
    return _send_blocks(executor.session, blocks, chunks, dtype, chosen, placement)


def generate(
    fn: Callable[..., npt.NDArray[Any]],
    chunks: Sequence[Sequence[int]],
    *args: Any,
    backends: Sequence[uuid.UUID] | None = None,
    placement: PlacementRule = "round-robin",
    **kwargs: Any,
) -> DataClayArray:
    """Make the blocks of an array at the backends; they may be larger than a message.

    Parameters
    ----------
    fn : callable
        Called at a backend as ``fn(index, shape, *args, **kwargs)`` with the block's index in
        the grid and its shape; returns the block.
    chunks : sequence of sequence of int
        Sizes of the blocks along each axis.
    *args, **kwargs
        Further arguments.
    backends, placement
        As in :func:`from_array`.

    Returns
    -------
    DataClayArray
        Its dtype is that of the first block.

    Raises
    ------
    InvalidArgumentError
        If `placement` does not fit, or `fn` returns a block of another shape.

    Examples
    --------
    >>> from spliter_backends.dataclay import generate
    >>> ones = generate(lambda index, shape: np.ones(shape), [(5, 5)])  # doctest: +SKIP
    """
    executor = current_executor()
    grid = BlockGrid.from_chunks(chunks)
    chosen = _backends(executor.session, backends)
    at = _backend_numbers(grid.nblocks, placement, len(chosen))
    futures = []
    for index, number in zip(np.ndindex(grid.shape), at, strict=True):
        shape = tuple(axis[i] for axis, i in zip(grid.chunks, index, strict=True))
        call = (fn, index, shape, args, kwargs)
        futures.append(executor.submit(_make, call, {}, Location(str(chosen[number]))))
    made = [future.result() for future in futures]
    object_ids, nbytes, dtypes = zip(*made, strict=True)
    return DataClayArray(object_ids, grid.chunks, dtypes[0], np.asarray(nbytes, dtype=np.int64))


def _make(
    fn: Callable[..., Any],
    index: tuple[int, ...],
    shape: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[uuid.UUID, int, np.dtype[Any]]:
    """Make one block and keep it; runs at a backend."""
    block = fn(index, shape, *args, **kwargs)
    if np.shape(block) != shape:
        raise InvalidArgumentError(
            f"generate: the function returned shape {np.shape(block)} for block {index}, which "
            f"has shape {shape}"
        )
    ((object_id, nbytes, _),) = keep_blocks([block])
    return object_id, nbytes, block.dtype


def _backends(session: Session, wanted: Sequence[uuid.UUID] | None) -> list[uuid.UUID]:
    there: list[uuid.UUID] = session.wait(session.backend_ids())
    if wanted is None:
        if not there:
            raise InvalidArgumentError(
                "dataClay has no backends to store blocks; start at least one"
            )
        return there
    missing = [one for one in wanted if one not in there]
    if missing or not wanted:
        raise InvalidArgumentError(
            f"backends must be some of {', '.join(map(str, there))}; got {wanted!r}"
        )
    return list(wanted)


def _backend_numbers(nblocks: int, placement: PlacementRule, nbackends: int) -> list[int]:
    """Return the number of each block's backend."""
    if isinstance(placement, str):
        if placement == "round-robin":
            return [number % nbackends for number in range(nblocks)]
        if placement == "runs":
            return [number * nbackends // nblocks for number in range(nblocks)]
        raise InvalidArgumentError(
            f"placement must be 'round-robin', 'runs' or a sequence of int, got {placement!r}"
        )
    numbers = [int(number) for number in placement]
    if len(numbers) != nblocks or not all(0 <= number < nbackends for number in numbers):
        raise InvalidArgumentError(
            f"placement must give one of {nbackends} backends by number (from 0) for each of "
            f"{nblocks} blocks, got {len(numbers)} numbers, {sorted(set(numbers))}"
        )
    return numbers


def _chunk_sizes(shape: Sequence[int], chunks: Chunks) -> tuple[tuple[int, ...], ...]:
    wanted = [chunks] if isinstance(chunks, int | np.integer) else list(chunks)
    whole: list[int | Sequence[int]] = [max(size, 1) for size in shape[len(wanted) :]]
    found = []
    for size, step in zip(shape, [*wanted, *whole], strict=False):
        if isinstance(step, int | np.integer):
            if step < 1:
                raise InvalidArgumentError(f"chunks must be at least 1, got {chunks!r}")
            found.append(cut(size, int(step)))
        else:
            found.append(tuple(int(it) for it in step))
    if len(wanted) > len(shape) or [sum(axis) for axis in found] != list(shape):
        raise InvalidArgumentError(f"chunks={chunks!r} do not add up to shape {tuple(shape)}")
    return tuple(found)


def _send_blocks(
    session: Session,
    blocks: Sequence[Any],
    chunks: tuple[tuple[int, ...], ...],
    dtype: np.dtype[Any] | None,
    backends: Sequence[uuid.UUID],
    placement: PlacementRule,
) -> DataClayArray:
    nbytes = np.fromiter(map(block_nbytes, blocks), np.int64, len(blocks))
    for position in np.flatnonzero(nbytes > MESSAGE_LIMIT).tolist():
        raise InvalidArgumentError(
            f"block {position} has {nbytes[position]} bytes; a message to dataClay carries at most "
            f"{MESSAGE_LIMIT}. Use smaller blocks, or make the blocks at the backends (generate). "
            "Nothing has been sent"
        )
    at = _backend_numbers(len(blocks), placement, len(backends))
    made = [Block(content) for content in blocks]

    async def send() -> None:
        for number, backend_id in enumerate(backends):
            mine = (block for block, place in zip(made, at, strict=True) if place == number)
            await session.peer(backend_id).persist(mine)

    session.wait(send())
    return DataClayArray(tuple(block._dc_meta.id for block in made), chunks, dtype, nbytes)
