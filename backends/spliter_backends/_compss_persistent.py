"""COMPSs tasks over blocks that are persistent objects of dataClay.

dataClay's locator says where the objects are, and COMPSs runs the tasks. With a storage interface
(``runcompss --storage_conf=...``) the objects themselves are given to the tasks, so that COMPSs'
scheduler asks that interface where they are; without one the tasks are given their ids. Either
way a task reads a block's content through a client of dataClay in the worker, when its turn
comes: a copy, from the backend that has it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, overload

from spliter import BackendNotUsableError, Blocks, Location, Partition
from spliter_backends._compss_api import storage_is_configured
from spliter_backends._compss_source import GivenSource, Layout, Persistent
from spliter_backends.compss_executor import CompssExecutor


class Contents(Sequence[Any]):
    """The contents of persistent objects, each read when it is asked for.

    Parameters
    ----------
    persistent : Persistent
        Which objects.
    given : sequence
        The objects, if the task was given them.
    """

    def __init__(self, persistent: Persistent, given: Sequence[Any]) -> None:
        self._persistent = persistent
        self._given = given

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._persistent.ids) or len(self._given)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return the content of one object, or of some."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not self._persistent.ids:
            return _content(self._given[index])
        return _content(_object(self._persistent.ids[index], self._persistent.service))


def _content(value: Any) -> Any:
    """Return what a persistent object stands for as a block."""
    from spliter_backends.dataclay_objects import Block

    if isinstance(value, Block):
        return value.content
    own = getattr(value, "spliter_block", None)
    return value if own is None else own()


def _object(object_id: Any, service: tuple[str, int]) -> Any:
    from dataclay import DataClayObject
    from dataclay.config import get_runtime

    if get_runtime() is None:
        _client_of_process(os.getpid(), service)
    return DataClayObject.get_by_id(object_id)


@functools.cache
def _client_of_process(process: int, service: tuple[str, int]) -> Any:
    """Start a client in a worker; by process, as a fork copies what this remembers."""
    from dataclay import Client

    client = Client(host=service[0], port=service[1])
    client.start()
    return client


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

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return how many methods each backend of dataClay runs at once.

        Parameters
        ----------
        locations : collection of Location
            Backends.

        Returns
        -------
        mapping of Location to int
            As many tasks as COMPSs may run beside it.
        """
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
        from dataclay import DataClayObject

        objects = [DataClayObject.get_by_id(object_id) for object_id in ids]
        return self._layout(partition, start, ()), objects

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

    def _ids(self, partition: Partition) -> list[Any]:
        positions = partition.indexes.positions
        rows = self._blocks.grids[0].rows(positions).tolist()
        first, *aligned = self._blocks.object_ids
        ids = [first[position] for position in positions.tolist()]
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
