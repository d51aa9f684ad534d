"""Blocks of one collection that differ in kind, dtype, width or columns, made where they lie."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from spliter.pipeline import Reduction, Rows, splittable

NBLOCKS, ROWS = 4, 6


def memory_map(block: Any) -> Any:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, block.dtype, "w+", shape=block.shape)
    mapped[:] = block
    return mapped


def read_only(block: Any) -> Any:
    block.flags.writeable = False
    return block


class Named(np.ndarray):
    """A subclass of arrays."""


@dataclass(frozen=True)
class Difference:
    """How a block is changed, and the pattern of a refusal; without one, results are right."""

    change: Callable[[Any], Any]
    refusal: str = ""


def relabelled(block: Any) -> Any:
    return block.rename(columns={"a": "z"})


ARRAYS = {
    "alike": Difference(lambda block: block),
    "memory map": Difference(memory_map),
    "view of memory": Difference(lambda block: np.frombuffer(block.tobytes()).reshape(block.shape)),
    "read-only": Difference(read_only),
    "fortran": Difference(np.asfortranarray),
    "strided": Difference(lambda block: np.repeat(block, 2, axis=0)[::2]),
    "backwards": Difference(lambda block: block[::-1].copy()[::-1]),
    "empty": Difference(lambda block: block[:0]),
    "masked": Difference(lambda block: np.ma.masked_greater(block, 5), "mask"),
    "masked nowhere": Difference(np.ma.asarray, "mask"),
    "sparse": Difference(scipy.sparse.csr_array, "csr|sparse"),
    "matrix": Difference(np.matrix, "matrix"),
    "subclass": Difference(lambda block: block.view(Named), "Named"),
    "shorter floats": Difference(lambda block: block.astype("f4"), "float32|f4"),
    "integers": Difference(lambda block: block.astype("i8"), "int64|i8"),
    "byte order": Difference(lambda block: block.astype(">f8"), ">f8|byte order"),
    "objects": Difference(lambda block: block.astype(object), "object"),
    "texts": Difference(lambda block: block.astype("U9"), "<U9|str"),
    "wider": Difference(lambda block: np.hstack([block, block[:, :1]]), r"\(4,\)|, 4\)|width"),
    "one axis": Difference(lambda block: block[:, 0], r"\(\)|\(6,\)|shape|width"),
    "three axes": Difference(lambda block: block[:, :, None], r"\(3, 1\)|3, 1\)"),
    "frame": Difference(pd.DataFrame, "DataFrame"),
    "list": Difference(lambda block: block.tolist(), "list"),
}
FRAMES = {
    "alike": Difference(lambda block: block),
    "columns in another order": Difference(lambda block: block[["c", "a", "b"]]),
    "empty": Difference(lambda block: block[:0]),
    "empty, in another order": Difference(lambda block: block[["b", "c", "a"]][:0]),
    "other labels of rows": Difference(lambda block: block.set_axis(block.index * 3 + 1)),
    "other columns": Difference(relabelled, "'z'"),
    "more columns": Difference(lambda block: block.assign(z=1.0), "'z'"),
    "fewer columns": Difference(lambda block: block[["a", "b"]], "'c'"),
    "columns twice": Difference(lambda block: block[["a", "b", "c", "a"]], "'a'"),
    "dtype of a column": Difference(lambda block: block.astype({"c": "f8"}), "float64|'c'"),
    "texts": Difference(lambda block: block.astype({"a": str}), "str|object|'a'"),
    "array": Difference(lambda block: block.to_numpy(), "ndarray"),
    "series": Difference(lambda block: block["a"], "Series"),
}
KINDS = {"array": ARRAYS, "frame": FRAMES}
CASES = [(kind, name) for kind, differences in KINDS.items() for name in differences]


def make(kind: str, name: str, changed: int, number: int) -> Any:
    """Return one block; all but one are alike."""
    values = np.arange(3.0 * ROWS).reshape(ROWS, 3) % 7 + 10 * number
    plain: Any = values
    if kind == "frame":
        plain = pd.DataFrame(values, columns=["a", "b", "c"]).astype({"c": "i8"})
    return KINDS[kind][name].change(plain) if number == changed else plain


def whole(kind: str, name: str, changed: int) -> Any:
    """Return all blocks in memory, concatenated."""
    blocks = [make(kind, name, changed, number) for number in range(NBLOCKS)]
    return pd.concat(blocks) if kind == "frame" else np.concatenate([*map(np.asarray, blocks)])


def of_arrays(x: Any) -> Any:
    centred = x - x.mean(axis=0)
    few = x[x[:, 0] > 12]
    return centred * 2, x.std(axis=0), few + 1, few.max(axis=0), x.min(), (x > 3).sum(), x[:, 1]


def by_position(frame: Any) -> Any:
    return frame.to_numpy(float)


add = Reduction(merge=lambda one, other: one + other)
positions = splittable(by_position, frame=Rows(), returns=Rows())
score = splittable(lambda frame: frame["a"] * 2 + frame["c"], frame=Rows(), returns=Rows())
scaled = splittable(lambda frame: frame * 2, frame=Rows(), returns=Rows())
identity = splittable(lambda block: block, block=Rows(), returns=Rows())
total = splittable(lambda frame: frame.sum(), frame=Rows(), returns=add)


def of_frames(frame: Any) -> Any:
    return positions(frame) + 1, score(frame), scaled(scaled(frame)), total(frame)


BODIES = {"array": of_arrays, "frame": of_frames}
