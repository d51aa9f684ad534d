"""Find the chunks of xarray objects, and the coordinates that belong to each.

xarray keeps chunks in Dask arrays. They are located like those of any Dask array, and tasks run
where they are: at Dask workers, or in this process if they were persisted without a client. This
module adds which chunks of which variables form a block, and the labels of each block.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection
from distributed import Future

from spliter import (
    AlignmentError,
    BlockGrid,
    InvalidArgumentError,
    LazyCollectionError,
    UnsupportedCollectionError,
)
from spliter.backend import Blocks, IntArray, Locator, PlannedPartition
from spliter_backends._shared.dask_graph import (
    BlockValues,
    belongs_to_cluster,
    block_values,
    persist_collections,
)
from spliter_backends._shared.process_blocks import LocalBlocks
from spliter_backends._shared.readable import ReadableCollection, block_nbytes
from spliter_backends.dask.blocks import DaskBlocks, PersistedCollection
from spliter_backends.dask.locator import check_thread, open_collections
from spliter_backends.local.executor import LOCATION, default_executor
from spliter_backends.xarray.collection import XarrayCollection, XarrayObject
from spliter_backends.xarray.view import ChunkedVariable, LabelledView, Recipe


class XarrayLocator(Locator):
    """Finds the chunks of xarray objects, and of objects returned by :func:`along`."""

    def recognises(self, collection: Any) -> bool:
        """Return whether it is a DataArray, a Dataset, or an `XarrayCollection`."""
        return isinstance(collection, XarrayCollection | xr.DataArray | xr.Dataset)

    def open(self, collections: Sequence[Any]) -> Blocks:
        """Open one xarray object, on the cluster or in this process; nothing is computed.

        A DataArray by itself is split along its first dimension.
        """
        if len(collections) != 1 or not self.recognises(collections[0]):
            raise UnsupportedCollectionError(
                "xarray objects cannot be aligned by split(); combine them in one Dataset: "
                "split(along(xr.Dataset({'x': x, 'y': y}), dim))"
            )
        chunks = _chunks_of(*_data_and_dim(collections[0]))
        found = [block_values(variable.data) for variable in chunks.variables]
        if any(values.lazy for values in found):
            raise LazyCollectionError(
                "some chunks of this xarray object have not been computed, so they have no "
                "location; call data = data.persist() and split that, or use persist=True"
            )
        if not any(belongs_to_cluster(variable.data) for variable in chunks.variables):
            return _open_local(chunks, found)
        if not all(isinstance(value, Future) for values in found for value in values.values):
            raise LazyCollectionError(
                "chunks of this xarray object are in this process, but the program has a Dask "
                "client; call data = data.persist() and split that"
            )
        return _open_on_cluster(chunks, found)

    def persist(self, collections: Sequence[Any]) -> Sequence[Any]:
        """Compute lazy chunks; without waiting for them."""
        plain = [held.data if isinstance(held, XarrayCollection) else held for held in collections]
        return [
            replace(held, data=data) if isinstance(held, XarrayCollection) else data
            for held, data in zip(collections, persist_collections(plain), strict=True)
        ]


def _data_and_dim(collection: Any) -> tuple[XarrayObject, Hashable]:
    if isinstance(collection, XarrayCollection):
        return collection.data, collection.dim
    if isinstance(collection, xr.DataArray) and collection.dims:
        return collection, collection.dims[0]
    raise InvalidArgumentError(
        f"a {type(collection).__name__} needs the dimension to split along: "
        "split(spliter_backends.xarray.collection.along(data, dim))"
    )


@dataclass(frozen=True, eq=False)
class _Chunks:
    """ChunkedVariable variables and labels of an xarray object.

    variables: The chunked ones; the first has the split dimension, and defines the grid.
    """

    variables: Sequence[xr.Variable]
    recipe: Recipe
    labels: xr.Dataset
    dims: tuple[Hashable, ...]
    grid: BlockGrid

    @functools.cached_property
    def starts(self) -> Sequence[IntArray]:
        """Start of each chunk and end of the last one, for each dimension of the grid."""
        return [np.cumsum([0, *sizes]).astype(np.int64) for sizes in self.grid.chunks]

    def matching(self, variable: xr.Variable) -> IntArray:
        """Return the chunk of a variable, in C order, that belongs to each block of the grid."""
        assert variable.chunks is not None
        coordinates = np.unravel_index(np.arange(self.grid.nblocks), self.grid.shape)
        by_dim = dict(zip(self.dims, coordinates, strict=True))
        none = np.zeros(self.grid.nblocks, dtype=np.int64)
        at = [by_dim.get(dim, none) for dim in variable.dims]
        numbers = np.ravel_multi_index(at, tuple(map(len, variable.chunks)))
        return np.asarray(numbers, dtype=np.int64)

    def bounds(self, position: int) -> dict[Hashable, slice]:
        """Return the range of each dimension that a block covers."""
        return {
            dim: slice(int(starts[at]), int(starts[at + 1]))
            for dim, starts, at in zip(
                self.dims, self.starts, self.grid.index(position), strict=True
            )
        }

    def labels_of(self, bounds: Mapping[Hashable, slice]) -> xr.Dataset:
        """Return the labels of one block."""
        return self.labels.isel({dim: at for dim, at in bounds.items() if dim in self.labels.dims})

    def view(self, planned: PlannedPartition) -> LabelledView:
        """Return the view of a partition's tasks; it contains the labels of its rows only."""
        dim = self.dims[0]
        bounds = [self.bounds(position) for position in planned.positions.tolist()]
        if dim not in self.labels.dims:
            return LabelledView(self.recipe, self.labels, [self._known(at) for at in bounds])
        moved: dict[tuple[int, int], slice] = {}
        rows: list[IntArray] = []
        end = 0
        for at in bounds:
            stretch = at[dim]
            key = (stretch.start, stretch.stop)
            if key not in moved:
                moved[key] = slice(end, end + stretch.stop - stretch.start)
                rows.append(np.arange(*key))
                end = moved[key].stop
        labels = self.labels.isel({dim: np.concatenate(rows)})
        mine = [{**self._known(at), dim: moved[at[dim].start, at[dim].stop]} for at in bounds]
        return LabelledView(self.recipe, labels, mine)

    def _known(self, bounds: Mapping[Hashable, slice]) -> dict[Hashable, slice]:
        return {dim: at for dim, at in bounds.items() if dim in self.labels.dims}


