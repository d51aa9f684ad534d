"""Cut Parquet files into blocks of whole row groups, and read them.

Small row groups next to each other form one block, also across files::

    files       a.parquet        b.parquet   c.parquet
    row groups  0      1   2     0           0
    blocks      0      1-------------------  2
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FSSpecHandler, PyFileSystem

from spliter import BlockGrid, BlockLostError, InvalidArgumentError
from spliter.backend import UNKNOWN
from spliter_backends._shared.stored import StoredCollection

FOOTER_THREADS = 16
"""Threads that read footers: opening waits for the store, not for this process."""


@dataclass(frozen=True)
class StoredFile:
    """A file as it was when the collection was opened; `tag` is its ETag or time of change."""

    path: str
    nbytes: int
    tag: str


@dataclass(frozen=True)
class RowGroups:
    """Row groups of one file, next to each other."""

    file: StoredFile
    numbers: tuple[int, ...]
    rows: int
    nbytes: int


@dataclass(frozen=True, repr=False)
class Selection:
    """What is read of each file: names of columns, and an expression of pyarrow or ``None``."""

    schema: Any
    columns: tuple[str, ...]
    rows: Any
    as_arrow: bool

    def example(self) -> Any:
        """Return a block without rows."""
        return self.block([])

    def block(self, tables: Sequence[Any]) -> Any:
        """Return the block of some tables; a DataFrame, or a table of pyarrow."""
        empty = self.schema.empty_table().select(list(self.columns))
        table = pa.concat_tables([empty, *tables])
        return table if self.as_arrow else table.to_pandas(use_threads=False)


class ParquetFiles(StoredCollection):
    """Parquet files as blocks of whole row groups; returned by ``open_blocks``.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Where the files lie.
    blocks : sequence of tuple of RowGroups
        What each block consists of.
    selection : Selection
        Columns and rows of each block.
    """

    def __init__(
        self, filesystem: Any, blocks: Sequence[tuple[RowGroups, ...]], selection: Selection
    ) -> None:
        self._filesystem = filesystem
        self._blocks = tuple(blocks)
        self._selection = selection
        rows = [sum(group.rows for group in block) for block in blocks]
        if selection.rows is not None:
            rows = [UNKNOWN] * len(rows)
        width = selection.example().shape[1]  # a DataFrame may have columns as its index
        self.grid = BlockGrid((tuple(rows), (width,)))
        self.nbytes = np.array(
            [sum(group.nbytes for group in block) for block in blocks], dtype=np.int64
        )

    def __repr__(self) -> str:
        return f"<ParquetFiles: {len(self._blocks)} blocks, columns {self._selection.columns}>"

    def read(self, position: int) -> Any:
        """Read the row groups of a block; a DataFrame, or a table of pyarrow.

        Raises
        ------
        BlockLostError
            If a file was removed or has changed since it was opened.
        """
        return self._selection.block(
            [self._read(groups, position) for groups in self._blocks[position]]
        )

    def _read(self, groups: RowGroups, position: int) -> Any:
        self._check_unchanged(groups.file, position)
        fragment = ds.ParquetFileFormat().make_fragment(
            groups.file.path,
            filesystem=PyFileSystem(FSSpecHandler(self._filesystem)),
            row_groups=list(groups.numbers),
        )
        return fragment.to_table(
            schema=self._selection.schema,
            columns=list(self._selection.columns),
            filter=self._selection.rows,
            use_threads=False,  # SplIter reads several blocks at once
        )

    def _check_unchanged(self, file: StoredFile, position: int) -> None:
        self._filesystem.invalidate_cache(file.path)
        try:
            unchanged = stored_file(self._filesystem, file.path) == file
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise BlockLostError(
                f"block {position} cannot be read: {file.path} was removed or has changed since "
                "it was opened; call open_blocks again",
                ((position, 0),),
            )


def stored_file(filesystem: Any, path: str) -> StoredFile:
    """Return the state of a file, to notice later whether it has changed."""
    info = filesystem.info(path)
    tags = (info.get(name) for name in ("ETag", "etag", "mtime", "LastModified", "created"))
    return StoredFile(path, int(info["size"]), str(next((tag for tag in tags if tag), "")))


def open_parquet(
    filesystem: Any,
    paths: Sequence[str],
    *,
    columns: Sequence[str] | None,
    filters: Any,
    block_nbytes: int,
    as_arrow: bool,
) -> ParquetFiles:
    """Open Parquet files of the same columns; parameters as for ``open_blocks``."""
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        footers = list(threads.map(lambda path: _read_footer(filesystem, path), paths))
    schema = _without_range(footers[0][1].schema.to_arrow_schema())
    chosen = _checked_columns(schema, columns)
    for file, footer in footers[1:]:
        _check_schema(schema, footer.schema.to_arrow_schema(), paths[0], file.path)
    groups = [group for file, footer in footers for group in _row_groups(file, footer, chosen)]
    selection = Selection(schema, chosen, _expression(schema, filters), as_arrow)
    return ParquetFiles(filesystem, list(merge(groups, block_nbytes)) or [()], selection)


def _read_footer(filesystem: Any, path: str) -> tuple[StoredFile, Any]:
    file = stored_file(filesystem, path)
    try:
        with filesystem.open(path) as opened:
            return file, pq.read_metadata(opened)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"{path} is not a whole Parquet file ({error}); write it again, or leave it out"
        ) from error


def _without_range(schema: Any) -> Any:
    """Return a schema without pandas' range index, which would be that of a whole file."""
    pandas = schema.pandas_metadata
    if not pandas:
        return schema
    pandas["index_columns"] = [name for name in pandas["index_columns"] if isinstance(name, str)]
    return schema.with_metadata({**schema.metadata, b"pandas": json.dumps(pandas).encode()})


