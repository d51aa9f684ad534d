"""An engine whose blocks are where the test says, to try the core without a real one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from spliter import BlockGrid, Location, Movement, Split
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter.backend import Blocks, BlockSource, Placement, PlannedPartition, concatenate
from spliter_backends.local import LocalExecutor

BLOCK_BYTES = 8


@dataclass(frozen=True)
class FakeSource(BlockSource):
    """Reads blocks out of the engine's list."""

    values: Sequence[Any]
    positions: Sequence[int]

    def read(self) -> Iterator[Any]:
        """Yield the blocks."""
        return iter([self.values[position] for position in self.positions])

    def materialized(self) -> Any:
        """Return them as one."""
        return concatenate(self.read())


class FakeBlocks(Blocks):
    """Blocks that the test moves about by changing `holders`."""

    def __init__(
        self,
        values: Sequence[Any],
        holders: Sequence[Sequence[str]],
        *grids: BlockGrid,
        nbytes: int = BLOCK_BYTES,
    ) -> None:
        own = BlockGrid.from_chunks([[len(value) for value in values]])
        super().__init__(grids or (own,), FakeExecutor())
        self.values = values
        self.holders = [list(held) for held in holders]
        self.nbytes = nbytes
        self.counter.add(Movement(1, 10, 2, 20))  # something recognisable
        self.closed = 0
        self.asked: list[list[list[int]]] = []
        """Positions of the partitions that sources were asked for, per request."""

    def locate(self) -> Placement:
        """Return where the test has put them."""
        self.counter.drifted = False
        return Placement.of(self.holders, np.full(len(self.holders), self.nbytes))

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[FakeSource]:
        """Return a source for each."""
        self.asked.append([part.positions.tolist() for part in planned])
        return [FakeSource(self.values, part.positions.tolist()) for part in planned]

    def close(self) -> None:
        """Count the calls."""
        self.closed += 1


@dataclass(frozen=True)
class Call:
    """One call of `FakeExecutor.submit`."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    location: Location | None
    future: Any


class FakeExecutor(LocalExecutor):
    """Runs tasks on one thread and remembers what was submitted, and where to."""

    def __init__(self, cores: int = 1) -> None:
        super().__init__(threads=1)
        self.cores = cores
        self.may_block = True
        self.free: Mapping[Location, int | None] = {}
        self.calls: list[Call] = []

    def capacities(self, locations: Collection[Location]) -> Mapping[Location, int]:
        """Return the same number for all."""
        return dict.fromkeys(locations, self.cores)

    def submit(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        location: Location | None = None,
    ) -> Any:
        """Remember, and run."""
        future = super().submit(fn, args, kwargs)
        self.calls.append(Call(fn, args, kwargs, location, future))
        return future

    def free_memory(self, locations: Collection[Location]) -> Mapping[Location, int | None]:
        """Return what the test says."""
        return self.free

    def location_of(self, future: Any) -> Location | None:
        """Return what it was submitted with."""
        return next((call.location for call in self.calls if call.future is future), None)

    def blocking_call_allowed(self) -> bool:
        """Whether the test says so."""
        return self.may_block


def fake_split(
    values: Sequence[Any],
    holders: Sequence[Sequence[str]],
    *grids: BlockGrid,
    partitions_per_location: int | None = None,
    materialize: Literal["auto"] | bool = False,
    nbytes: int = BLOCK_BYTES,
    free: Mapping[Location, int | None] | None = None,
) -> tuple[Split, FakeBlocks, FakeExecutor]:
    """Split blocks of `nbytes` each, held at the given locations (``"AB"`` is at A and at B)."""
    blocks, executor = FakeBlocks(values, holders, *grids, nbytes=nbytes), FakeExecutor()
    executor.free = free or {}
    options = SplitOptions(partitions_per_location, materialize=materialize)
    return Split(Plan(blocks, executor, options)), blocks, executor
