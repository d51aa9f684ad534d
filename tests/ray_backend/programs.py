"""What the tests of the Ray backend run on nodes, importable there by name."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import ray

from spliter import BlockLostError, Partition
from spliter_backends.ray import source
from tests.waiting import wait_until


def here(_: Partition) -> str:
    return str(ray.get_runtime_context().get_node_id())


def total(partition: Partition) -> int:
    return sum(int(block.sum()) for block in partition)


def read_all(
    partition: Partition, lost: tuple[int, ...] = (-1,), leave: int = -1
) -> tuple[list[int], int, int, str]:
    """Return the first item of each block, how many were fetched, how many before, and the error.

    One of the blocks may be lost, and the loop may be left after a number of blocks.
    """
    patched: Any = source
    fetch, wait, error = patched.fetch_objects, ray.wait, ""
    fetched: list[tuple[int, ...]] = []
    ahead: list[Any] = []

    def counted_fetch(references: Any, indexes: Any, timeout: Any) -> Any:
        fetched.extend(indexes)
        if lost in indexes:
            raise BlockLostError("lost")
        return fetch(references, indexes, timeout)

    def counted_wait(references: Any, fetch_local: bool = True, **options: Any) -> Any:
        ahead.extend(references if fetch_local else ())
        return wait(references, fetch_local=fetch_local, **options)

    found: list[int] = []
    patched.fetch_objects, ray.wait = counted_fetch, counted_wait
    try:
        for block in partition:
            found.append(int(block[0]))
            if len(found) == leave:
                break
    except BlockLostError as raised:
        error = str(raised)
    finally:
        patched.fetch_objects, ray.wait = fetch, wait
    return found, len(fetched), len(ahead), error


def length(partition: Partition) -> int:
    """Number of rows of all blocks."""
    return sum(len(block) for block in partition)


def slow_total(partition: Partition, started: str, go: str) -> int:
    """Sum of all items; says when it has begun, and goes on when it is told to."""
    result = 0
    for number, block in enumerate(partition):
        if number == 0:
            Path(started).touch()
            wait_until(Path(go).exists)
        result += int(block.sum())
    return result


def total_when_told(partition: Partition, folder: str) -> int:
    """Sum of all items; says in a folder when it has begun, and waits there for a file.

    Says, too, if it is interrupted meanwhile.
    """
    ((at,), *_) = partition.get_indexes()
    try:
        Path(folder, f"begun-{at}").touch()
        wait_for(partition, str(Path(folder, "go")))
    except KeyboardInterrupt:
        Path(folder, "interrupted").touch()
        raise
    return total(partition)


def kill_once(partition: Partition, marker: str) -> int:
    """End the process that this runs in, the first time."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return total(partition)


def wait_for(_: Partition, go: str) -> None:
    wait_until(Path(go).exists)


def first_total(first: Partition, _: Partition) -> int:
    """Sum of all items of the first of two partitions."""
    return total(first)


def process(_: Partition) -> int:
    return os.getpid()


def array_and_lock(_: Partition) -> Any:
    """Return what cannot be pickled."""
    return np.ones(100), threading.Lock()


def leave(_: Partition) -> None:
    """End the program, or so it thinks."""
    sys.exit(3)


class Putting:
    """An actor that owns blocks."""

    def put(self, n: int) -> list[Any]:
        """Put blocks into the store of its node."""
        return [ray.put(np.zeros(3)) for _ in range(n)]


@ray.remote  # type: ignore[untyped-decorator]
def put_all(blocks: list[Any]) -> list[Any]:
    """Put blocks into the store of the node this runs at; this process owns them."""
    return [ray.put(block) for block in blocks]


@ray.remote  # type: ignore[untyped-decorator]
def fill_placeholders(rows: int, value: int) -> Any:
    return np.full(rows, value)


@ray.remote  # type: ignore[untyped-decorator]
def read(block: Any) -> int:
    return len(block)


@ray.remote(max_retries=0)  # type: ignore[untyped-decorator]
def failing(message: str) -> Any:
    """Make no block."""
    raise ArithmeticError(message)


def looked_up(partition: Partition, source: Any) -> tuple[list[list[Any]], list[int]]:
    """Return the records of each block, and the number of keys of each request."""
    requests: list[int] = []

    class Counting(type(source)):  # type: ignore[misc]
        def get_many(self, keys: Any) -> list[Any]:
            requests.append(len(keys))
            return list(super().get_many(keys))

    counting = Counting(**vars(source))
    found = partition.lookup(counting, lambda block: block)
    return [records for _, records in found], requests


def looked_up_until_killed(partition: Partition, source: Any, folder: Path) -> list[list[Any]]:
    """Return the records of each block; waits after some, once it has reported its process."""
    found = []
    for number, (_, records) in enumerate(partition.lookup(source, lambda block: block, 4)):
        found.append(records)
        if number == 5:
            (folder / "process.new").write_text(str(os.getpid()))
            (folder / "process.new").rename(folder / "process")
            wait_until((folder / "go on").exists)
    return found
