"""Collection of blocks in Ray's object store with known sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ray import ObjectRef

from spliter import BlockGrid, InvalidArgumentError
from spliter.backend import concatenate_grid
from spliter_backends.ray.future import wait_for_results


@dataclass(frozen=True, eq=False)
class RayArray:
    """An array of blocks along one axis or several, given by their references.

    If sizes need not be known in advance and blocks are adjacent along axis 0, a list of
    references suffices.

    Parameters
    ----------
    blocks : tuple of ObjectRef
        In C order.
    chunks : tuple of tuple of int
        Sizes of the blocks along each axis, as in Dask; ``-1`` for unknown sizes.
    dtype : dtype or None
        Type of the elements; ``None`` for blocks that are not arrays.

    Raises
    ------
    InvalidArgumentError
        If the number of blocks does not match `chunks`.

    Examples
    --------
    ``RayArray((ray.put(np.zeros((2, 3))), ray.put(np.ones((1, 3)))), ((2, 1), (3,)), np.float64)``
    has shape ``(3, 3)``.
    """

    blocks: tuple[ObjectRef, ...]
    chunks: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any] | None = None

    def __post_init__(self) -> None:
        grid = BlockGrid(self.chunks)
        if grid.nblocks != len(self.blocks):
            raise InvalidArgumentError(
                f"{len(self.blocks)} blocks do not fill a grid of {grid.shape} blocks"
            )

    @property
    def nblocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Number of items along each axis, ``None`` if unknown."""
        return BlockGrid(self.chunks).extent

    def compute(self) -> Any:
        """Fetch all blocks and concatenate them."""
        contents = wait_for_results(self.blocks)
        return concatenate_grid(contents, BlockGrid(self.chunks).shape)
