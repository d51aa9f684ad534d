"""Hypothesis strategies for block grids, placements of blocks, and numbers of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from spliter import BlockGrid, Location
from spliter.backend import Placement


def chunks(
    *, max_dims: int = 3, max_blocks: int = 6, min_size: int = 0, max_size: int = 5
) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Draw ragged chunk sizes along one or several axes: tuples of tuples of int.

    There is at least one axis, and one block along each. Blocks without items are blocks too.
    """
    axis = st.lists(st.integers(min_size, max_size), min_size=1, max_size=max_blocks).map(tuple)
    return st.lists(axis, min_size=1, max_size=max_dims).map(tuple)


def block_grids(*, max_dims: int = 3, max_blocks: int = 6) -> st.SearchStrategy[BlockGrid]:
    """Draw block grids with ragged, sometimes empty, blocks of known size."""
    return chunks(max_dims=max_dims, max_blocks=max_blocks).map(BlockGrid.from_chunks)


@st.composite
def placements(
    draw: st.DrawFn,
    *,
    min_blocks: int = 0,
    max_blocks: int = 40,
    max_locations: int = 5,
    max_replicas: int = 3,
    max_nbytes: int = 1000,
) -> Placement:
    """Draw placements of blocks, some of no bytes, with one or several holders each."""
    names = [f"location-{number}" for number in range(draw(st.integers(1, max_locations)))]
    held = st.lists(st.sampled_from(names), min_size=1, max_size=max_replicas, unique=True)
    holders = draw(st.lists(held, min_size=min_blocks, max_size=max_blocks))
    sizes = st.lists(st.integers(0, max_nbytes), min_size=len(holders), max_size=len(holders))
    return Placement.of(holders, np.asarray(draw(sizes), dtype=np.int64))


def capacities(
    locations: Sequence[Location], *, most: int = 6
) -> st.SearchStrategy[dict[Location, int]]:
    """Draw the numbers of cores of the given locations, from one to `most`."""
    return st.fixed_dictionaries({location: st.integers(1, most) for location in locations})


@dataclass(frozen=True)
class PlacedBlocks:
    """Blocks along axis 0 and where each goes: rows, and number of its location.

    `partitions_per_location` is the argument of ``split``.
    """

    lengths: tuple[int, ...]
    placement: tuple[int, ...]
    partitions_per_location: int | None


@st.composite
def placed_blocks(draw: st.DrawFn, *, n_locations: int, max_blocks: int = 12) -> PlacedBlocks:
    """Draw collections of one axis, spread over locations."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=max_blocks))
    where = st.integers(0, n_locations - 1)
    placement = draw(st.lists(where, min_size=len(lengths), max_size=len(lengths)))
    wanted = draw(st.none() | st.integers(1, 4))
    return PlacedBlocks(tuple(lengths), tuple(placement), wanted)
