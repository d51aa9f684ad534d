"""Blocks in Ray's object store whose sizes are known, as one collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ray import ObjectRef

from spliter import BlockGrid, InvalidArgumentError
from spliter.backend import concatenate
from spliter_backends.ray.future import results_of


@dataclass(frozen=True, eq=False)
class RayArray:
    """Blocks that form an array, along one axis or several: a description, and their references.

    A list of references will do where sizes need not be known beforehand, and blocks follow one
    another along axis 0.

    Parameters
    ----------
    blocks : tuple of ObjectRef
        In C order.
    chunks : tuple of tuple of int
        Sizes of the blocks along each axis, as in Dask; ``-1`` where not known.
    dtype : dtype or None
        Of the elements; ``None`` for blocks that are not arrays.

    Raises
    ------
    InvalidArgumentError
        If there are more or fewer blocks than sizes.

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
        """Number of items along each axis, ``None`` where it is not known."""
        return BlockGrid(self.chunks).extent

    def compute(self) -> Any:
        """Bring all blocks here and return them as one.

        Returns
        -------
        ndarray, or whatever the blocks are
            Blocks of kinds other than arrays are put together along axis 0.
        """
        contents = results_of(self.blocks)
        shape = BlockGrid(self.chunks).shape
        if self.nblocks == shape[0]:
            return concatenate(contents)
        grid = np.empty(shape, dtype=object)
        for at, content in zip(np.ndindex(shape), contents, strict=True):
            grid[at] = content
        return np.block(grid.tolist())
