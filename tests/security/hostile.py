"""Data files whose pickles run code when they are loaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np


class Bomb:
    """Pickles as a call that makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def pickled_npy(folder: Path, mark: Path) -> Path:
    """Write an array of objects, which ``np.save`` pickles."""
    file = folder / "objects.npy"
    np.save(file, np.array([Bomb(mark), 1.0], dtype=object), allow_pickle=True)
    return file


def pickle_named_npy(folder: Path, mark: Path) -> Path:
    """Write a bare pickle, which ``np.load`` would take for one if it were allowed to."""
    file = folder / "bare.npy"
    file.write_bytes(pickle.dumps(Bomb(mark)))
    return file


def pickle_named_parquet(folder: Path, mark: Path) -> Path:
    """Write a pickle where Parquet is expected."""
    file = folder / "frame.parquet"
    file.write_bytes(pickle.dumps(Bomb(mark)))
    return file


ZARR: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [4, 2],
    "chunks": [4, 2],
    "dtype": "<f8",
    "compressor": None,
    "fill_value": 0.0,
    "order": "C",
    "filters": None,
}


def zarr_with(folder: Path, mark: Path, name: str, **changed: Any) -> Path:
    """Write a Zarr array of the second format whose only chunk is a pickle."""
    store = folder / f"{name}.zarr"
    store.mkdir()
    (store / ".zarray").write_text(json.dumps({**ZARR, **changed}), encoding="utf-8")
    (store / "0.0").write_bytes(pickle.dumps(Bomb(mark)))
    return store


def zarr_pickle_filter(folder: Path, mark: Path) -> Path:
    """Have numbers be decoded by the codec that unpickles."""
    return zarr_with(folder, mark, "filter", filters=[{"id": "pickle"}])


def zarr_pickle_compressor(folder: Path, mark: Path) -> Path:
    """Have chunks be decompressed by the codec that unpickles."""
    return zarr_with(folder, mark, "compressor", compressor={"id": "pickle"})


def zarr_objects(folder: Path, mark: Path) -> Path:
    """Write an array of objects."""
    return zarr_with(folder, mark, "objects", dtype="|O", filters=[{"id": "pickle"}])


def zarr_third_format(folder: Path, mark: Path) -> Path:
    """Name the codec that unpickles in the third format."""
    store = folder / "third.zarr"
    chunk = store / "c" / "0" / "0"
    chunk.parent.mkdir(parents=True)
    about = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 2],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [
            {"name": "numcodecs.pickle", "configuration": {}},
            {"name": "bytes", "configuration": {"endian": "little"}},
        ],
        "attributes": {},
    }
    (store / "zarr.json").write_text(json.dumps(about), encoding="utf-8")
    chunk.write_bytes(pickle.dumps(Bomb(mark)))
    return store


FILES = (
    pickled_npy,
    pickle_named_npy,
    pickle_named_parquet,
    zarr_pickle_filter,
    zarr_pickle_compressor,
    zarr_objects,
    zarr_third_format,
)
"""All of them."""
