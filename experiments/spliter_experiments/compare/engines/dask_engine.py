"""Dask as an engine to compare on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy.typing as npt
from distributed import Client, Future

from spliter_experiments.compare.data.sources import Rows
from spliter_experiments.compare.engines.dask_blocks import blocks_of, persist
from spliter_experiments.compare.engines.dask_cluster import (
    connected,
    cores_of,
    is_on_this_machine,
    process_versions,
)
from spliter_experiments.compare.engines.dask_meter import ClusterMeter
from spliter_experiments.compare.engines.dask_rest import Rest
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.compare.engines.placement import Placement
from spliter_experiments.doctor import check_versions


@dataclass(frozen=True)
class DaskEngine:
    """A Dask cluster; implements :class:`.engine.Engine`.

    Parameters
    ----------
    client : Client
        Synchronous client of it.
    """

    client: Client

    @property
    def cores(self) -> int:
        """How many tasks it runs at once."""
        return cores_of(self.client)

    @property
    def workers(self) -> int:
        """How many workers it has."""
        return len(self.client.nthreads())

    def is_on_this_machine(self) -> bool:
        """Whether all workers run on this host."""
        return is_on_this_machine(self.client)

    @contextmanager
    def persisted(
        self,
        source: Rows,
        row_chunks: Sequence[int],
        like: npt.NDArray[Any],
        placement: Placement,
    ) -> Iterator[da.Array]:
        """Load rows at the workers; they go when nobody refers to them any more."""
        yield persist(self.client, source, row_chunks, like, placement)

    def blocks(self, array: da.Array) -> list[Future[Any]]:
        """Return the blocks of a persisted array, in the order of the rows."""
        return blocks_of(array)

    def on_blocks(self, kernel: Callable[[Any], Any], collection: da.Array) -> list[Any]:
        """Run a kernel on each block and return what it returns."""
        mapped = self.client.map(kernel, blocks_of(collection), pure=False)
        found: list[Any] = self.client.gather(mapped)
        return found

    def rest(self, collections: Sequence[da.Array] = ()) -> Rest:
        """Take what is held now, and where blocks are."""
        return Rest.now(self.client, [block for array in collections for block in blocks_of(array)])

    def meter(self) -> ClusterMeter:
        """Count tasks, and bytes between workers."""
        return ClusterMeter(self.client)


@contextmanager
def connect(choice: ClusterChoice) -> Iterator[DaskEngine]:
    """Connect to a cluster with at least one worker, started and stopped here if embedded.

    Raises
    ------
    ClusterError
        If the scheduler or a worker cannot be reached in time, or has another SplIter.
    """
    with connected(choice) as client:
        check_versions(process_versions(client))
        yield DaskEngine(client)
