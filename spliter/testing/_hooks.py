"""What a backend's tests have to fill in for the conformance suite."""

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


class BackendHooks(abc.ABC):
    """How the suite reaches one engine: two hooks to fill in, and others to override."""

    # Hypothesis takes the global `random` for used by a strategy if its state changes meanwhile;
    # an engine's own threads (Dask's, when they wait before they try again) change it too.
    pytestmark: ClassVar[pytest.MarkDecorator | Sequence[pytest.MarkDecorator]] = (
        pytest.mark.filterwarnings("ignore:Do not use the `random` module inside")
    )

    backend: ClassVar[str]
    """Name of the backend."""

    locations_are_elsewhere: ClassVar[bool] = True
    """Whether the locations are other processes than the one that calls ``split``."""

    examples: ClassVar[int] = 10
    """Collections that a property is tried on."""

    max_pickle_bytes_per_block: ClassVar[int] = 400
    """What a pickled partition may take for each block."""

    timeout: ClassVar[float] = 120
    """Seconds after which a result that has not come counts as a hang."""

    @property
    @abc.abstractmethod
    def n_locations(self) -> int:
        """How many locations :meth:`distribute` can put blocks at."""

    @abc.abstractmethod
    def distribute(self, blocks: Sequence[Block], placement: Sequence[int]) -> Any:
        """Return a collection of these blocks, one after the other along axis 0.

        Parameters
        ----------
        blocks : sequence of ndarray
            The blocks; some may have no rows.
        placement : sequence of int, same length
            Number of the location, below :attr:`n_locations`, where each block must be,
            and nowhere else.

        Returns
        -------
        collection
            Something that ``split`` takes, all in memory.
        """

    def distribute_grid(
        self, blocks: Sequence[Block], chunks: Sequence[Sequence[int]], placement: Sequence[int]
    ) -> Any | None:
        """Return a collection whose blocks form a grid of several axes.

        Parameters
        ----------
        blocks : sequence of ndarray
            The blocks in C order.
        chunks : sequence of sequence of int
            Sizes of the blocks along each axis.
        placement : sequence of int
            As in :meth:`distribute`.

        Returns
        -------
        collection or None
            ``None`` (as here) if the engine has no collections with such grids.
        """
        return None

    def collect(self, futures: Iterable[Any]) -> list[Any]:
        """Wait for futures, for :attr:`timeout` seconds at most each.

        Parameters
        ----------
        futures : iterable of future
            The engine's own.

        Returns
        -------
        list
            Their results, in order.
        """
        return [future.result(timeout=self.timeout) for future in futures]

    def values_of(self, collection: Any) -> npt.NDArray[Any]:
        """Return the blocks of a collection that the engine has assembled as one array.

        Parameters
        ----------
        collection : collection
            What ``Split.map_blocks`` returned.

        Returns
        -------
        ndarray
            Lists (as here) are concatenated, anything else is turned into an array.
        """
        return (
            np.concatenate(collection) if isinstance(collection, list) else np.asarray(collection)
        )

    def where_it_runs(self) -> Callable[[Partition], str] | None:
        """Return a function that, run in a task, tells the location it runs at.

        Returns
        -------
        callable or None
            ``None`` (as here) if the engine cannot tell.
        """
        return None

    def incoming_transfers(self) -> float | None:
        """Return how often the locations have received something from each other so far.

        Returns
        -------
        number or None
            Grows with each transfer (bytes will do as well); ``None`` (as here) if
            nothing can be moved.
        """
        return None

    def move_something(self, collection: Any) -> None:
        """Have the engine move a block from one location to another.

        The positive control of :meth:`incoming_transfers`, required with it.

        Parameters
        ----------
        collection : collection
            What :meth:`distribute` has returned, with blocks at every location.
        """
        # Not abstract: an engine without a counter has nothing to control.
        raise NotImplementedError("a counter of transfers needs a positive control")

    def in_turn(self, nblocks: int) -> list[int]:
        """Return a placement that gives the locations blocks in turn."""
        return [number % self.n_locations for number in range(nblocks)]

    def encoded(
        self, lengths: Sequence[int], placement: Sequence[int] | None = None, *further: int
    ) -> Any:
        """Distribute index-encoded blocks: `lengths` along axis 0, `further` axes whole."""
        blocks = index_encoded_blocks([lengths, *((size,) for size in further)])
        return self.distribute(blocks, placement or self.in_turn(len(lengths)))

    def split_of(self, *lengths: int, partitions_per_location: int | None = None) -> Split:
        """Split an index-encoded collection of blocks of these lengths."""
        return split(self.encoded(lengths), partitions_per_location=partitions_per_location)


def whole(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return all items of an index-encoded collection of one axis."""
    return np.arange(sum(lengths), dtype=np.int64)
