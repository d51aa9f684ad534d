"""Read points from files.

``.npy`` and ``.zarr`` are read by rows, Parquet by row groups. CSV is refused: its rows cannot be
located without reading all before them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spliter_experiments.compare.data.columns import Columns, Wanted, choose_columns
from spliter_experiments.compare.data.sources import Floats, Points
from spliter_experiments.harness.errors import InputError, TextColumnError

NUMERIC_KINDS = "biuf"


def open_source(source: str, wanted: Wanted) -> Points:
    """Open a file by its suffix."""
    path = Path(source).resolve()
    if not path.exists():
        raise InputError(f"{source}: there is no such file")
    suffix = path.suffix.lower()
    if path.is_dir() and suffix not in _OPENERS:
        suffix = ".parquet"
    opener = _OPENERS.get(suffix)
    if opener is None:
        raise InputError(
            f"{source}: do not know how to read {path.suffix or 'a file without a suffix'}; "
            f"--input takes {', '.join(_OPENERS)}, or a folder of Parquet files; save other tables "
            "by pandas.DataFrame.to_parquet"
        )
    if not (path.is_file() or path.is_dir()):
        raise InputError(f"{source} is a pipe or a device, which can be read only once; copy it")
    return opener(path, wanted)


@dataclass(frozen=True)
class ArrayFilePoints:
    """A two-dimensional array in a ``.npy`` file or a Zarr store; a vector is one column."""

    path: Path
    origin: str
    rows: int
    columns: Columns

    @classmethod
    def open(cls, path: Path, wanted: Wanted) -> ArrayFilePoints:
        """Read shape and dtype, but no rows."""
        array = open_array(path)
        if array.ndim not in (1, 2):
            raise InputError(
                f"{path} holds an array of shape {array.shape}; points are rows of a table"
            )
        if array.dtype.kind not in NUMERIC_KINDS:
            raise InputError(f"{path} holds values of type {array.dtype}, not numbers")
        width = 1 if array.ndim == 1 else array.shape[1]
        names = tuple(map(str, range(width)))
        chosen = choose_columns(names, [True] * width, wanted, str(path))
        return cls(path, path.name, array.shape[0], chosen)

    def read(self, start: int, stop: int) -> Floats:
        """Copy rows into memory, so that a block does not refer to the mapped file."""
        rows = open_array(self.path)[start:stop]
        if rows.ndim == 1:
            rows = rows[:, np.newaxis]
        if self.columns.positions != tuple(range(rows.shape[1])):
            rows = rows[:, list(self.columns.positions)]
        return np.array(rows, dtype=np.float64, order="C")


def open_array(path: Path) -> Any:
    """Open an array file without reading its values."""
    if path.suffix.lower() == ".npy":
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # NumPy raises many types for a damaged header
            raise InputError(f"{path} cannot be read as a .npy file: {error}") from error
        if not isinstance(found, np.ndarray):
            found.close()
            raise InputError(f"{path} is an archive of arrays (.npz); save one of them by np.save")
        return found
    import zarr

    try:
        return zarr.open_array(path, mode="r")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} cannot be read as one Zarr array: {error}") from error


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet input."""

    path: Path
    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class ParquetPoints:
    """Columns of a Parquet file, or of all Parquet files in a folder, sorted by name."""

    path: Path
    groups: tuple[RowGroup, ...]
    columns: Columns

    @classmethod
    def open(cls, path: Path, wanted: Wanted) -> ParquetPoints:
        """Read the schema and the row groups' sizes, but no rows."""
        import pyarrow as pa
        from pyarrow import parquet

        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path} holds no .parquet file")
        try:
            metadata = [parquet.read_metadata(file) for file in files]
            schemas = [parquet.read_schema(file) for file in files]
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}") from error
        schema = schemas[0]
        for file, other in zip(files, schemas, strict=True):
            if sorted(other.names) != sorted(schema.names):
                raise InputError(
                    f"the files in {path} do not have the same columns: {files[0].name} has "
                    f"{', '.join(schema.names)}; {file.name} has {', '.join(other.names)}"
                )
        numeric = [
            all(_is_numeric(other.field(name).type) for other in schemas) for name in schema.names
        ]
        groups: list[RowGroup] = []
        start = 0
        for file, about in zip(files, metadata, strict=True):
            for number in range(about.num_row_groups):
                stop = start + about.row_group(number).num_rows
                groups.append(RowGroup(file, number, start, stop))
                start = stop
        return cls(path, tuple(groups), choose_columns(schema.names, numeric, wanted, str(path)))

    @property
    def origin(self) -> str:
        return self.path.name

    @property
    def rows(self) -> int:
        return self.groups[-1].stop if self.groups else 0

    def read(self, start: int, stop: int) -> Floats:
        """Decode the row groups that contain these rows; nulls become NaN."""
        pieces = [
            read_row_group(group, self.columns.names)[
                max(start - group.start, 0) : stop - group.start
            ]
            for group in self.groups
            if group.start < stop and start < group.stop
        ]
        return np.concatenate(pieces) if pieces else np.empty((0, len(self.columns)))


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


@functools.lru_cache(maxsize=2)
def read_row_group(group: RowGroup, names: tuple[str, ...]) -> Floats:
    """Decode a row group; cached, because the next block usually starts in the same one."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(group.path) as file:
        table = file.read_row_group(group.number, columns=list(names))
    columns = [table.column(name).cast(pa.float64()).to_numpy() for name in names]
    return np.stack(columns, axis=1)


def open_labels(source: str, name: str) -> Points:
    try:
        return open_source(source, Wanted(name))
    except TextColumnError as error:
        raise InputError(f"{error}; save labels as numbers, by pandas.factorize") from error


_OPENERS: dict[str, Callable[[Path, Wanted], Points]] = {
    ".npy": ArrayFilePoints.open,
    ".zarr": ArrayFilePoints.open,
    ".parquet": ParquetPoints.open,
}
