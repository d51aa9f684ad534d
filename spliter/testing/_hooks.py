"""Hooks through which the conformance suite reaches a backend."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from spliter import Partition, Split, split
from spliter.testing._encoding import index_encoded_blocks

Block = npt.NDArray[Any]

LENGTHS = (3, 1, 4, 0, 5, 2, 6, 1)
"""Rows of the blocks of most tests: uneven, and one block without rows."""

TOTAL = sum(range(sum(LENGTHS)))
"""Sum of all items of an index-encoded collection of these blocks."""


class BackendHooks(abc.ABC):
    """Hooks of the suite: `backend`, `n_locations` and `distribute` are required."""

    # Hypothesis warns that a strategy uses the global `random` if its state changes meanwhile;
    # threads of an engine change it too (Dask's retries draw random delays).
    pytestmark: ClassVar[pytest.MarkDecorator | Sequence[pytest.MarkDecorator]] = (
        pytest.mark.filterwarnings("ignore:Do not use the `random` module inside")
    )

    backend: ClassVar[str]
    """Name of the backend."""

    locations_are_elsewhere: ClassVar[bool] = True
    """Whether locations are processes other than the one that calls ``split``."""

    examples: ClassVar[int] = 10
    """Examples that hypothesis draws for each property."""

    max_pickle_bytes_per_block: ClassVar[int] = 400
    """Maximum size of a pickled partition per block, in bytes."""

    timeout: ClassVar[float] = 120
    """Seconds to wait for a result before the test fails as a hang."""

    schedule: str | None = None
    """Schedule of :meth:`split_collections`, in place of the tests' own partitions per location."""

    @property
    @abc.abstractmethod
    def n_locations(self) -> int:
        """Number of locations at which :meth:`distribute` can put blocks."""

    @abc.abstractmethod
    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        """Return a collection of these blocks, concatenated along axis 0 and all in memory.

        Parameters
        ----------
        blocks : sequence of ndarray
            The blocks; some may have no rows.
        placement : sequence of int, same length
            Number of the only location (below :attr:`n_locations`) at which each block must be.
        """

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any | None:
        """Return a collection whose blocks form a grid of several axes; ``None`` if none can.

        Parameters
        ----------
        blocks : sequence of ndarray
            The blocks in C order.
        chunks : sequence of sequence of int
            Sizes of the blocks along each axis.
        placement : sequence of int
            As in :meth:`distribute`.
        """
        return None

    def distribute_shared(self, blocks: Sequence[Block]) -> Any | None:
        """Return a collection of these blocks, each of which every location holds.

        ``None``, the default, if :meth:`spliter.backend.Executor.submit_among` is not implemented.
        """
        return None

    def collect(self, futures: Iterable[Any]) -> list[Any]:
        """Wait for futures, each for at most :attr:`timeout` seconds; return their results."""
        return [future.result(timeout=self.timeout) for future in futures]

    def values_of(self, collection: Any) -> npt.NDArray[Any]:
        """Return a collection that ``Split.map_blocks`` returned, assembled as one array.

        By default, lists are concatenated, nested ones as by ``numpy.block``, and anything else is
        converted to an array.
        """
        if not isinstance(collection, list):
            return np.asarray(collection)
        is_nested = isinstance(collection[0], list)
        return np.block(collection) if is_nested else np.concatenate(collection)

    def where_it_runs(self) -> Callable[[Partition], str] | None:
        """Return a function that, run in a task, returns its location; ``None`` if unknown."""
        return None

    def incoming_transfers(self) -> float | None:
        """Return how often the locations have received data from each other so far.

        A number that grows with each transfer (bytes will do as well); ``None``, the default, if
        nothing can be moved.
        """
        return None

    def move_something(self, collection: Any) -> None:
        """Have the engine move a block of a collection from one location to another.

        Positive control of :meth:`incoming_transfers`, required with it. The collection is a result
        of :meth:`distribute`, with blocks at every location.
        """
        # Not abstract: an engine without a counter needs no control.
        raise NotImplementedError("a counter of transfers needs a positive control")

    def in_turn(self, nblocks: int) -> list[int]:
        """Return a placement of the blocks round-robin over the locations."""
        return [number % self.n_locations for number in range(nblocks)]

    def encoded(
        self, lengths: Sequence[int], placement: Sequence[int] | None = None, *further: int
    ) -> Any:
        """Distribute index-encoded blocks: `lengths` along axis 0, `further` axes whole."""
        blocks = index_encoded_blocks([lengths, *((size,) for size in further)])
        return self.distribute(blocks, placement or self.in_turn(len(lengths)))

    def split_of(self, *lengths: int, partitions_per_location: int | None = None) -> Split:
        """Split an index-encoded collection with blocks of these lengths."""
        return self.split_collections(
            self.encoded(lengths), partitions_per_location=partitions_per_location
        )

    def split_collections(self, *collections: Any, **options: Any) -> Split:
        """Split aligned collections, by :attr:`schedule` if the test has set it."""
        if self.schedule is not None:
            options |= {"partitions_per_location": None, "schedule": self.schedule}
        return split(*collections, **options)


def whole(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return all items of an index-encoded collection of one axis."""
    return np.arange(sum(lengths), dtype=np.int64)
