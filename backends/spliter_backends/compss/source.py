"""Source of a partition in a PyCOMPSs task, and which of the task's inputs are its blocks.

COMPSs passes the blocks to a task as elements of a collection parameter, which its scheduler
considers. `BlockInputs` says which inputs belong to which partition and block::

    inputs of the task    f0   b00 b01 | b10 b11   y0 y1      one   ...
                          future   two blocks of      its      a partition,
                                   two columns each   labels   concatenated
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter.backend import (
    BlockSource,
    Fetches,
    RemoteSource,
    blocks_of,
    check_rows,
    concatenate,
    count_rows,
)
from spliter_backends.compss.outcome import FailedInputError, TaskFailure
from spliter_backends.compss.persistent_contents import PersistentObjects


@dataclass(frozen=True)
class BlockInputs:
    """Which inputs of a task belong to a partition.

    columns: For each aligned collection, the number of inputs per block, side by side.
    is_concatenated: Whether there is one input, with all blocks concatenated.
    location: Planned location of the partition.
    token, number: Token of the Split, and number of the partition in it.
    known: Whether the blocks are known to be at the location, so that a task reports another node.
    iterates_concatenated: Whether iteration yields one concatenated block.
    persistent: Ids and service of the blocks if they are persistent objects.
    """

    start: int
    nblocks: int
    columns: tuple[int, ...]
    indexes: tuple[tuple[int, ...], ...]
    is_concatenated: bool
    location: str
    token: str
    number: int
    known: bool
    iterates_concatenated: bool = False
    persistent: PersistentObjects | None = None

    @property
    def ninputs(self) -> int:
        """Number of inputs."""
        if self.persistent is not None and self.persistent.ids:
            return 0
        return 1 if self.is_concatenated else self.nblocks * sum(self.columns)

    def with_one_input(self, start: int) -> BlockInputs:
        """Return those of the same partition, passed as one input."""
        return dataclasses.replace(
            self, start=start, is_concatenated=True, iterates_concatenated=True
        )


def remote_source(location: str) -> RemoteSource:
    """Return the source of a partition away from its blocks."""
    return RemoteSource(f"COMPSs objects at {location}")


class InputSource(BlockSource):
    """Source of a partition in a task that received its blocks."""

    def __init__(self, block_inputs: BlockInputs, inputs: Sequence[Any]) -> None:
        self._block_inputs = block_inputs
        self._inputs = inputs[block_inputs.start : block_inputs.start + block_inputs.ninputs]
        self._one: tuple[Any] | None = None
        for value in self._inputs:
            if isinstance(value, TaskFailure):
                raise FailedInputError(value)

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, or tuples of aligned blocks."""
        return iter(self._original_blocks()) if self._block_inputs.is_concatenated else self._read()

    def fetches(self) -> Fetches | None:
        """Return the reads of persistent objects; None if COMPSs has passed the blocks."""
        persistent = self._block_inputs.persistent
        if persistent is None:
            return None
        return persistent.fetches(self._block, self._block_inputs.location)

    def _read(self) -> Iterator[Any]:
        return map(self._block, range(self._block_inputs.nblocks))

    def _block(self, number: int) -> Any:
        """Return a block, or a tuple of aligned blocks."""
        block_inputs = self._block_inputs
        blocks, start = [], 0
        for width in block_inputs.columns:
            at = start + number * width
            if block_inputs.persistent is None:
                blocks.append(concatenate_columns(self._inputs[at : at + width]))
            else:  # one object for each block
                blocks.append(block_inputs.persistent.content(at, self._inputs))
            start += block_inputs.nblocks * width
        if len(blocks) == 1:
            return blocks[0]
        check_rows(blocks, block_inputs.indexes[number])
        return tuple(blocks)

    def _original_blocks(self) -> list[Any]:
        """Return the original blocks, cut from the concatenated one."""
        counts, one = self._inputs[0]
        ends = np.cumsum(counts).tolist()
        blocks = []
        for start, end in zip([0, *ends], ends, strict=False):
            if isinstance(one, tuple):
                blocks.append(tuple(_rows(member, start, end) for member in one))
            else:
                blocks.append(_rows(one, start, end))
        return blocks

    def materialized(self) -> Any:
        """Return the concatenated blocks: an input of the task, or made now and kept."""
        if self._block_inputs.is_concatenated:
            return self._inputs[0][1]
        if self._one is None:
            self._one = (concatenate(blocks_of(self)),)
        return self._one[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the blocks."""
        return remote_source, (self._block_inputs.location,)


def _rows(block: Any, start: int, end: int) -> Any:
    """Return rows of an array, a data frame, a sparse matrix or a list."""
    return getattr(block, "iloc", block)[start:end]


def concatenate_columns(blocks: Sequence[Any]) -> Any:
    """Concatenate blocks of the same rows, from left to right; sparse ones keep their format.

    Examples
    --------
    >>> import numpy as np
    >>> concatenate_columns([np.zeros((2, 1)), np.ones((2, 2))])
    array([[0., 1., 1.],
           [0., 1., 1.]])
    """
    if len(blocks) == 1:
        return blocks[0]
    if type(blocks[0]).__module__.partition(".")[0] == "scipy":
        from scipy import sparse

        return sparse.hstack(blocks, format=blocks[0].format)
    return np.hstack(blocks)


def concatenate_inputs(block_inputs: BlockInputs, inputs: Sequence[Any]) -> tuple[list[int], Any]:
    """Return the number of rows of each block and the concatenated blocks, for a later task."""
    blocks = list(InputSource(block_inputs, inputs).read())
    return [count_rows(block) for block in blocks], concatenate(blocks)
