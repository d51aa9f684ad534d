"""Assign blocks of stored collections to Dask workers, and read them there."""

from __future__ import annotations

import functools
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, get_worker

from spliter import BackendNotUsableError, Location
from spliter.backend import (
    Blocks,
    Fetches,
    IntArray,
    Placement,
    PlannedPartition,
    blocks_of,
    concatenate,
    not_local_error,
)
from spliter_backends._shared.readable import fetches_of
from spliter_backends._shared.stored import StoredCollection, open_stored
from spliter_backends.dask.client.scheduler_calls import block_timeout
from spliter_backends.dask.client.source import ClientSource
from spliter_backends.dask.executor import DaskExecutor
from spliter_backends.dask.worker.materialize import MaterializableSource, materialize_here
from spliter_backends.dask.worker.memory import has_memory_to_spare, memory_for


def assign(nbytes: IntArray, threads: Mapping[str, int]) -> Placement:
    """Assign each worker a contiguous range of blocks, in proportion to its threads.

    A block belongs to the worker whose share contains its middle byte; workers are sorted by
    address, so that the same input gives the same placement. Any other could read it as well.

    Examples
    --------
    >>> placed = assign(np.array([8, 8, 8, 8, 8, 8]), {"b": 1, "a": 2})
    >>> [placed.locations[at] for at in placed.holder_ids]
    ['a', 'a', 'a', 'a', 'b', 'b']
    """
    workers = sorted(threads)
    shares = np.cumsum([max(threads[worker], 1) for worker in workers], dtype=np.float64)
    weights = np.maximum(nbytes, 1)
    middles = np.cumsum(weights) - weights / 2
    ends = shares[:-1] * (weights.sum() / shares[-1])
    chosen = np.searchsorted(ends, middles, side="left")
    held, ids = np.unique(chosen, return_inverse=True)
    return Placement(
        tuple(Location(workers[at]) for at in held.tolist()),
        np.arange(len(nbytes) + 1, dtype=np.int64),
        ids.astype(np.int64),
        nbytes,
        everywhere=True,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredSource(MaterializableSource):
    """References to the blocks of one partition, sent to its worker.

    stored: Collections to read; the first is the one being split.
    positions: Positions of the blocks in the first collection.
    """

    stored: tuple[StoredCollection, ...]
    positions: IntArray
    nbytes: int

    def read(self) -> Iterator[Any]:
        """Yield the blocks one by one, or tuples of aligned blocks."""
        first, *aligned = self.stored
        if not aligned:
            yield from map(first.read, self.positions.tolist())
            return
        rows = first.grid.rows(self.positions).tolist()
        last, matching = -1, ()
        for position, row in zip(self.positions.tolist(), rows, strict=True):
            if row != last:  # adjacent blocks in the same block row share the aligned blocks
                last, matching = row, tuple(other.read(row) for other in aligned)
            yield (first.read(position), *matching)

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks; None outside of a task."""
        try:
            worker = get_worker()
        except ValueError:
            return None
        opened = list(map(open_stored, self.stored))
        has_memory = functools.partial(has_memory_to_spare, worker)
        return fetches_of(opened, self.positions, self.prefetch, worker.address, has_memory)

    def materialized(self) -> Any:
        """Return the concatenated blocks, read once for all passes and kept by Dask."""
        try:
            worker = get_worker()
        except ValueError:
            raise not_local_error("read by Dask workers") from None
        return self.materialize_blocks() if self.shared else materialize_here(worker, self)

    def materialize_blocks(self) -> Any:
        """Read and concatenate the blocks; the body of a task."""
        with memory_for(get_worker(), self.nbytes):
            return concatenate(blocks_of(self))


class StoredBlocks(Blocks):
    """Blocks of aligned stored collections that the workers of a Dask cluster read."""

    executor: DaskExecutor
    stored = True

    def __init__(
        self, client: Client, executor: DaskExecutor, stored: Sequence[StoredCollection]
    ) -> None:
        super().__init__([one.grid for one in stored], executor)
        self.client = client
        self._stored = tuple(stored)
        self._nbytes = stored[0].nbytes
        self._made: weakref.WeakSet[ClientSource] = weakref.WeakSet()

    def locate(self) -> Placement:
        """Assign the blocks to the workers that can run tasks."""
        threads = self.executor.available_workers()
        if not threads:
            raise BackendNotUsableError(
                "the cluster has no workers to read the blocks; wait for them: "
                "client.wait_for_workers(1, timeout=60)"
            )
        return assign(self._nbytes, threads)

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[ClientSource]:
        """Return the sources of planned partitions."""
        made = [
            ClientSource(
                StoredSource(
                    stored=self._stored,
                    positions=part.positions,
                    nbytes=int(part.nbytes.sum()),
                    materialized_key=f"spliter-materialized-{uuid.uuid4().hex}",
                    client=self.client.id,
                    timeout=block_timeout(),
                    shared=bool(part.holders),
                    prefetch=self.prefetch,
                ),
                (),
                self.executor.release,
            )
            for part in planned
        ]
        self._made.update(made)
        return made

    def close(self) -> None:
        """Free the concatenated blocks that workers keep."""
        for source in self._made:
            source.release()
