"""Differences of blocks, and what comes of a feature for a collection whose blocks differ.

A collection has four blocks, two of which are changed: other columns, other byte order, and so on.
A feature (:mod:`tests.features_of_blocks`) either returns what NumPy, pandas, scikit-learn and
XGBoost return for the whole data in memory, columns matched by name ("right"), or raises a typed
error that names the difference ("refused").
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spliter import SplIterError, gather, split

Argument: TypeAlias = Literal["points", "labels", "weights"]
Kind: TypeAlias = Literal["array", "frame", "categories"]
"""Arrays, frames of numbers, or frames whose last column has categories."""

ROWS = 7
NBLOCKS = 4
CHANGED: list[list[int]] = [[1, 2], [0, 3]]
"""Blocks that are changed: the last and the first of a location, in turn."""


@dataclass(frozen=True)
class Difference:
    """How blocks of one kind are changed, and the patterns that a refusal has."""

    kind: Kind
    change: Callable[[Any], Any]
    named: tuple[str, ...]


def with_mask(block: Any) -> Any:
    return np.ma.masked_array(block, np.isin(np.arange(block.size), (3, 4)).reshape(block.shape))


def memory_map(block: Any) -> Any:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, block.dtype, "w+", shape=block.shape)
    mapped[:] = block
    return mapped


def other_categories(block: Any) -> Any:
    """Return the same values, each with another code."""
    if block.ndim == 2:
        return block.assign(b=other_categories(block["b"]))
    return block.cat.set_categories(["new", *block.cat.categories[::-1]])


def with_texts(block: Any) -> Any:
    return block.assign(b=block["b"].map("t{}".format)) if block.ndim == 2 else block.astype(str)


DIFFERENCES: Mapping[str, Difference] = {
    "order of columns": Difference(
        "frame", lambda block: block[block.columns[::-1]], ("'[ap]', '[bq]'", "'[bq]', '[ap]'")
    ),
    "other columns": Difference(
        "frame", lambda block: block.rename(columns={block.columns[1]: "z"}), ("'[bq]'", "'z'")
    ),
    "masked": Difference("array", with_mask, ("mask",)),
    "big-endian": Difference("array", lambda block: block.astype(">f8"), (">f8|byte order",)),
    "memory map": Difference("array", memory_map, ("memmap|memory map",)),
    "empty block": Difference("array", lambda block: block[:0], ("no rows|empty",)),
    "sparse": Difference("array", sp.csr_array, ("sparse|csr",)),
    "categories": Difference("categories", other_categories, ("categor|convert|'str'",)),
    "strings": Difference("frame", with_texts, (r"\bstr|\bobject|\btext|convert",)),
    "iterator": Difference("array", lambda block: (row for row in block), ("generator",)),
}


def plain_block(argument: Argument, kind: Kind, number: int) -> Any:
    """Return a block that is not changed."""
    random = np.random.default_rng(number)
    label = random.permutation(ROWS) % 2
    points = np.array([[1, 5], [5, 2]])[label] + random.uniform(-0.9, 0.9, (ROWS, 2))
    names = pd.Categorical(np.array(["no", "yes"])[label], ["no", "yes"])
    if argument == "weights":
        return 1 + points[:, 0] / 10
    if argument == "labels":
        frame = pd.DataFrame({"p": points[:, 0] ** 2, "q": -points[:, 1]})
        return {"array": label.astype(float), "frame": frame, "categories": pd.Series(names)}[kind]
    frame = pd.DataFrame(points, columns=["a", "b"])
    return {"array": points, "frame": frame, "categories": frame.assign(b=names)}[kind]


@dataclass(frozen=True)
class Blocks:
    """The blocks of a case: of one argument, some are changed. Can be sent to workers."""

    of: Argument
    name: str
    changed: list[int]

    @property
    def kind(self) -> Kind:
        # Labels and weights that are texts are those of one output.
        is_text = self.name == "strings" and self.of != "points"
        return "array" if is_text else DIFFERENCES[self.name].kind

    def make(self, argument: Argument, number: int) -> Any:
        block = plain_block(argument, self.kind if argument == self.of else "array", number)
        # Aligned blocks are empty together.
        differs = argument == self.of or self.name == "empty block"
        return DIFFERENCES[self.name].change(block) if differs and number in self.changed else block


Deliver: TypeAlias = Callable[[Blocks, Argument], Any]
"""Returns the blocks of an argument as a collection."""


def in_process(blocks: Blocks, argument: Argument) -> Any:
    """Return blocks as a collection of the local engine."""
    return [blocks.make(argument, number) for number in range(NBLOCKS)]


@dataclass(frozen=True)
class Case:
    """Collections of points, labels and weights; of one of them blocks differ."""

    blocks: Blocks
    deliver: Deliver

    @property
    def points(self) -> Any:
        return self.deliver(self.blocks, "points")

    @property
    def labels(self) -> Any:
        return self.deliver(self.blocks, "labels")

    @property
    def weights(self) -> Any:
        return self.deliver(self.blocks, "weights")

    @property
    def columns(self) -> list[Any]:
        return [1] if self.blocks.kind == "array" else ["b"]

    def parts(self, *aligned: Any, **options: Any) -> Any:
        return split(self.points, *aligned, partitions_per_location=1, **options)

    def each(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return the blocks that tasks on the partitions return, concatenated."""
        made = gather(self.parts(**options).map(fn, *args))
        return concatenated(block for blocks in made for block in blocks)


