"""Arrays of any dtype, cut in any way, and programs over them whose answers NumPy knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from spliter import Partition, task
from spliter.testing import strategies

DTYPES = ("?", "i1", "<u4", ">i8", "<f4", "f8", "c16", "M8[us]", "m8[s]", "U3", "S2", "O", "i4,f8")
"""Truth values, numbers of either byte order, times, texts, objects, and records."""


class PlannedFailureError(Exception):
    """Raised by a task that a test has told to fail."""


@dataclass(frozen=True)
class Case:
    """A blocked array; the locations that hold each block, in C order; blocks that make tasks fail.

    ``wanted`` is ``partitions_per_location``.
    """

    array: npt.NDArray[Any]
    chunks: tuple[tuple[int, ...], ...]
    holders: tuple[tuple[int, ...], ...]
    wanted: int | None
    bad: frozenset[int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the grid of blocks."""
        return tuple(map(len, self.chunks))

    def place(self, index: tuple[int, ...]) -> tuple[slice, ...]:
        """Return where a block lies in the whole."""
        return tuple(
            slice(sum(sizes[:at]), sum(sizes[: at + 1]))
            for at, sizes in zip(index, self.chunks, strict=True)
        )

    def blocks(self) -> list[npt.NDArray[Any]]:
        indexes = product(*(range(count) for count in self.shape))
        return [self.array[self.place(index)].copy() for index in indexes]

    def assembled(self, found: Mapping[tuple[int, ...], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Put blocks together by their indexes."""
        whole = np.empty_like(self.array)
        for index, block in found.items():
            whole[self.place(index)] = block
        return whole


@st.composite
def cases(
    draw: st.DrawFn, *, locations: int, replicas: int, max_dims: int = 3, max_blocks: int = 4
) -> Case:
    """Draw blocked arrays, each block at up to ``replicas`` of some locations."""
    chunks = draw(strategies.chunks(max_dims=max_dims, max_blocks=max_blocks, max_size=4))
    shape = tuple(map(sum, chunks))
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    array = np.empty(shape, dtype)
    # Not each type holds all numbers: what repeats is told apart by the indexes.
    array[...] = numbers % 100 if dtype.names is None else numbers
    count = int(np.prod([len(sizes) for sizes in chunks]))
    held = st.lists(st.integers(0, locations - 1), min_size=1, max_size=replicas, unique=True).map(
        tuple
    )
    holders = draw(st.lists(held, min_size=count, max_size=count))
    bad = draw(st.frozensets(st.integers(0, count - 1), max_size=1) | st.just(frozenset()))
    return Case(array, chunks, tuple(holders), draw(st.none() | st.integers(1, 4)), bad)


@task
def read(partition: Partition) -> dict[tuple[int, ...], Any]:
    found = dict(partition.items())
    assert list(found) == partition.get_indexes()
    return found


@task
def stumble(partition: Partition, bad: frozenset[tuple[int, ...]]) -> int:
    """Return the number of items, unless there is a bad block."""
    for index in partition.get_indexes():
        if index in bad:
            raise PlannedFailureError(index)
    return sum(int(block.size) for block in partition)


def bad_indexes(case: Case) -> frozenset[tuple[int, ...]]:
    return frozenset(
        tuple(int(at) for at in np.unravel_index(position, case.shape)) for position in case.bad
    )
