"""The rows of one location: blocks by name, all with the same columns and categories.

Trainers read columns by position, numbers in the byte order of the machine, and categories by their
number. So all blocks of a collection must have the same columns (:func:`columns_of` checks them),
and get the categories of all blocks, in one order (:meth:`Columns.apply`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError
from spliter.backend import concatenate, count_rows, is_sparse, take_rows
from spliter_apps._differences import (
    Names,
    check_same_columns,
    check_same_number,
    column_names,
    native,
    refuse_masked,
)

DATA = "data"
"""Name of the features in :attr:`LocalRows.parts`."""

QUERY = "qid"
"""Name of the column with the query of each row."""

Categories: TypeAlias = Mapping[Hashable, Any]
"""Indexes of pandas with the categories of each categorical column, by its name."""


@dataclass(frozen=True)
class LocalRows:
    """The rows of one location.

    Parameters
    ----------
    parts : mapping of str to list of block
        Blocks of the features (``"data"``) and of each column, in the order of the collection.
    positions : tuple of int
        Number of each block in the collection.
    number, locations : int
        Index of this location among those with rows, and their number.
    threads : int
        Tasks that this location runs at once: the cores available to a trainer.

    Examples
    --------
    >>> import numpy as np
    >>> rows = LocalRows({"data": [np.ones((2, 3)), np.ones((1, 3))]}, (0, 2), 0, 1, 4)
    >>> len(rows), rows.concatenated()["data"].shape
    (3, (3, 3))
    """

    parts: Mapping[str, Sequence[Any]]
    positions: tuple[int, ...]
    number: int
    locations: int
    threads: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(count_rows(block) for block in self.parts[DATA])

    def concatenated(self) -> dict[str, Any]:
        """Return the blocks of each name concatenated; copies unless there is only one.

        Returns
        -------
        dict of str to block
            Arrays, DataFrames, Series and sparse matrices keep their type.

        Raises
        ------
        InvalidArgumentError
            If blocks of one name differ in kind.
        """
        return {name: concatenate(blocks) for name, blocks in self.parts.items()}

    def without_empty_blocks(self) -> LocalRows:
        """Return the same rows without empty blocks; one block stays if all are empty.

        Returns
        -------
        LocalRows
        """
        full = [at for at, block in enumerate(self.parts[DATA]) if count_rows(block)] or [0]
        if len(full) == len(self.positions):
            return self
        parts = {name: [blocks[at] for at in full] for name, blocks in self.parts.items()}
        return dataclasses.replace(
            self, parts=parts, positions=tuple(self.positions[at] for at in full)
        )

    def sorted_by_query(self) -> LocalRows:
        """Return the rows sorted by query, as ranking requires.

        Returns
        -------
        LocalRows
            Unchanged if ``qid`` never decreases, else one concatenated block in a stable order.

        Raises
        ------
        InvalidArgumentError
            If there is no ``qid``.
        """
        queries = self._queries()
        if np.all(queries[1:] >= queries[:-1]):
            return self
        order = np.argsort(queries, kind="stable")
        whole = self.concatenated()
        parts = {name: [take_rows(block, order)] for name, block in whole.items()}
        return dataclasses.replace(self, parts=parts)

    def group_sizes(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each query, in the order of the rows.

        Returns
        -------
        ndarray of int64, shape (queries,)
            LightGBM's ``group``.

        Raises
        ------
        InvalidArgumentError
            If there is no ``qid``, or the rows of a query are not contiguous.
        """
        queries = self._queries()
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])[: len(queries)]
        if len(np.unique(queries)) != len(starts):
            raise InvalidArgumentError(
                "the rows of a query are not contiguous; call sorted_by_query() first"
            )
        sizes: npt.NDArray[np.int64] = np.diff(np.r_[starts, len(queries)]).astype(np.int64)
        return sizes

    def _queries(self) -> npt.NDArray[Any]:
        if QUERY not in self.parts:
            raise InvalidArgumentError(
                f"{QUERY!r} is missing in {sorted(self.parts)}; pass it to colocate()"
            )
        return np.concatenate([np.asarray(block).reshape(-1) for block in self.parts[QUERY]])


