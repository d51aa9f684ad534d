"""Run COMPSs tasks over blocks that are persistent objects of dataClay.

dataClay's locator finds the objects, and COMPSs runs the tasks. With a storage interface
(``runcompss --storage_conf=...``) the objects themselves are inputs of the tasks, so that COMPSs'
scheduler queries their locations; without one, tasks get their ids. In both cases a task reads each
block's content as a copy, through a dataClay client in the worker, and copies the next ones while
it works on a block. The interface's file maps backends to nodes, so that tasks can be pinned to the
node of their backend.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from spliter import BackendNotUsableError, BlockTimeoutError, Location, Partition
from spliter.backend import Blocks
from spliter_backends.compss.api import storage_is_configured
from spliter_backends.compss.executor import CompssExecutor
from spliter_backends.compss.persistent_contents import PersistentObjects
from spliter_backends.compss.settings import settings as compss_settings
from spliter_backends.compss.source import BlockInputs, InputSource

NODES_VARIABLE: Final = "SPLITER_COMPSS_WORKERS"
"""Line of the storage interface's file with ``<backend id>=<node>`` for each backend of dataClay;
dataClay's half of the interface exports the lines of that file as environment variables."""

MAX_CONCURRENT_REQUESTS: Final = 256
"""Maximum number of concurrent requests to dataClay's metadata service."""

REQUEST_TIMEOUT: Final = 60
"""Timeout of each batch of requests."""


def nodes_of_backends() -> dict[str, str]:
    """Return the COMPSs node of each dataClay backend; empty without a storage interface.

    Examples
    --------
    >>> nodes_of_backends()
    {}
    """
    pairs = re.split(r"[,\s]+", os.environ.get(NODES_VARIABLE, "").strip())
    named = (pair.partition("=") for pair in pairs if pair)
    return {backend.lower(): node for backend, _, node in named}


async def _objects(ids: Sequence[uuid.UUID]) -> list[Any]:
    from dataclay.config import get_runtime

    runtime = get_runtime()
    found: list[Any] = []
    try:
        for start in range(0, len(ids), MAX_CONCURRENT_REQUESTS):
            some = ids[start : start + MAX_CONCURRENT_REQUESTS]
            async with asyncio.timeout(REQUEST_TIMEOUT):
                found += await asyncio.gather(*map(runtime.get_object_by_id, some))
    except TimeoutError:
        raise BlockTimeoutError(
            f"dataClay's metadata service did not return the classes of {len(ids)} objects within "
            f"{REQUEST_TIMEOUT} s; check that it is running"
        ) from None
    return found


class CompssPersistentExecutor(CompssExecutor):
    """Runs PyCOMPSs tasks over blocks opened by dataClay's locator, no other."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        known: Any = blocks
        if not hasattr(known, "object_ids"):
            raise BackendNotUsableError(
                f"the COMPSs backend cannot run tasks over {type(blocks).__name__}; split a "
                "collection of COMPSs or of dataClay"
            )
        self._blocks = known
        self._objects: dict[uuid.UUID, Any] = {}

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the setting `computing_units`, or how many methods each backend runs at once."""
        units = compss_settings().computing_units
        if units is not None:
            return dict.fromkeys(locations, units)
        found: Mapping[Location, int] = self._blocks.executor.capacities(locations)
        return found

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return None for every location: the nodes of future tasks are unknown."""
        return dict.fromkeys(locations)

    def _pin(self, location: Location | None) -> Mapping[str, Any]:
        node = nodes_of_backends().get(location) if location is not None else None
        return super()._pin(None if node is None else Location(node))

    def inputs_of(self, partition: Partition, start: int) -> tuple[BlockInputs, Sequence[Any]]:
        """Return the inputs of a task on a partition, and which are which.

        The inputs are the objects if there is a storage interface, else there are none.
        """
        ids = self._ids(partition)
        if not storage_is_configured():
            return self._block_inputs(partition, start, tuple(ids)), ()
        return self._block_inputs(partition, start, ()), self._objects_of(ids)

    def _objects_of(self, ids: Sequence[uuid.UUID]) -> list[Any]:
        """Return objects by id; query all unknown ones concurrently."""
        unknown = [object_id for object_id in ids if object_id not in self._objects]
        if unknown:
            found = self._blocks.executor.session.wait(_objects(unknown))
            self._objects.update(zip(unknown, found, strict=True))
        return [self._objects[object_id] for object_id in ids]

    def readable_partition(self, partition: Partition) -> Partition:
        """Return a partition that a task in this process reads from dataClay."""
        block_inputs = self._block_inputs(partition, 0, tuple(self._ids(partition)))
        return partition.at_location(
            InputSource(block_inputs, ()), materialize=block_inputs.iterates_concatenated
        )

    def _ids(self, partition: Partition) -> list[uuid.UUID]:
        positions = partition.indexes.positions
        rows = self._blocks.grids[0].rows(positions).tolist()
        first, *aligned = self._blocks.object_ids
        ids: list[uuid.UUID] = [first[position] for position in positions.tolist()]
        for member in aligned:
            ids += [member[row] for row in rows]
        return ids

    def _block_inputs(self, partition: Partition, start: int, ids: tuple[Any, ...]) -> BlockInputs:
        from dataclay.config import settings

        service = settings.client.dataclay_host, settings.client.dataclay_port
        nbytes = tuple(self._blocks.nbytes_of(partition.indexes.positions).tolist())
        return BlockInputs(
            start=start,
            nblocks=len(partition),
            columns=(1,) * len(self._blocks.grids),
            indexes=tuple(partition.get_indexes()),
            is_concatenated=False,
            location=partition.location,
            token="",
            number=0,
            known=False,
            iterates_concatenated=partition.begin_pass(),
            persistent=PersistentObjects(ids, service, nbytes, self._blocks.prefetch),
        )