def _checked_columns(schema: Any, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns to read."""
    names = tuple(schema.names if columns is None else columns)
    if unknown := [name for name in names if name not in schema.names]:
        raise InvalidArgumentError(f"there are no columns {unknown}; the files have {schema.names}")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"columns {list(names)} repeat a name; name each column once")
    nested = [name for name in names if pa.types.is_nested(schema.field(name).type)]
    if nested:
        raise InvalidArgumentError(
            f"columns {nested} are nested, which is not supported; select others with columns="
        )
    return names


def _check_schema(first: Any, other: Any, first_path: str, path: str) -> None:
    """Reject a file with other columns or types than the first; their order may differ."""
    if dict(zip(first.names, first.types, strict=True)) == dict(
        zip(other.names, other.types, strict=True)
    ) and len(first) == len(other):
        return
    raise InvalidArgumentError(
        f"{path} has other columns than {first_path}; open them apart, or write them again with "
        f"one schema. {path}:\n{other.remove_metadata()}\n{first_path}:\n{first.remove_metadata()}"
    )


def _expression(schema: Any, filters: Any) -> Any:
    """Return filters as an expression, which was tried on a table without rows."""
    if filters is None:
        return None
    try:
        expression = pq.filters_to_expression(filters)
        schema.empty_table().filter(expression)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"filters {filters!r} do not fit the files: {error}; the columns are {schema.names}"
        ) from error
    return expression


def _row_groups(file: StoredFile, footer: Any, columns: tuple[str, ...]) -> Iterator[RowGroups]:
    names = footer.schema.names
    numbers = [names.index(name) for name in columns]
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        nbytes = sum(group.column(number).total_uncompressed_size for number in numbers)
        yield RowGroups(file, (at,), group.num_rows, nbytes)


def merge(groups: Sequence[RowGroups], block_nbytes: int) -> Iterator[tuple[RowGroups, ...]]:
    """Merge neighbouring row groups into blocks of at most `block_nbytes`, or of one row group.

    Examples
    --------
    >>> file = StoredFile("a.parquet", 100, "")
    >>> groups = [RowGroups(file, (at,), 1, nbytes) for at, nbytes in enumerate([9, 3, 4, 5])]
    >>> [[part.numbers for part in block] for block in merge(groups, 8)]
    [[(0,)], [(1, 2)], [(3,)]]
    """
    block: list[RowGroups] = []
    for group in groups:
        if block and sum(part.nbytes for part in block) + group.nbytes > block_nbytes:
            yield tuple(block)
            block = []
        is_next = bool(block) and block[-1].file is group.file
        block.append(_joined(block.pop(), group) if is_next else group)
    if block:
        yield tuple(block)


def _joined(one: RowGroups, other: RowGroups) -> RowGroups:
    return RowGroups(
        one.file, one.numbers + other.numbers, one.rows + other.rows, one.nbytes + other.nbytes
    )
