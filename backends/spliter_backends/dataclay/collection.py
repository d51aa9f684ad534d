"""A blocked collection whose blocks are persistent objects of dataClay."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import BlockGrid, BlockTimeoutError, Location
from spliter.backend import IntArray
from spliter_backends.dataclay.client.backend_calls import (
    MAX_ATTEMPTS,
    BackendLostError,
    ObjectMissingError,
)
from spliter_backends.dataclay.client.handles import lost_blocks_error
from spliter_backends.dataclay.client.session import Session, current_session
from spliter_backends.dataclay.message import pack_ids


@dataclass(frozen=True, eq=False)
class DataClayArray:
    """A blocked collection of persistent objects: only metadata, cheap to pickle.

    Parameters
    ----------
    object_ids : tuple of UUID
        The :class:`~spliter_backends.dataclay.objects.Block` of each block, in C order.
    chunks : tuple of tuple of int
        Sizes of the blocks along each axis; ``-1`` for unknown sizes.
    dtype : dtype or None
        Type of the elements; ``None`` for blocks that are not arrays.
    block_nbytes : ndarray of int64, shape (nblocks,)
        Bytes of each block.

    Notes
    -----
    dataClay keeps the blocks until :meth:`delete` is called; it has no garbage collection.
    """

    object_ids: tuple[uuid.UUID, ...]
    chunks: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any] | None
    block_nbytes: IntArray

    @property
    def nblocks(self) -> int:
        """Number of blocks."""
        return len(self.object_ids)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Number of items along each axis, ``None`` if unknown."""
        return BlockGrid(self.chunks).extent

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return int(self.block_nbytes.sum())

    @property
    def blocks(self) -> list[Any]:
        """The persistent objects, in C order."""
        from dataclay import DataClayObject

        return [DataClayObject.get_by_id(object_id) for object_id in self.object_ids]

    def locations(self) -> list[Location | None]:
        """Return the current backend of each block; ``None`` for lost blocks."""
        session = current_session()
        found = session.wait(session.locate(self.object_ids))
        return [None if one is None else Location(str(one)) for one in found]

    def compute(self) -> Any:
        """Fetch all blocks and concatenate them.

        Raises
        ------
        BlockLostError
            If blocks are lost; lists them.
        BlockTimeoutError
            If blocks keep moving.
        """
        from spliter.backend import concatenate_grid
        from spliter_backends.dataclay.message import decode

        session = current_session()
        messages = session.wait(_pull_blocks(session, self.object_ids, BlockGrid(self.chunks)))
        contents = [decode(it)[1]["_dc_property_content"] for it in messages]
        return concatenate_grid(contents, BlockGrid(self.chunks).shape)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Fetch all blocks as an array."""
        return np.asarray(self.compute(), dtype=dtype)

    def delete(self) -> None:
        """Free the remaining blocks at their backends; the collection is unusable afterwards."""
        session = current_session()
        session.wait(_delete(session, self.object_ids))

    def __repr__(self) -> str:
        """Return shape, dtype and number of blocks."""
        return f"<DataClayArray: shape {self.shape}, dtype {self.dtype}, {self.nblocks} blocks>"


async def _pull_blocks(
    session: Session, object_ids: Sequence[uuid.UUID], grid: BlockGrid
) -> list[bytearray]:
    """Fetch blocks; locate moved ones again."""
    messages: dict[int, bytearray] = {}
    for attempt in range(MAX_ATTEMPTS):
        missing = [at for at in range(len(object_ids)) if at not in messages]
        found = await session.locate([object_ids[at] for at in missing]) if missing else []
        dead: dict[uuid.UUID, str] = {}
        lost: list[int] = []
        for at, holder in zip(missing, found, strict=True):
            if holder is None or holder in dead:
                lost.append(at)
                continue
            try:
                messages[at] = await session.peer(holder).pull(object_ids[at])
            except ObjectMissingError:
                continue
            except BackendLostError as error:
                dead[holder] = str(error)
                lost.append(at)
        if lost and attempt:  # in the first attempt, a block may just have left the lost backend
            raise lost_blocks_error(grid, np.asarray(lost, dtype=np.int64), dead)
        if len(messages) == len(object_ids):
            return [messages[at] for at in range(len(object_ids))]
    raise BlockTimeoutError(
        f"blocks had moved to another dataClay backend in all {MAX_ATTEMPTS} attempts; stop the "
        "program that moves them, and try again"
    )


async def _delete(session: Session, object_ids: Sequence[uuid.UUID]) -> None:
    at: dict[uuid.UUID, list[uuid.UUID]] = {}
    for object_id, backend_id in zip(object_ids, await session.locate(object_ids), strict=True):
        if backend_id is not None:
            at.setdefault(backend_id, []).append(object_id)
    for backend_id, ids in at.items():
        with contextlib.suppress(BackendLostError):  # its objects are lost with it
            await session.peer(backend_id).request("free", [], pack_ids(ids))
