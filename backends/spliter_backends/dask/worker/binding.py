"""Bind the partitions among a task's arguments to its worker, and call the function."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Worker, get_worker

from spliter import Partition
from spliter.backend import BlockSource, may_move
from spliter_backends.dask.worker.relocate import check_or_relocate, report
from spliter_backends.dask.worker.source import PartitionReader, WorkerSource


@dataclass(frozen=True, eq=False)
class MaterializedPartition:
    """A partition and its concatenated blocks, as the input of a task.

    partition: The partition, its pickle, future or placeholder.
    block: Its concatenated blocks, their future or placeholder.
    """

    partition: Any
    block: Any


def run_at_location(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a task function at a worker, with iterable partitions."""
    worker = get_worker()
    if may_move(fn):
        _check_or_relocate(worker, [*args, *kwargs.values()])
    bound = {name: _bind_argument(worker, value) for name, value in kwargs.items()}
    return fn(*[_bind_argument(worker, value) for value in args], **bound)


def _check_or_relocate(worker: Worker, values: Sequence[Any]) -> None:
    """Move the task if another worker has more of the blocks of all its partitions together."""
    of_split: dict[str, list[WorkerSource]] = {}
    planned = ""
    for value in values:
        if isinstance(value, Partition) and isinstance(value.source, WorkerSource):
            of_split.setdefault(value.source.token, []).append(value.source)
            planned = value.location
    for sources in of_split.values():
        check_or_relocate(worker, joined(sources), planned)


def joined(sources: Sequence[WorkerSource]) -> WorkerSource:
    """Return the source of the blocks of several partitions of one Split."""
    first, *others = sources
    if not others:
        return first
    members = zip(*(source.members for source in sources), strict=True)
    return dataclasses.replace(
        first,
        members=tuple(tuple(itertools.chain.from_iterable(keys)) for keys in members),
        nbytes=np.concatenate([source.nbytes for source in sources]),
        positions=np.concatenate([source.positions for source in sources]),
    )


class _MaterializedSource(BlockSource):
    """A source whose concatenated blocks are available."""

    def __init__(self, source: BlockSource, block: Any) -> None:
        self._source = source
        self._block = block

    def read(self) -> Iterator[Any]:
        """Return an iterator over the blocks."""
        yield from self._source.read()

    def materialized(self) -> Any:
        """Return the concatenated blocks."""
        return self._block


def _bind_argument(worker: Worker, value: Any) -> Any:
    if isinstance(value, MaterializedPartition):
        partition = _bind(worker, value.partition, is_one=True)
        return partition.at_location(_MaterializedSource(partition.source, value.block))
    return _bind(worker, value) if isinstance(value, Partition) else value


def _bind(worker: Worker, partition: Partition, *, is_one: bool = False) -> Partition:
    source = partition.source
    if not isinstance(source, WorkerSource):
        return partition
    if is_one and worker.address != partition.location:
        report(worker, source)
    return partition.at_location(PartitionReader(worker, source, fetch=True))
