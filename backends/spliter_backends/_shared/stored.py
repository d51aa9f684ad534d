"""Collections whose blocks lie in files or object stores, and are read when a task needs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spliter import BlockGrid
from spliter.backend import IntArray
from spliter_backends._shared.readable import ReadableCollection

if TYPE_CHECKING:
    from distributed import Client


class StoredCollection(ABC):
    """A collection that any process with access to its store can read; cheap to pickle.

    Attributes
    ----------
    grid : BlockGrid
        Rows of each block, as far as the metadata gives them.
    nbytes : ndarray of int64, shape (nblocks,)
        Approximate bytes of each block in memory.
    """

    grid: BlockGrid
    nbytes: IntArray

    @abstractmethod
    def read(self, position: int) -> Any:
        """Read the block at a C-order position; thread-safe."""

    def hosts(self, position: int) -> tuple[str, ...]:
        """Return the names of hosts with a local copy of a block; empty if none is closer."""
        return ()


@dataclass(frozen=True, eq=False)
class OnWorkers:
    """A stored collection and the cluster that reads it.

    Parameters
    ----------
    stored : StoredCollection
        In a store that all workers can open.
    client : distributed.Client or None
        ``None`` for the current client.
    """

    stored: StoredCollection
    client: Client | None


def open_stored(stored: StoredCollection) -> ReadableCollection:
    """Return the readable form of a stored collection."""
    return ReadableCollection(stored.grid, stored.nbytes, stored.read, stored=True, slow=True)
