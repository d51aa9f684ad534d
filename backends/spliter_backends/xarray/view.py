"""From bare chunks to xarray objects, at the location of a partition.

What is sent with a partition are names, and the coordinates of its rows: those that are values in
the program, cut to what the partition needs. The chunks stay where they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr


@dataclass(frozen=True, eq=False)
class Chunked:
    """One chunked variable: what has to be put around its chunks.

    Parameters
    ----------
    name : hashable
        Its name; may be ``None`` for a DataArray.
    dims : tuple of hashable
        In the order of the chunks' axes.
    attrs : mapping
        As in the variable.
    coordinate : bool
        Whether it is a coordinate.
    """

    name: Hashable
    dims: tuple[Hashable, ...]
    attrs: Mapping[Any, Any]
    coordinate: bool

    def around(self, chunk: Any) -> xr.Variable:
        """Return a chunk as a variable, without a copy."""
        return xr.Variable(self.dims, chunk, self.attrs)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How the blocks of one collection are made of chunks and labels.

    Parameters
    ----------
    dim : hashable
        The dimension that is split along.
    chunked : sequence of Chunked
        The variables that a block has a chunk of.
    array : bool
        Whether blocks are DataArrays, of the first of them, and not Datasets.
    attrs : mapping
        Of the Dataset.
    """

    dim: Hashable
    chunked: Sequence[Chunked]
    array: bool
    attrs: Mapping[Any, Any]

    def block(self, labels: xr.Dataset, chunks: Sequence[Any]) -> xr.DataArray | xr.Dataset:
        """Put names and labels around the chunks of one block.

        Parameters
        ----------
        labels : Dataset
            What is not chunked, cut to the block.
        chunks : sequence of array
            One for each of the chunked variables.

        Returns
        -------
        DataArray or Dataset
            With the dimension that is split along first. The chunks are not copied.
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
        """Return blocks, one after the other along the dimension, as one.

        Parameters
        ----------
        blocks : iterable of DataArray, or of Dataset
            One at least.

        Returns
        -------
        DataArray or Dataset
            A single block comes back as it is. Variables without the dimension are those of
            the first block.
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
    """What tasks on one partition see: xarray objects in place of chunks. It is sent to them.

    Parameters
    ----------
    recipe : Recipe
        How a block is made.
    labels : Dataset
        What is not chunked, cut to the partition's rows.
    bounds : sequence of dict
        For each block the part of the labels that is its own, by dimension.
    """

    recipe: Recipe
    labels: xr.Dataset
    bounds: Sequence[Mapping[Hashable, slice]]

    def blocks(self, bare: Iterator[Any]) -> Iterator[xr.DataArray | xr.Dataset]:
        """Yield the block for each chunk, or tuple of chunks.

        Parameters
        ----------
        bare : iterator of array, or of tuple of array
            The chunks of the partition's blocks.

        Yields
        ------
        DataArray or Dataset
        """
        for bounds, chunks in zip(self.bounds, bare, strict=True):
            whole = chunks if isinstance(chunks, tuple) else (chunks,)
            yield self.recipe.block(self.labels.isel(bounds), whole)

    def join(self, blocks: Iterator[Any]) -> Any:
        """Return such blocks as one; see :meth:`Recipe.join`."""
        return self.recipe.join(blocks)
