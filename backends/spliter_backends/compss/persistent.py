"""COMPSs tasks over blocks that are persistent objects of dataClay.

dataClay's locator says where the objects are, and COMPSs runs the tasks. With a storage interface
(``runcompss --storage_conf=...``) the objects themselves are given to the tasks, so that COMPSs'
scheduler asks that interface where they are; without one the tasks are given their ids. Either
way a task reads a block's content through a client of dataClay in the worker, when its turn
comes: a copy, from the backend that has it. The interface's file says which node each backend is
on, so that tasks can be pinned to the node of their backend.
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
from spliter_backends.compss.contents import Persistent
from spliter_backends.compss.executor import CompssExecutor
from spliter_backends.compss.settings import settings as compss_settings
from spliter_backends.compss.source import GivenSource, Layout

NODES_OF_BACKENDS: Final = "SPLITER_COMPSS_WORKERS"
"""Line of the storage interface's file with ``<backend id>=<node>`` for each backend of dataClay.

dataClay's half of the interface puts the lines of that file into the environment.
"""


ASKED_AT_ONCE: Final = 256
"""Questions to dataClay's metadata service under way."""

ASKED_SECONDS: Final = 60
"""Bound for these to be answered."""


def nodes_of_backends() -> dict[str, str]:
    """Return the node of COMPSs that each backend of dataClay is on.

    Returns
    -------
    dict of str to str
        Backend ids to names of nodes; empty without a storage interface.

    Examples
    --------
    >>> nodes_of_backends()
    {}
    """
    pairs = re.split(r"[,\s]+", os.environ.get(NODES_OF_BACKENDS, "").strip())
    named = (pair.partition("=") for pair in pairs if pair)
    return {backend.lower(): node for backend, _, node in named}


async def _objects(ids: Sequence[uuid.UUID]) -> list[Any]:
    from dataclay.config import get_runtime

    runtime = get_runtime()
    found: list[Any] = []
    try:
        for start in range(0, len(ids), ASKED_AT_ONCE):
            some = ids[start : start + ASKED_AT_ONCE]
            async with asyncio.timeout(ASKED_SECONDS):
                found += await asyncio.gather(*map(runtime.get_object_by_id, some))
    except TimeoutError:
        raise BlockTimeoutError(
            f"dataClay's metadata service did not answer within {ASKED_SECONDS} s which class "
            f"objects are of, {len(ids)} of them; see whether it is up"
        ) from None
    return found


class CompssOverPersistent(CompssExecutor):
    """Runs PyCOMPSs tasks over blocks that dataClay's locator has found.

    Parameters
    ----------
    blocks : Blocks
        Opened by that locator.

    Raises
    ------
    BackendNotUsableError
        If they are another backend's.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        opened: Any = blocks
        if not hasattr(opened, "object_ids"):
            raise BackendNotUsableError(
                "the COMPSs backend runs tasks over its own collections and those of dataClay; "
                f"these blocks are a {type(blocks).__name__}"
            )
        self._blocks = opened
        self._objects: dict[uuid.UUID, Any] = {}

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many methods each backend of dataClay runs at once, unless a setting says.

        Parameters
        ----------
        locations : collection of Location
            Backends.

        Returns
        -------
        mapping of Location to int
            As many tasks as COMPSs may run beside it.
        """
        units = compss_settings().computing_units
        if units is not None:
            return dict.fromkeys(locations, units)
        found: Mapping[Location, int] = self._blocks.executor.capacities(locations)
        return found

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return that nobody knows what is free where COMPSs will run the tasks.

        Parameters
        ----------
        locations : collection of Location
            Backends of dataClay.

        Returns
        -------
        mapping of Location to None
        """
        return dict.fromkeys(locations)

    def _pin(self, location: Location | None) -> Mapping[str, Any]:
        node = nodes_of_backends().get(location) if location is not None else None
        return super()._pin(None if node is None else Location(node))

    def inputs_of(self, partition: Partition, start: int) -> tuple[Layout, Sequence[Any]]:
        """Return what a task on a partition is given; see :class:`CompssExecutor`.

        Parameters
        ----------
        partition : Partition
            Of a Split of this executor.
        start : int
            Number of the first of its inputs.

        Returns
        -------
        tuple of (Layout, sequence)
            The objects as inputs with a storage interface, else none.
        """
        ids = self._ids(partition)
        if not storage_is_configured():
            return self._layout(partition, start, tuple(ids)), ()
        return self._layout(partition, start, ()), self._objects_of(ids)

    def _objects_of(self, ids: Sequence[uuid.UUID]) -> list[Any]:
        """Return objects by id; all that are not known yet are asked for at once."""
        unknown = [object_id for object_id in ids if object_id not in self._objects]
        if unknown:
            found = self._blocks.executor.session.wait(_objects(unknown))
            self._objects.update(zip(unknown, found, strict=True))
        return [self._objects[object_id] for object_id in ids]

    def arriving(self, partition: Partition) -> Partition:
        """Return a partition as a task sees it that runs in this process.

        Parameters
        ----------
        partition : Partition
            Of a Split of this executor.

        Returns
        -------
        Partition
            Its blocks are read from dataClay.
        """
        layout = self._layout(partition, 0, tuple(self._ids(partition)))
        return partition.at_location(GivenSource(layout, ()), as_one=layout.seen_as_one)

    def _ids(self, partition: Partition) -> list[uuid.UUID]:
        positions = partition.indexes.positions
        rows = self._blocks.grids[0].rows(positions).tolist()
        first, *aligned = self._blocks.object_ids
        ids: list[uuid.UUID] = [first[position] for position in positions.tolist()]
        for member in aligned:
            ids += [member[row] for row in rows]
        return ids

    def _layout(self, partition: Partition, start: int, ids: tuple[Any, ...]) -> Layout:
        from dataclay.config import settings

        service = settings.client.dataclay_host, settings.client.dataclay_port
        return Layout(
            start=start,
            nblocks=len(partition),
            columns=(1,) * len(self._blocks.grids),
            indexes=tuple(partition.get_indexes()),
            as_one=False,
            location=partition.location,
            token="",
            number=0,
            known=False,
            seen_as_one=partition.begin_pass(),
            persistent=Persistent(ids, service),
        )
