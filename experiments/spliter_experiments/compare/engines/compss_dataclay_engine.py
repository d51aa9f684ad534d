"""COMPSs over dataClay, the stack of the paper: blocks in dataClay, tasks of COMPSs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy.typing as npt

from spliter import Location
from spliter_backends.compss.api import compss_delete_object, storage_is_configured
from spliter_backends.dataclay.executor import DataClayExecutor, current_executor
from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines import compss_engine, dataclay_engine
from spliter_experiments.compare.engines.compss_calls import StoredBlock
from spliter_experiments.compare.engines.compss_engine import CompssTasks
from spliter_experiments.compare.engines.compss_launch import (
    START_SECONDS,
    STARTING,
    launched_progress,
)
from spliter_experiments.compare.engines.dataclay_engine import (
    DataClayEngine,
    LoadedArray,
    backends_of,
    check_backends,
)
from spliter_experiments.compare.engines.engine import WAIT_SECONDS, ClusterChoice, Placement
from spliter_experiments.harness.errors import ClusterError


@dataclass(frozen=True, eq=False)
class StoredArray(LoadedArray):
    """A collection in dataClay, with what PyCOMPSs tasks get for each of its objects."""

    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class CompssDataClayEngine(CompssTasks):
    """Nodes of a COMPSs application, and a dataClay, the `store`, which loads the blocks."""

    store: DataClayEngine = field(kw_only=True)

    split_backend: ClassVar[str | None] = "compss"
    """DataClay would run the tasks otherwise."""

    @contextmanager
    def persisted(
        self, source: Rows, row_chunks: Sequence[int], like: npt.NDArray[Any], placement: Placement
    ) -> Iterator[StoredArray]:
        from dataclay.config import settings

        self.progress.tell(WAIT_SECONDS, f"loading {len(row_chunks)} blocks")
        with self.store.persisted(source, row_chunks, like, placement) as found:
            members = found.object_ids, found.chunks, found.dtype, found.block_nbytes, found.objects
            if storage_is_configured():
                yield StoredArray(*members, found.objects)
                return
            service = settings.client.dataclay_host, settings.client.dataclay_port
            arguments = tuple(StoredBlock(one, service) for one in found.object_ids)
            try:
                yield StoredArray(*members, arguments)
            finally:
                compss_delete_object(*arguments)

    def arguments_of(self, collection: StoredArray) -> Sequence[Any]:
        """Return the objects if there is a storage interface, else their ids."""
        return collection.arguments


@contextmanager
def _store(nodes: Mapping[Location, int], on_this_machine: bool) -> Iterator[DataClayExecutor]:
    """Use the dataClay of the storage interface, or start one with a backend for each node."""
    if storage_is_configured():
        yield current_executor()
    elif on_this_machine:
        choice = ClusterChoice(None, workers=len(nodes), threads=max(nodes.values()))
        with dataclay_engine.connected(choice) as executor:
            yield executor
    else:
        raise ClusterError(
            "the COMPSs nodes are several machines, and the application has no storage interface; "
            "start dataClay on them, and the application with runcompss --storage_conf"
        )


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[CompssDataClayEngine]:
    progress = launched_progress()
    progress.tell(START_SECONDS, STARTING)
    with (
        compss_engine.connected(choice) as (nodes, on_this_machine),
        _store(nodes, on_this_machine) as executor,
    ):
        progress.tell(WAIT_SECONDS, "loading the first blocks")
        backends = backends_of(executor)
        check_backends(executor, backends)
        capacities = executor.capacities(backends)
        store = DataClayEngine(capacities, on_this_machine, executor)
        yield CompssDataClayEngine(nodes, on_this_machine, progress, store=store)