@dataclass(frozen=True)
class Whole:
    """The same data in memory; as numbers for libraries that compute with them."""

    x: Any
    y: Any
    w: Any

    @classmethod
    def of(cls, blocks: Blocks) -> Whole:
        if blocks.name == "iterator":
            blocks = Blocks(blocks.of, blocks.name, [])
        arguments: list[Argument] = ["points", "labels", "weights"]
        return cls(*(concatenated(in_process(blocks, argument)) for argument in arguments))

    @property
    def points(self) -> Any:
        return numbers(self.x)

    @property
    def labels(self) -> Any:
        is_text = hasattr(self.y, "columns") or self.y.dtype.kind in "OU"
        return self.y if is_text else numbers(self.y)

    @property
    def weights(self) -> Any:
        return numbers(self.w)


def concatenated(blocks: Iterable[Any]) -> Any:
    """Return blocks concatenated by NumPy and pandas, without their kind of storage."""
    kept = list(blocks)
    if isinstance(kept[0], tuple):
        return [concatenated(member) for member in zip(*kept, strict=True)]
    plain = [plainly(block) for block in kept]
    if hasattr(plain[0], "columns"):
        # No result of concatenating such blocks is right.
        every = list(dict.fromkeys(label for block in plain for label in block))
        plain = [block.reindex(columns=every, fill_value="absent") for block in plain]
    if hasattr(plain[0], "iloc"):
        return pd.concat(plain, ignore_index=True)
    is_masked = any(isinstance(block, np.ma.MaskedArray) for block in plain)
    join: Any = np.ma.concatenate if is_masked else np.concatenate
    return join(plain)


def plainly(value: Any) -> Any:
    if hasattr(value, "toarray"):
        return value.toarray()
    if hasattr(value, "iloc"):
        codes = [name for name in value if hasattr(value[name], "cat")] if value.ndim == 2 else []
        return value.astype(object if value.ndim == 1 else dict.fromkeys(codes, object))
    return value


def numbers(whole: Any) -> Any:
    """Return data as numbers that other libraries compute with; an error if it has none."""
    if np.ma.is_masked(whole) or not np.isfinite(found := np.asarray(whole, float)).all():
        raise ValueError("masked or missing numbers")
    return found


@dataclass(frozen=True)
class Feature:
    """A feature for a collection, and the same by other libraries for the whole data."""

    run: Callable[[Case], Any]
    plain: Callable[[Whole], Any]
    of: Argument = "points"
    without: tuple[str, ...] = ()
    """Differences that mean nothing for it."""


def outcome(feature: Feature, name: str, deliver: Deliver) -> str:
    """Return "right" or "refused", or what else comes of a feature for blocks that differ."""
    if name in feature.without:
        return "-"
    found = [_outcome(feature, Blocks(feature.of, name, changed), deliver) for changed in CHANGED]
    return " ".join((found[0] if len(set(found)) == 1 else " but ".join(found)).split())


def _outcome(feature: Feature, blocks: Blocks, deliver: Deliver) -> str:
    try:
        found = feature.run(Case(blocks, deliver))
    except SplIterError as error:
        named = DIFFERENCES[blocks.name].named
        missing = [
            pattern for pattern in named if not re.search(pattern, str(error), re.IGNORECASE)
        ]
        return f"refused without {missing}: {error}" if missing else "refused"
    except Exception as error:  # noqa: BLE001 -- reported
        return f"{type(error).__name__}: {error}"
    try:
        expected = feature.plain(Whole.of(blocks))
    except Exception as error:  # noqa: BLE001 -- such data has to be refused
        return f"not refused ({error}): {found}"
    return "right" if same(found, expected) else f"wrong: {found} in place of {expected}"


def same(found: Any, expected: Any) -> bool:
    """Return whether two results have the same values, columns by name."""
    if isinstance(expected, list | tuple):
        return all(same(*pair) for pair in zip(found, expected, strict=True))
    if isinstance(expected, pd.DataFrame):
        found = plainly(found)
        return set(found) == set(expected) and all(same(found[it], expected[it]) for it in expected)
    found, expected = (np.ma.asarray(plainly(it)) for it in (found, expected))
    mask = np.ma.getmaskarray(expected)
    if found.shape != expected.shape or not np.array_equal(np.ma.getmaskarray(found), mask):
        return False
    pairs = zip(found[~mask].ravel(), expected[~mask].ravel(), strict=True)
    return all(
        one == other
        if isinstance(one, str) or isinstance(other, str)
        else bool(np.isclose(one, other, 1e-4, equal_nan=True))
        for one, other in pairs
    )
