"""Source of a partition at a Dask worker: iterate over the blocks in its memory, or on its disk.

Blocks that are at other workers when their turn comes are read from there in batches
(``worker.relocate`` has the task run where most of them are).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Worker, get_worker

from spliter.backend import (
    BlockSource,
    Fetches,
    blocks_of,
    check_rows,
    concatenate,
    not_local_error,
)
from spliter_backends._shared.waiting import Progress
from spliter_backends.dask.internals.worker import has_spilled, in_memory
from spliter_backends.dask.worker.fetch import fetch
from spliter_backends.dask.worker.materialize import limit_time, materialize_here
from spliter_backends.dask.worker.memory import (
    MISSING,
    has_memory_to_spare,
    memory_for,
    nbytes_of,
    read_local,
)
from spliter_backends.dask.worker.relocate import (
    PartitionKeys,
    check_or_relocate,
    report,
    timed_out,
    wait_in_memory,
)

FETCH_BATCH_NBYTES: Final = 32 * 2**20
"""Bytes read from a peer at once: large compared with the cost of a round trip, small compared with
a worker's memory."""


class View(Protocol):
    """Converts a partition's plain blocks to what its tasks yield; small to pickle."""

    def block(self, at: int, chunks: Sequence[Any]) -> Any:
        """Return the converted block for the partition's block `at` and those aligned with it."""
        ...

    def join(self, blocks: Iterator[Any]) -> Any:
        """Concatenate converted blocks."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerSource(PartitionKeys):
    """Source of one partition, by the keys of its blocks; sent to the tasks."""

    view: View | None = None

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks, which must be in this worker's memory."""
        return self._reader().read()

    def materialized(self) -> Any:
        """Return the concatenated blocks, which must be in this worker's memory."""
        return self._reader().materialized()

    def materialize_blocks(self) -> Any:
        """Concatenate the blocks; the body of a task."""
        worker = get_worker()
        check_or_relocate(worker, self, planned=worker.address)
        return PartitionReader(worker, self, fetch=True).concatenated()

    def _reader(self) -> PartitionReader:
        try:
            worker = get_worker()
        except ValueError:
            raise not_local_error("in the memory of a Dask worker") from None
        return PartitionReader(worker, self, fetch=False)


class PartitionReader(BlockSource):
    """Reads the blocks of a partition for one task at one worker."""

    def __init__(self, worker: Worker, source: WorkerSource, *, fetch: bool) -> None:
        self._worker = worker
        self._source = source
        self._fetch_allowed = fetch

    def read(self) -> Iterator[Any]:
        """Yield the blocks in order, tuples where collections are aligned."""
        fetched: dict[Key, Any] = {}
        for at in range(len(self._source.nbytes)):
            # No reference is kept: a used block may be released before the next one is read.
            yield self._finish(fetched, at, self._read_local(at))

    def fetches(self) -> Fetches | None:
        """Return the reads of the blocks; None if all of them are in memory."""
        source, memory = self._source, in_memory(self._worker)
        # In most passes nothing is on disk: then no time is spent on every block.
        if source.prefetch is False or not has_spilled(self._worker):
            return None
        if all(all(map(memory.__contains__, keys)) for keys in source.members):
            return None
        return Fetches(
            self._read_local,
            [
                sum(0 if key in memory else nbytes_of(self._worker, key) for key in keys)
                for keys in zip(*source.members, strict=True)
            ],
            source.prefetch,
            self._worker.address,
            functools.partial(has_memory_to_spare, self._worker),
            finish=functools.partial(self._finish, {}),
        )

    def _read_local(self, at: int) -> tuple[Any, ...]:
        """Read a block of each collection from this worker's memory or disk, as far as it is there.

        Runs in any thread.
        """
        return tuple(read_local(self._worker, member[at]) for member in self._source.members)

    def _finish(self, fetched: dict[Key, Any], at: int, blocks: tuple[Any, ...]) -> Any:
        """Return what the loop gets; blocks that are elsewhere are fetched with those after."""
        source = self._source
        if any(block is MISSING for block in blocks):
            blocks = tuple(
                self._read_remote(at, member[at], fetched) if block is MISSING else block
                for block, member in zip(blocks, source.members, strict=True)
            )
        if source.view is not None:
            return source.view.block(at, blocks)
        if len(blocks) == 1:
            return blocks[0]
        check_rows(blocks, source.index(at))
        return blocks

    def materialized(self) -> Any:
        """Return the concatenated blocks, made once for all tasks at this worker."""
        # No copy is kept of one block, nor at a worker that may not run the next task.
        if len(self._source.nbytes) == 1 or self._source.shared:
            return self.concatenated()
        try:
            self._worker.get_current_task()
        except KeyError:  # another thread: waiting here would occupy the task's own one
            return self.concatenated()
        return materialize_here(self._worker, self._source)

    def concatenated(self) -> Any:
        """Concatenate the blocks."""
        source = self._source
        nbytes = sum(
            nbytes_of(self._worker, key) or int(source.nbytes[at])
            for at, key in source.numbered_keys()
        )
        with memory_for(self._worker, nbytes):
            return (concatenate if source.view is None else source.view.join)(blocks_of(self))

    def _read_remote(self, at: int, key: Key, fetched: dict[Key, Any]) -> Any:
        """Read a block from another worker, with a batch of the blocks after it."""
        if not self._fetch_allowed:
            raise not_local_error("partly at another Dask worker")
        if key not in fetched:
            wanted, nbytes = {key: None}, 0
            for other, later in self._source.numbered_keys(start=at):
                if later not in self._worker.data:
                    wanted[later] = None
                    nbytes += int(self._source.nbytes[other])
                    if nbytes >= FETCH_BATCH_NBYTES:
                        break
            fetched.update(self._fetch(list(wanted)))
        return fetched.pop(key)

    def _fetch(self, keys: list[Key]) -> dict[Key, Any]:
        """Read blocks from any worker, and report those that were transferred."""
        worker, source = self._worker, self._source
        progress = Progress(source.timeout)
        data: dict[Key, Any] = {}
        remote: list[Key] = []
        while wanted := [key for key in keys if key not in data]:
            holders = wait_in_memory(worker, source, wanted)
            with limit_time(source.timeout, worker):
                found, from_peers = fetch(worker, holders, source.timeout)
            data.update(found)
            remote += from_peers
            if len(found) < len(wanted) and not progress.pause(len(wanted) - len(found)):
                raise timed_out(worker, source, wanted)
        if remote:
            report(worker, source, len(remote), sum(sizeof(data[key]) for key in remote))
        return data