def _chunks_of(data: XarrayObject, dim: Hashable) -> _Chunks:
    """Separate an xarray object into chunked variables and labels."""
    named = _named_variables(data)
    chunked = [entry for entry in named if _is_chunked(entry[1])]
    own = [entry for entry in chunked if dim in entry[1].dims and not entry[2]]
    if not own:
        raise UnsupportedCollectionError(
            f"nothing in this {type(data).__name__} is chunked along {dim!r}; chunk and persist "
            f"it first: data.chunk({{{dim!r}: n}}).persist()"
        )
    # The variable with the most bytes determines the locations; the others are copied there.
    first = max(own, key=lambda entry: entry[1].nbytes)
    ordered = [first, *(entry for entry in chunked if entry is not first)]
    sizes = _unify_chunks(ordered)
    dims = (dim, *(other for other in first[1].dims if other != dim))
    for entry in named:
        if dim in entry[1].dims and not entry[2]:
            _check_cut_alike(entry, dims, sizes)
    for name, variable, _ in ordered:
        for other in variable.dims:
            if other not in dims and len(sizes[other]) > 1:
                raise InvalidArgumentError(
                    f"{name!r} is chunked along {other!r}, which {first[0]!r} does not have; use "
                    f"data.chunk({{{other!r}: -1}}).persist()"
                )
    array = isinstance(data, xr.DataArray)
    recipe = Recipe(
        dim,
        [
            ChunkedVariable(name, variable.dims, variable.attrs, is_coordinate)
            for name, variable, is_coordinate in ordered
        ],
        array,
        data.attrs,
    )
    labels = data.coords.to_dataset() if isinstance(data, xr.DataArray) else data
    # A DataArray may have the name of one of its coordinates.
    labels = labels.drop_vars([name for name, _, coordinate in chunked if coordinate or not array])
    grid = BlockGrid(tuple(sizes[each] for each in dims), None if array else dim)
    return _Chunks([variable for _, variable, _ in ordered], recipe, labels, dims, grid)


