"""Every way to use a Split, and what it may leave behind in this process."""

from __future__ import annotations

import gc
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spliter import Partition, gather, reduce, split

LASTING = (
    "Executor",
    "OwnedObject",
    "RemotePartition",
    "Session",
    "Peer",
    "PartitionHandle",
    "SharedCopies",
    "_planning.passes.Pass",
)
"""Ends of the names of classes of which objects may stay: one executor and what it has, and the
measurements of the last 64 Splits (their number has a test of its own)."""


def total(partition: Partition) -> int:
    """Sum of all items; runs at a location, as the next one does."""
    return sum(int(block.sum()) for block in partition)


def total_of_first(partition: Partition) -> int:
    """Sum of all items of the first of two collections."""
    return sum(int(first.sum()) for first, _ in partition)


def one_pass(collection: Any) -> int:
    """Split, iterate, close."""
    with split(collection) as parts:
        return int(sum(gather(parts.map(total))))


def never_used(collection: Any) -> int:
    """Split and drop, then ask another Split."""
    split(collection)
    return one_pass(collection)


def together(collection: Any) -> int:
    """Send the tasks of two passes together, and drop the Split."""
    parts = split(collection)
    futures = [part.submit(total) for _ in range(2) for part in parts]
    return int(sum(gather(futures))) // 2


def materialized(collection: Any) -> int:
    """Put partitions into one block each, twice used, and drop the Split."""
    parts = split(collection, materialize=True)
    first, second = (int(sum(gather(parts.map(total)))) for _ in range(2))
    assert first == second
    return second


def aligned(collection: Any) -> int:
    """Split a collection with itself."""
    parts = split(collection, collection)
    return int(sum(gather(parts.map(total_of_first))))


def mapped(collection: Any) -> int:
    """Make a collection of what tasks return, and drop it."""
    with split(collection) as parts:
        made = parts.map_blocks(np.square, dtype=np.int64)
    del made
    return one_pass(collection)


def reduced(collection: Any) -> int:
    """Hold nothing but the future of a reduction."""
    futures = split(collection).map(total)
    found = reduce(operator.add, futures)
    del futures
    return int(found.result(timeout=60))


def dropped_under_way(collection: Any) -> int:
    """Drop Split and futures of tasks just started."""
    split(collection).map(total)
    return one_pass(collection)


USES: tuple[Callable[[Any], int], ...] = (
    one_pass,
    never_used,
    together,
    materialized,
    aligned,
    mapped,
    reduced,
    dropped_under_way,
)


def use(
    collection: Any, wanted: int, times: int, ways: Sequence[Callable[[Any], int]] = USES
) -> None:
    """Use a collection in all ways in turn."""
    for way in itertools.islice(itertools.cycle(ways), times):
        assert way(collection) == wanted, way.__name__


def own_objects() -> Counter[str]:
    """Count the objects of SplIter's classes in this process, but those that may stay."""
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(
        name
        for name in names
        if name.startswith(("spliter.", "spliter_backends.")) and not name.endswith(LASTING)
    )
