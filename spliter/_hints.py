"""Errors for what users try first: names and options of Dask, files, single arrays in memory.

For names that a Split or a partition does not have, the class of the error stays Python's own:
``AttributeError`` and ``TypeError``, so that ``hasattr`` and libraries that probe objects work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, Final

from spliter._errors import InvalidArgumentError, UnsupportedCollectionError
from spliter._format import describe_type

FN: Final = "a function of a partition: parts.map(fn), or [fn(part) for part in parts] of a @task"
"""How a task is started on each partition."""

OF_SPLIT: Final = {
    "compute": f"a Split has nothing to compute; start {FN}, and gather(futures)",
    "persist": "its blocks are in memory; persist what tasks return, by parts.map_blocks(fn)",
    "map_partitions": f"call {FN}; or parts.map_blocks(fn) with a function of a block",
    "npartitions": "call len(parts); parts.nblocks is the number of blocks",
}
"""Attributes of Dask's collections, with what takes their place."""

OF_BLOCKS: Final = f"to use an attribute of the blocks, start {FN}"
OF_PARTITION: Final = (
    "to use an attribute of the blocks, loop over them in a task: for block in partition"
)

KEYWORDS: Final = {
    "npartitions": "pass partitions_per_location, the number of partitions at each location",
    "chunks": "blocks stay as they are; rechunk the collection before",
    "blocksize": "blocks stay as they are; read or repartition the collection with it",
}
"""Keywords of Dask's functions, with what takes their place in ``split``."""

COLUMNS: Final = (
    "select columns of the collection before it is split, of each block in a task, or by "
    "partition.materialize(columns=...)"
)

ITEMS: Final = f"loop over its blocks in a task: for block in partition; {COLUMNS}"
"""What takes the place of indexing a partition."""


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that a Split or a partition does not have.

    The owner need not be complete: copying and unpickling look up attributes before there are any.
    Private names and protocols get no hint.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> parts = split([np.zeros(3)])
    >>> hasattr(parts, "npartitions")
    False
    >>> print(missing_attribute(parts, "npartitions"))
    'Split' object has no attribute 'npartitions'; call len(parts); parts.nblocks is the number ...
    >>> print(missing_attribute(parts, "_name"))
    'Split' object has no attribute '_name'
    """
    kind = type(owner).__name__
    text = f"{kind!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        hint = OF_PARTITION if kind == "Partition" else OF_SPLIT.get(name, OF_BLOCKS)
        text = f"{text}; {hint}"
    return AttributeError(text, name=name, obj=owner)


def check_no_keywords(function: str, keywords: Iterable[str]) -> None:
    """Raise `TypeError` for keywords that a function does not have, with a hint for Dask's.

    Examples
    --------
    >>> check_no_keywords("split", ["npartitions"])
    Traceback (most recent call last):
        ...
    TypeError: split() got an unexpected keyword argument 'npartitions'; pass ...
    """
    for name in keywords:
        hint = f"; {KEYWORDS[name]}" if name in KEYWORDS else ""
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


READERS: Final = {
    ".csv": "dask.dataframe.read_csv({0}).persist()",
    ".npy": "numpy.load({0}, mmap_mode='r')",
    ".parquet": "dask.dataframe.read_parquet({0}).persist()",
    ".zarr": "zarr.open_array({0}, mode='r')",
}
"""Code that opens a file as a collection, by file suffix."""


def is_in_memory(value: Any) -> bool:
    """Return whether a value is a NumPy, pandas or SciPy object in memory; memory maps are not."""
    packages = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return type(value).__name__ != "memmap" and not packages.isdisjoint(
        {"numpy", "pandas", "scipy"}
    )


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame or Series of pandas."""
    return hasattr(value, "iloc") and is_in_memory(value)


def explain_not_a_collection(value: Any, backends: Sequence[str]) -> str:
    """Return the error for a value that none of these backends can split."""
    name = describe_type(value)
    if isinstance(value, str | os.PathLike):
        return _explain_file(os.fspath(value))
    first = value[0] if isinstance(value, list | tuple) and value else value
    if describe_type(first) in {"spliter._split.Split", "spliter._partition.Partition"}:
        return (
            f"{first!r} has been split already; start a task on each partition, or split the "
            "collection again"
        )
    if is_frame(value):
        return (
            f"{name} is one object in memory, not a collection of blocks; pass a list of parts, or "
            "dask.dataframe.from_pandas(df, npartitions=8).persist()"
        )
    if is_in_memory(first):
        return (
            f"{name} is one object in memory, not a collection of blocks; pass a list of parts, "
            "such as numpy.array_split(x, 8), or a Dask or Zarr array"
        )
    if name == "zarr.core.group.Group":
        return "a Zarr group is not one collection; pass one of its arrays: group['name']"
    if name.startswith("zarr.") and getattr(value, "shape", None) == ():
        return "this Zarr array has no axis, so it has no rows; pass one of at least one axis"
    return (
        f"{name} is not a collection supported by a backend ({', '.join(backends)}); pass a "
        "Dask collection, a list of futures or of NumPy arrays, a NumPy memory map, a Zarr array, "
        "or a list of persistent dataClay objects"
    )


def _explain_file(path: str | bytes) -> str:
    reader = READERS.get(PurePath(os.fsdecode(path)).suffix, "...")
    return (
        f"{path!r} is a string, not a collection; to split a file, open it first: "
        f"x = {reader.format(repr(path))}"
    )


def check_aligned_arguments(
    recognises: Callable[[Any], bool], collection: Any, aligned: Sequence[Any]
) -> None:
    """Reject positional arguments of ``split`` that cannot be aligned with a collection.

    Options without their keyword, and single arrays or tables in memory; none that the collection's
    locator `recognises`.
    """
    for number, value in enumerate(aligned, start=1):
        if recognises(value):
            continue
        if value is None or isinstance(value, bool | int | float | str):
            raise InvalidArgumentError(
                f"aligned collection {number} is {value!r}; {_keyword_for(value)}"
            )
        advice = _cut_like(collection)
        if advice and is_in_memory(value):
            raise UnsupportedCollectionError(
                f"aligned collection {number} is one {describe_type(value)} in memory, without "
                f"blocks; {advice}"
            )


def _keyword_for(value: Any) -> str:
    """Return how to pass an option that was passed without its keyword."""
    if value is None:
        return "leave it out"
    if isinstance(value, bool) or value == "auto":
        return f"pass options by keyword: split(x, materialize={value!r})"
    if isinstance(value, str):
        return f"pass options by keyword: split(x, backend={value!r})"
    return f"pass options by keyword: split(x, partitions_per_location={value!r})"


def _cut_like(collection: Any) -> str:
    """Return how to cut an in-memory object into the blocks of a collection, if known."""
    module = type(collection).__module__
    if module.startswith("dask.array"):
        return (
            "rechunk it like the first collection: "
            "y = dask.array.from_array(y, chunks={0: x.chunks[0]}).persist()"
        )
    if module.startswith("dask"):
        return "convert it to a Dask collection with the same partitions, and persist that"
    if isinstance(collection, list | tuple) and collection and is_in_memory(collection[0]):
        return "pass a list of parts, each with as many rows as its block"
    return ""