Entry = tuple[Hashable, xr.Variable, bool]
"""Name, variable, and whether it is a coordinate."""


def _named_variables(data: XarrayObject) -> list[Entry]:
    coordinates: list[Entry] = [(name, array.variable, True) for name, array in data.coords.items()]
    if isinstance(data, xr.DataArray):
        return [(data.name, data.variable, False), *coordinates]
    return [*((name, array.variable, False) for name, array in data.items()), *coordinates]


def _is_chunked(variable: xr.Variable) -> bool:
    """Return whether it is a Dask array; check for chunks first, as `data` may load the values."""
    return variable.chunks is not None and is_dask_collection(variable.data)


def _unify_chunks(chunked: Sequence[Entry]) -> dict[Hashable, tuple[int, ...]]:
    """Return the chunks of each dimension; reject variables with different chunks."""
    sizes: dict[Hashable, tuple[int, ...]] = {}
    for name, variable, _ in chunked:
        assert variable.chunks is not None
        for dim, chunks in zip(variable.dims, variable.chunks, strict=True):
            if sizes.setdefault(dim, chunks) != chunks:
                raise AlignmentError(
                    f"{name!r} has chunks of {chunks} along {dim!r}, others have {sizes[dim]}; "
                    "use data.unify_chunks().persist()"
                )
    return sizes


def _check_cut_alike(
    entry: Entry, dims: Sequence[Hashable], sizes: Mapping[Hashable, tuple[int, ...]]
) -> None:
    """Reject a data variable that is not chunked, or that would be in several blocks."""
    name, variable, _ = entry
    if not _is_chunked(variable):
        raise UnsupportedCollectionError(
            f"{name!r} is not chunked, but other variables are; use data.chunk().persist(), or "
            "make it a coordinate, which is sent with the partitions"
        )
    for dim in dims:
        if dim not in variable.dims and len(sizes[dim]) > 1:
            raise InvalidArgumentError(
                f"{name!r} has no dimension {dim!r}, along which others are chunked, so it would "
                f"be in several blocks; split it separately, or use data.chunk({{{dim!r}: -1}})"
            )


def _open_on_cluster(chunks: _Chunks, found: Sequence[BlockValues]) -> DaskBlocks:
    check_thread()
    members = [
        PersistedCollection(chunks.grid, _in_order(values, matching), _nbytes(chunks, found))
        if number == 0
        else PersistedCollection(values.grid, values.values, None, matching)
        for number, (values, matching) in enumerate(_with_matching(chunks, found))
    ]
    return open_collections(members, chunks.view)


def _open_local(chunks: _Chunks, found: Sequence[BlockValues]) -> LocalBlocks:
    members = [_in_order(values, matching) for values, matching in _with_matching(chunks, found)]
    sizes = [[block_nbytes(value) for value in member] for member in members]
    nbytes = np.asarray(sizes, dtype=np.int64).reshape(len(members), -1).sum(axis=0)

    def read(position: int) -> Any:
        labels = chunks.labels_of(chunks.bounds(position))
        return chunks.recipe.block(labels, [member[position] for member in members])

    return LocalBlocks(
        [ReadableCollection(chunks.grid, nbytes, read, chunks.recipe.join)],
        LOCATION,
        default_executor(),
    )


def _with_matching(
    chunks: _Chunks, found: Sequence[BlockValues]
) -> Iterator[tuple[BlockValues, IntArray]]:
    return zip(found, map(chunks.matching, chunks.variables), strict=True)


def _in_order(values: BlockValues, matching: IntArray) -> list[Any]:
    return [values.values[at] for at in matching.tolist()]


def _nbytes(chunks: _Chunks, found: Sequence[BlockValues]) -> IntArray | None:
    """Return the bytes of each block's chunks along the dimension, if metadata give them."""
    total = np.zeros(chunks.grid.nblocks, dtype=np.int64)
    for variable, values in zip(chunks.variables, found, strict=True):
        if values.nbytes is None:
            return None
        if chunks.recipe.dim in variable.dims:
            total += values.nbytes[chunks.matching(variable)]
    return total
