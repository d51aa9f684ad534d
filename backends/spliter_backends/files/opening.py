"""Open files as collections: find them, and read their metadata."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from spliter import InvalidArgumentError, PackageMissingError
from spliter.backend import check_count

if TYPE_CHECKING:
    from spliter_backends.files.parquet import ParquetFiles

BLOCK_NBYTES = 32 * 2**20
"""Bytes that small row groups are merged to, as for memory maps: large enough to read at the speed
of a disk, small enough that every thread can hold some."""

SUFFIXES = {".parquet", ".pq"}


def open_blocks(
    path: str | os.PathLike[str] | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    block_nbytes: int = BLOCK_NBYTES,
    as_arrow: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> ParquetFiles:
    """Open Parquet files as a collection, for :func:`spliter.split`; only footers are read.

    Parameters
    ----------
    path : str, path or sequence of str
        A file, a folder, a pattern (``"s3://bucket/trips/*.parquet"``), or a list of files on one
        file system, with any protocol of fsspec. Files of a folder or pattern are sorted by name.
    columns : sequence of str, optional
        Columns to read; by default all.
    filters : pyarrow.dataset.Expression or list, optional
        Rows to read, as for ``pyarrow.parquet.read_table``. The rows of a block are then unknown
        until it is read: call ``parts.resolve_item_indexes()`` to number them.
    block_nbytes : int
        Neighbouring row groups are merged to blocks of at most so many bytes, uncompressed. A
        larger row group is one block.
    as_arrow : bool
        Whether blocks are tables of pyarrow instead of pandas DataFrames.
    storage_options : dict, optional
        Options of the file system, such as credentials. They are pickled with the collection.

    Returns
    -------
    ParquetFiles
        Its DataFrames have stored index columns as index; without, rows count from 0 in each block.

    Raises
    ------
    InvalidArgumentError
        If there are no files, they are not all Parquet files with the same columns, or `columns`
        or `filters` do not fit them. Nested columns and partitioned folders (``year=2026/``) are
        refused.
    PackageMissingError
        If pyarrow or fsspec is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from spliter import gather, split
    >>> folder = tempfile.TemporaryDirectory()
    >>> for day in range(3):
    ...     table = pd.DataFrame({"zone": [day, 7], "fare": [1.5, 2.5]})
    ...     table.to_parquet(f"{folder.name}/{day}.parquet")
    >>> trips = open_blocks(f"{folder.name}/*.parquet", columns=["fare"], block_nbytes=1)
    >>> with split(trips, partitions_per_location=1) as parts:
    ...     sums = gather(parts.map(lambda part: sum(block["fare"].sum() for block in part)))
    >>> float(sum(sums))
    12.0
    >>> folder.cleanup()
    """
    try:
        from spliter_backends.files.parquet import open_parquet
    except ImportError as error:
        raise PackageMissingError(
            f'files need a package that is not installed ({error}): pip install "pyspliter[files]"'
        ) from error
    check_count("block_nbytes", block_nbytes)
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is one string; pass a list: columns=[{columns!r}]")
    filesystem, paths = find_files(path, storage_options or {})
    return open_parquet(
        filesystem,
        paths,
        columns=columns,
        filters=filters,
        block_nbytes=block_nbytes,
        as_arrow=as_arrow,
    )


def find_files(
    path: str | os.PathLike[str] | Sequence[str], options: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Return the file system of a path, and the paths of the files on it."""
    from fsspec.core import url_to_fs

    given = [os.fspath(path)] if isinstance(path, str | os.PathLike) else list(path)
    opened = [url_to_fs(one, **options) for one in given]
    if len({filesystem for filesystem, _ in opened}) > 1:
        raise InvalidArgumentError("the paths are on several file systems; open each apart")
    paths = [file for filesystem, one in opened for file in _expand(filesystem, one)]
    if not paths:
        shown = ", ".join(map(without_credentials, given)) or "an empty list"
        raise InvalidArgumentError(f"no files match {shown}; check the path and its access rights")
    _check_names(paths)
    return opened[0][0], paths


def _expand(filesystem: Any, path: str) -> list[str]:
    """Return the data files of a pattern or folder, sorted; a file as it is, if it exists."""
    if any(character in path for character in "*?["):
        found = [one for one in filesystem.glob(path) if filesystem.isfile(one)]
    elif filesystem.isdir(path):
        found = filesystem.find(path)
    else:
        return [path] if filesystem.exists(path) else []
    return sorted(one for one in found if not PurePosixPath(one).name.startswith(("_", ".")))


def _check_names(paths: list[str]) -> None:
    """Reject files of other formats, and folders named by the value of a column."""
    suffixes = {PurePosixPath(path).suffix for path in paths}
    if not suffixes <= SUFFIXES:
        raise InvalidArgumentError(
            f"files with the suffixes {sorted(suffixes)} are not all Parquet files; name those "
            'alone: open_blocks("folder/*.parquet")'
        )
    folders = {tuple(part for part in PurePosixPath(path).parts if "=" in part) for path in paths}
    if len(folders) > 1:
        raise InvalidArgumentError(
            f"the files lie in partitioned folders such as {'/'.join(max(folders))}, which are not "
            "read as columns; open one folder"
        )


def without_credentials(url: str) -> str:
    """Return a URL without user, password and query, which may hold secrets.

    Examples
    --------
    >>> without_credentials("https://me:secret@host/a.parquet?sig=1")
    'https://host/a.parquet'
    """
    return re.sub(r"//[^/@]*@", "//", url).partition("?")[0] if "://" in url else url