@dataclass(frozen=True)
class Columns:
    """What all blocks of a collection have in common.

    names: Names of the columns, if they have any.
    width: Number of columns; 1 for blocks of one dimension.
    is_sparse: Whether the blocks are sparse matrices.
    categories: Categories of the categorical columns of data frames, of all blocks.
    rows: Number of rows of all blocks.
    """

    names: Names = None
    width: int = 1
    is_sparse: bool = False
    categories: Categories = field(default_factory=dict)
    rows: int = 0

    @classmethod
    def of(cls, block: Any) -> Columns:
        """Return the columns of one block."""
        width = math.prod(getattr(block, "shape", ())[1:])
        dtypes = block.dtypes if hasattr(block, "iloc") and block.ndim == 2 else {}
        categories = {
            name: dtype.categories for name, dtype in dtypes.items() if hasattr(dtype, "categories")
        }
        return cls(column_names(block), width, is_sparse(block), categories, count_rows(block))

    def merged(self, other: Columns, name: str) -> Columns:
        """Return the columns with the categories of both, in order of appearance.

        `name` is that of the collection. Blocks without rows only count in the names and the number
        of columns.
        """
        check_same_columns(self.names, other.names, f"all blocks of {name}")
        check_same_number(self.width, other.width, f"all blocks of {name}")
        if not (self.rows and other.rows):
            return self if self.rows else other
        if self.is_sparse != other.is_sparse:
            raise InvalidArgumentError(
                f"some blocks of {name} are sparse and others dense, but to trainers an absent "
                "entry may be a missing value; convert all to one kind"
            )
        for column in self.categories.keys() ^ other.categories.keys():
            raise InvalidArgumentError(
                f"column {column!r} of {name} has categories in some blocks only; convert it in "
                "all, as by .astype('category')"
            )
        categories = {
            column: _merge_categories(column, [values, other.categories[column]])
            for column, values in self.categories.items()
        }
        return dataclasses.replace(self, categories=categories, rows=self.rows + other.rows)

    def apply(self, block: Any) -> Any:
        """Return a block with all categories, and with numbers in this machine's byte order."""
        block = native(block)
        if not count_rows(block):
            return self._without_rows(block)
        other = {
            name: block[name].cat.set_categories(values)
            for name, values in self.categories.items()
            if not block[name].cat.categories.identical(values)
        }
        if other:
            block = block.copy(deep=False)
        for name, column in other.items():
            block[name] = column
        return block

    def _without_rows(self, block: Any) -> Any:
        """Return a block with the categories, and with numbers in place of objects."""
        if not (hasattr(block, "iloc") and block.ndim == 2):
            return _as_numbers(block)
        block = block.copy(deep=False)
        for name in block.columns:
            if name in self.categories:
                column = block[name].astype("category").cat
                block[name] = column.set_categories(self.categories[name])
            else:
                block[name] = _as_numbers(block[name])
        return block


def _as_numbers(empty: Any) -> Any:
    """Return an array or column without rows as floats if its values are objects or categories."""
    is_object = getattr(getattr(empty, "dtype", None), "kind", None) == "O"
    return empty.astype(object).astype(float) if is_object else empty


def _merge_categories(column: Hashable, several: Iterable[Any]) -> Any:
    """Merge indexes of categories; those without any may have another dtype."""
    first, *others = [values for values in several if len(values)] or several
    merged = first.append(others)
    if merged.inferred_type.startswith("mixed"):
        kinds = sorted({type(value).__name__ for value in merged})
        raise InvalidArgumentError(
            f"the categories of column {column!r} are of several kinds ({', '.join(kinds)}); "
            "convert them to one, as by .cat.rename_categories(str)"
        )
    return merged.unique()


def columns_of(rows: LocalRows) -> dict[str, Columns]:
    """Check all blocks at a location, and return the columns of each collection."""
    found: dict[str, Columns] = {}
    for name, blocks in rows.parts.items():
        for position, block in zip(rows.positions, blocks, strict=True):
            refuse_masked(block, f"block {position} of {name}")
            columns = Columns.of(block)
            if name == QUERY and columns.width != 1:
                raise InvalidArgumentError(f"{QUERY} must be one column, got {columns.width}")
            found[name] = found[name].merged(columns, name) if name in found else columns
    return found


def merge_columns(several: Iterable[Mapping[str, Columns]]) -> dict[str, Columns]:
    """Merge the columns of each collection that :func:`columns_of` found at several locations."""
    first, *others = several
    merged = dict(first)
    for other in others:
        merged = {name: columns.merged(other[name], name) for name, columns in merged.items()}
    return merged


def queries_of(rows: LocalRows) -> npt.NDArray[Any]:
    """Return the different queries at a location, sorted; the body of a task."""
    return np.unique(rows._queries())
