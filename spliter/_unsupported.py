"""Error messages for values that are not blocked collections, with advice on making one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final

from spliter._errors import InvalidArgumentError, UnsupportedCollectionError

READERS: Final = {
    ".csv": "dask.dataframe.read_csv({0}).persist()",
    ".npy": "numpy.load({0}, mmap_mode='r')",
    ".parquet": "dask.dataframe.read_parquet({0}).persist()",
    ".zarr": "zarr.open_array({0}, mode='r')",
}
"""Code that opens a file as a collection, by file suffix."""


def describe_type(value: Any) -> str:
    """Return the name of a value's type; for a list, also that of its first element.

    Returns
    -------
    str
        With the module, unless it is ``builtins``.

    Examples
    --------
    >>> describe_type([1.5]), describe_type(())
    ('a list of float', 'an empty tuple')
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(value, list | tuple):
        return f"a {name} of {describe_type(value[0])}" if value else f"an empty {name}"
    return name


def is_in_memory(value: Any) -> bool:
    """Return whether a value is a single NumPy, pandas or SciPy object in memory.

    Parameters
    ----------
    value : object
        Anything. Memory maps do not count.
    """
    packages = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    return type(value).__name__ != "memmap" and not packages.isdisjoint(
        {"numpy", "pandas", "scipy"}
    )


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame or Series of pandas."""
    return hasattr(value, "iloc") and is_in_memory(value)


def checked(block: Any) -> Any:
    """Return a block, or a tuple of aligned ones; refuse iterators.

    Raises
    ------
    InvalidArgumentError
        If it is an iterator: the next pass over it would find nothing.

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


def explain_not_a_collection(value: Any, backends: Sequence[str]) -> str:
    """Return the error message for a value that no backend can split.

    Parameters
    ----------
    value : object
        The argument of ``split``.
    backends : sequence of str
        Names of the backends that were tried.
    """
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

    Parameters
    ----------
    recognises : callable
        ``recognises`` of the collection's locator; values that it accepts are not refused.
    collection : object
        The collection being split.
    aligned : sequence of object
        The other positional arguments.

    Raises
    ------
    InvalidArgumentError
        If one is an option of ``split`` passed without its keyword.
    UnsupportedCollectionError
        If one is a single array or table in memory.
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
