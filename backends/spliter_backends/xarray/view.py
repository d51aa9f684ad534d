"""Build xarray objects from chunks, at the location of a partition.

A partition is sent with the names and attributes of its variables and with the coordinates of its
rows. The chunks stay where they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from spliter import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class ChunkedVariable:
    """Name, dimensions and attributes of one chunked variable.

    name: Name of the variable; may be ``None`` for a DataArray.
    dims: In the order of the chunks' axes.
    """

    name: Hashable
    dims: tuple[Hashable, ...]
    attrs: Mapping[Any, Any]
    coordinate: bool

    def around(self, chunk: Any) -> xr.Variable:
        """Return a chunk as a variable, without a copy; refuse what is no array."""
        try:
            return xr.Variable(self.dims, chunk, self.attrs)
        except ValueError as error:
            raise InvalidArgumentError(
                f"a chunk of {self.name!r} is a {type(chunk).__name__}, which xarray cannot use "
                f"({error}); convert the chunks to NumPy arrays, as by map_blocks"
            ) from error


@dataclass(frozen=True, eq=False)
class Recipe:
    """Builds the blocks of one collection from chunks and labels.

    chunked: Variables with one chunk per block.
    array: Whether blocks are DataArrays of the first variable, instead of Datasets.
    """

    dim: Hashable
    chunked: Sequence[ChunkedVariable]
    array: bool
    attrs: Mapping[Any, Any]

    def block(self, labels: xr.Dataset, chunks: Sequence[Any]) -> xr.DataArray | xr.Dataset:
        """Build one block from its chunks, which are not copied, and its labels.

        `labels` are the variables that are not chunked, cut to the block. The split dimension comes
        first.
        """
        named = [
            (about, about.around(chunk)) for about, chunk in zip(self.chunked, chunks, strict=True)
        ]
        coordinates = {about.name: variable for about, variable in named if about.coordinate}
        if self.array:
            about, variable = named[0]
            block = xr.DataArray(
                variable.data, labels.coords, variable.dims, about.name, variable.attrs
            )
            made: xr.DataArray | xr.Dataset = block.assign_coords(coordinates)
        else:
            values = {about.name: variable for about, variable in named if not about.coordinate}
            made = labels.assign(values).assign_coords(coordinates).assign_attrs(self.attrs)
        return made.transpose(self.dim, ...)

    def join(self, blocks: Iterable[Any]) -> Any:
        """Concatenate blocks along the split dimension.

        A single block is returned unchanged. Variables without the dimension are taken from the
        first block.
        """
        kept = list(blocks)
        if len(kept) == 1:
            return kept[0]
        minimal: dict[str, Any] = {} if self.array else {"data_vars": "minimal"}
        return xr.concat(
            kept, self.dim, coords="minimal", compat="override", join="override", **minimal
        )


@dataclass(frozen=True, eq=False)
class LabelledView:
    """View of a partition for its tasks: xarray objects instead of chunks; sent to the tasks.

    labels: Variables that are not chunked, cut to the partition's rows.
    bounds: Range of the labels for each block, by dimension.
    """

    recipe: Recipe
    labels: xr.Dataset
    bounds: Sequence[Mapping[Hashable, slice]]

    def block(self, at: int, chunks: Sequence[Any]) -> xr.DataArray | xr.Dataset:
        """Return the block of one chunk, or of several aligned ones."""
        return self.recipe.block(self.labels.isel(self.bounds[at]), chunks)

    def join(self, blocks: Iterator[Any]) -> Any:
        """Concatenate such blocks; see :meth:`Recipe.join`."""
        return self.recipe.join(blocks)
