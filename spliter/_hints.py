"""Hints for names that users of Dask look for, and that a Split or a partition does not have.

The class of the error stays Python's own: ``AttributeError`` and ``TypeError``, so that ``hasattr``
and libraries that probe objects work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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

    Parameters
    ----------
    owner : Split or Partition
        Need not be complete: copying and unpickling look up attributes before there are any.
    name : str
        The attribute. Private names and protocols get no hint.

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
    """Raise if a function was called with keywords that it does not have.

    Raises
    ------
    TypeError
        With a hint for those of Dask's functions.

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
