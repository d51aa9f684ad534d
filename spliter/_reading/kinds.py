"""The kinds of blocks: sparse matrices, tables, Datasets of xarray, aligned tuples."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from spliter._errors import InvalidArgumentError


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy."""
    return type(value).__module__.startswith("scipy.sparse.")


def is_table(value: Any) -> bool:
    """Return whether a value is a table of pyarrow."""
    return package_of(value) == "pyarrow" and isinstance(value, sys.modules["pyarrow"].Table)


def package_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


@dataclass(frozen=True, eq=False)
class DatasetAlong:
    """A Dataset of xarray as a block with rows, which it has along one dimension only."""

    data: Any
    dim: Hashable

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (self.data.sizes[self.dim],)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, without those of variables that have none."""
        variables = self.data.variables.values()
        return sum(variable.nbytes for variable in variables if self.dim in variable.dims)

    def __getitem__(self, rows: Any) -> DatasetAlong:
        return DatasetAlong(self.data.isel({self.dim: rows}), self.dim)


def wrap_datasets(blocks: Iterable[Any], dim: Hashable | None) -> Iterable[Any]:
    """Return blocks with rows: Datasets along ``BlockGrid.dim`` of their collection, or others."""
    return blocks if dim is None else (DatasetAlong(block, dim) for block in blocks)


def unwrap_dataset(block: Any) -> Any:
    """Return the block itself of one of :func:`wrap_datasets`."""
    return block.data if isinstance(block, DatasetAlong) else block


def is_dataset(value: Any) -> bool:
    return package_of(value) == "xarray" and hasattr(type(value), "data_vars")


def refuse_dataset(value: Any) -> None:
    if is_dataset(value):
        raise InvalidArgumentError(
            "a Dataset does not say which dimension its rows are along; pass DataArrays, or use "
            "Split.take and Partition.batches of split(along(dataset, dim))"
        )


def checked(block: Any) -> Any:
    """Return a block, or a tuple of aligned ones; refuse iterators, empty for the next pass.

    Examples
    --------
    >>> checked([1, 2])
    [1, 2]
    """
    for member in block if isinstance(block, tuple) else (block,):
        if hasattr(type(member), "__next__"):
            raise InvalidArgumentError(
                f"a block is an iterator ({type(member).__name__}), which can be read only once; "
                "make it a list where it is made, such as bag.map_partitions(list) for a Dask bag"
            )
    return block
