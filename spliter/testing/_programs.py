"""Functions that the conformance suite runs at locations.

In a module of their own so that engines can import them by name.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spliter import Partition, ahead, task
from spliter._planning.grid import IntArray
from spliter.backend import Prefetch


def contents(partition: Partition) -> list[tuple[tuple[int, ...], Any]]:
    """Return the block indexes and the blocks, in iteration order."""
    return list(partition.items())


def blocks_of(partition: Partition) -> list[Any]:
    """Return the blocks, in iteration order."""
    return list(partition)


class Squares:
    """A source of records: the squares of even numbers; odd ones have none."""

    max_batch = 3

    def get(self, key: int) -> int | None:
        """Return the square of a number."""
        return None if key % 2 else key**2

    def get_many(self, keys: Sequence[int]) -> list[int | None]:
        """Return the squares of several."""
        return [self.get(key) for key in keys]


def squares_of(partition: Partition, prefetch: Prefetch) -> list[tuple[int, int | None]]:
    """Look up the square of each item; return the items with what was found."""
    found = partition.lookup(Squares(), lambda block: block, prefetch)
    return [pair for block, squares in found for pair in zip(block, squares, strict=True)]


def squares_read_ahead(partition: Partition) -> list[int | None]:
    """Read the square of each item in a region that is opened in the task."""
    items = [int(item) for block in partition for item in block]
    with ahead(Squares()) as squares:
        if importlib.util.find_spec("greenlet") is None:
            return squares.run(lambda: [squares.get(item) for item in items])  # type: ignore[no-any-return]
        return squares.map(squares.get, items)


def item_indexes(partition: Partition) -> IntArray:
    """Return the item indexes as known at the location."""
    return partition.get_item_indexes()


def consume(partition: Partition) -> int:
    """Read every block; return their number."""
    return sum(1 for _ in partition)


@task
def total(partition: Partition) -> int:
    """Return the sum of all items."""
    return sum(int(block.sum()) for block in partition)


@task
def total_plus(partition: Partition, more: int, *, times: int = 1) -> int:
    """Return the sum of all items times a factor, and a number added."""
    return sum(int(block.sum()) for block in partition) * times + more


@task
def total_of_two(first: Partition, second: Partition) -> int:
    """Return the sum of all items of two partitions."""
    return sum(int(block.sum()) for partition in (first, second) for block in partition)


@task
def total_of_nested(partition: Partition) -> int:
    """Call another task at the location, where it is the plain function."""
    result: int = total(partition)
    return result


@task
def collect_items(partition: Partition) -> frozenset[int]:
    """Return all items, which are different from each other in index-encoded data."""
    return frozenset(int(item) for block in partition for item in np.ravel(block))


@task
def weigh(partition: Partition) -> int:
    """Return the sum of item times weight over aligned blocks."""
    return sum(int((block * weight).sum()) for block, weight in partition)


def unite(first: frozenset[int], second: frozenset[int]) -> frozenset[int]:
    """Return the union of two disjoint sets; refuse others."""
    if first & second:
        raise ValueError(f"seen twice: {sorted(first & second)}")
    return first | second


def fail(partition: Partition, kind: type[Exception], message: str) -> None:
    """Raise an error after the first block, like a faulty kernel."""
    for _ in partition:
        raise kind(message)


class LockedError(Exception):
    """An error that cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


def fail_with_a_lock(partition: Partition) -> None:
    """Raise an error that cannot be pickled."""
    raise LockedError("locked")


def refuse(first: Any, second: Any) -> Any:
    """Raise an error, like a faulty function that combines results."""
    raise OverflowError(f"cannot combine {first} and {second}")


def rest_unevenly(partition: Partition) -> list[int]:
    """Return all items; odd blocks take 5 ms, even ones 1 ms, and every partition 10 ms more."""
    found: list[int] = []
    for (at,), block in partition.items():
        time.sleep(0.005 if at % 2 else 0.001)
        found.extend(block.tolist())
    time.sleep(0.01)
    return found


def difference(values: Iterable[int]) -> int:
    """Return the first value less the others: futures in a list arrive as results."""
    first, *others = values
    return first - sum(others)


def mark(partition: Partition) -> int:
    """Write -1 into the materialized block's first item; return -1 if it was there, else 0."""
    block = partition.materialize()
    before = int(block[0])
    block[0] = -1
    return min(before, 0)


def columns_of(partition: Partition, columns: list[int]) -> tuple[Any, Any]:
    """Return columns of all blocks, in rows and as columns."""
    rows, _ = partition.materialize(columns=columns)
    as_columns, _ = partition.materialize(columns=columns, as_columns=True)
    return rows, as_columns


def batches_of(partition: Partition, nbytes: int) -> list[tuple[Any, Any]]:
    """Return copies of the batches of two aligned collections."""
    return [(table.copy(), labels.copy()) for table, labels in partition.batches(nbytes)]


def power(block: Any, exponent: int) -> Any:
    """Raise the items of a block to a power."""
    return block**exponent


def pairs(block: Any) -> Any:
    """Return each item next to its negative."""
    return np.stack([block, -block], axis=-1)


def first_columns(block: Any) -> Any:
    """Return the items of the first column of axis 1."""
    return block[:, :1]


def even(block: Any) -> Any:
    """Return the even items."""
    return block[block % 2 == 0]


def cut_twice(partition: Partition) -> tuple[list[Any], list[Any]]:
    """Return the items and their negatives, each cut by blocks."""
    items = np.concatenate(list(partition))
    return partition.cut(items), partition.cut(-items)
