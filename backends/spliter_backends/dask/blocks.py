"""Client-side blocks of a Split over Dask collections.

Keeps the futures of the blocks, so that their data stays alive; copies aligned blocks to the
partitions' workers; counts the moved blocks that tasks report.
"""

from __future__ import annotations

import functools
import itertools
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from dask.typing import Key
from distributed import Client, Future

from spliter import InvalidArgumentError, Location, Movement
from spliter.backend import Blocks, IntArray, Placement, PlannedPartition
from spliter_backends._shared.collection_blocks import CollectionBlocks
from spliter_backends._shared.dask_graph import example_block
from spliter_backends.dask.client.environment import check_environment
from spliter_backends.dask.client.queries import BlockQueries
from spliter_backends.dask.client.source import ClientSource
from spliter_backends.dask.executor import DaskExecutor
from spliter_backends.dask.worker.source import View, WorkerSource

CANDIDATES: Final = 4
"""Workers the planner may choose from for a block that only paused workers hold: enough to balance,
few enough that the plan does not grow with the cluster."""

Place: TypeAlias = tuple[int, int, str]
"""Number of an aligned collection, position of a block in it, and a worker."""

ViewOf: TypeAlias = Callable[[PlannedPartition], View]
"""Returns the view of a planned partition: what its tasks yield instead of plain blocks."""


@dataclass(frozen=True, eq=False)
class PersistedCollection(CollectionBlocks[Future[Any]]):
    """A collection whose blocks are futures.

    matching: For each block of the first collection, the position of the block that belongs to it;
        by default the one with the same rows.
    meta: The collection's empty block; ``None`` for lists and bags.
    divisions: Of a DataFrame, if known.
    """

    matching: IntArray | None = None
    meta: Any = None
    divisions: tuple[Any, ...] | None = None


class DaskBlocks(Blocks):
    """The blocks of one or several aligned collections on a Dask cluster."""

    executor: DaskExecutor

    spread_advice = "client.rebalance() spreads the blocks over the workers; then split again."

    replicate_advice = (
        ", or call client.amm.stop(), client.replicate(collection) and split again (unless it is "
        "stopped, Dask's active memory manager drops replicas within 2 s)"
    )

    def __init__(
        self,
        client: Client,
        executor: DaskExecutor,
        members: Sequence[PersistedCollection],
        view: ViewOf | None = None,
    ) -> None:
        # A view combines all members to one collection.
        super().__init__([one.grid for one in (members if view is None else members[:1])], executor)
        self.client = client
        self._view = view
        self._members = list(members)
        self._queries = BlockQueries(client)
        self._token = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._topic = _listen(client, self._token, self)
        self._sources: weakref.WeakSet[ClientSource] = weakref.WeakSet()
        self._aligned_holders: list[Mapping[Key, Sequence[str]]] = []
        self._copies: weakref.WeakValueDictionary[Place, Future[Any]] = (
            weakref.WeakValueDictionary()
        )

    def locate(self) -> Placement:
        """Query the holders of the blocks; see :class:`spliter.backend.Blocks`."""
        self.counter.drifted = False
        first, *aligned = self._members
        holders = self._queries.wait_for_holders(first.blocks, first.grid)
        self._aligned_holders = [
            self._queries.wait_for_holders(member.blocks, member.grid) for member in aligned
        ]
        check_environment(self.client, set().union(*holders.values()))
        nbytes = self._queries.sizes(first.blocks) if first.nbytes is None else first.nbytes
        held = [holders[future.key] for future in first.blocks]
        return Placement.of(usable_holders(held, self.executor.available_workers()), nbytes)

    def example(self) -> Any:
        """Return a small block made from the metadata."""
        if self._view is not None:
            return None
        examples = [example_block(member.meta, member.grid) for member in self._members]
        if any(example is None for example in examples):
            return None
        return tuple(examples) if len(examples) > 1 else examples[0]

    @property
    def divisions(self) -> tuple[Any, ...] | None:
        """The divisions of the first collection, if they are known."""
        return self._members[0].divisions

    @property
    def may_have_columns(self) -> bool:
        """Whether some blocks are no NumPy arrays, as far as the client has been notified."""
        return any(future.type is not np.ndarray for one in self._members for future in one.blocks)

    def sources(self, planned: Sequence[PlannedPartition]) -> Sequence[ClientSource]:
        """Return the sources of planned partitions; copy aligned blocks to their workers."""
        if len(self._members) > 1 and any(part.holders for part in planned):
            raise InvalidArgumentError(
                "steal=True takes one collection, because blocks of aligned ones are copied to one "
                "location; put them into one collection, or leave steal out"
            )
        first = self._members[0]
        places = [self._aligned_places(part) for part in planned]
        copies = self._copy_aligned(
            place for of_part in places for column in of_part for place in column
        )
        made = []
        for part, of_part in zip(planned, places, strict=True):
            own = [first.blocks[at] for at in part.positions.tolist()]
            aligned = [
                [copies.get(place) or self._block_of(place) for place in column]
                for column in of_part
            ]
            every = [own, *aligned]
            sent = WorkerSource(
                members=tuple(tuple(future.key for future in member) for member in every),
                nbytes=part.nbytes,
                positions=part.positions,
                grid_shape=first.grid.shape,
                topic=self._topic,
                token=self._token,
                client=self.client.id,
                materialized_key=f"spliter-materialized-{self._token}-{next(self._numbers)}",
                timeout=self._queries.timeout,
                view=None if self._view is None else self._view(part),
                shared=bool(part.holders),
                prefetch=self.prefetch,
            )
            made.append(ClientSource(sent, every, self.executor.release))
        self._sources.update(made)
        return made

    def _aligned_places(self, part: PlannedPartition) -> list[list[Place]]:
        """Return the places of the aligned blocks, for each aligned collection."""
        rows = self._members[0].grid.rows(part.positions)
        found = []
        for number, member in enumerate(self._members[1:], start=1):
            column = rows if member.matching is None else member.matching[part.positions]
            found.append([(number, at, str(part.location)) for at in column.tolist()])
        return found

    def _block_of(self, place: Place) -> Future[Any]:
        return self._members[place[0]].blocks[place[1]]

    def _copy_aligned(self, wanted: Iterable[Place]) -> Mapping[Place, Future[Any]]:
        """Copy aligned blocks to the workers of the first collection's blocks.

        A copy has a new key, so that neither Dask's memory manager, which drops surplus replicas,
        nor a rebalance removes it. It is freed when no partition uses it.
        """
        copies: dict[Place, Future[Any]] = {}
        new: dict[Place, Future[Any]] = {}
        if not self._aligned_holders:
            return copies
        for place in wanted:
            number, _, location = place
            future = self._block_of(place)
            if place in copies or location in self._aligned_holders[number - 1][future.key]:
                continue
            copy = self._copies.get(place)
            if copy is None:
                new[place] = future
            else:
                copies[place] = copy
        if new:
            made = self.executor.copy_to(
                [(Location(place[2]), future) for place, future in new.items()]
            )
            made_at = dict(zip(new, made, strict=True))
            copies.update(made_at)
            self._copies.update(made_at)
            self._queries.wait_done(made, functools.partial(self._aligned_indexes, list(new)))
            nbytes = int(self._queries.sizes(made).sum())
            self.counter.add(Movement(aligned_blocks=len(made), aligned_nbytes=nbytes))
        return copies

    def _aligned_indexes(self, places: Sequence[Place], copies: IntArray) -> list[tuple[int, ...]]:
        """Return the indexes of copied blocks, each in its own collection."""
        numbered = (places[at] for at in copies.tolist())
        return [self._members[number].grid.index(at) for number, at, _ in numbered]

    def record_drift(self, blocks: int, nbytes: int) -> None:
        """Count the blocks that a task had to fetch from workers other than planned."""
        self.counter.add(Movement(fetched_blocks=blocks, fetched_nbytes=nbytes), drifted=True)

    def close(self) -> None:
        """Release the futures of blocks, copies and partitions."""
        for source in self._sources:
            source.release()
        self._members = [PersistedCollection(one.grid, ()) for one in self._members]


def usable_holders(
    holders: Sequence[Sequence[str]], available: Mapping[str, int]
) -> Sequence[Sequence[str]]:
    """Return the workers where each block can be used: its available holders, if any.

    A block whose holders have all been paused for long is planned at another worker. The first task
    there copies it, and that worker becomes one of its holders. `available` are the threads of each
    worker that runs tasks.

    Examples
    --------
    >>> usable_holders([["a"], ["a", "b"], ["b"]], {"b": 1, "c": 1})
    [['b', 'c'], ['b'], ['b']]
    """
    if available.keys() >= {worker for held in holders for worker in held}:
        return holders
    workers = sorted(available)
    usable: list[Sequence[str]] = []
    for at, held in enumerate(holders):
        left = [worker for worker in held if worker in available]
        # A window of workers, another one for each block: the planner balances within it.
        end = at + min(len(workers), CANDIDATES)
        usable.append(left or [workers[number % len(workers)] for number in range(at, end)])
    return usable


_listeners: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, DaskBlocks]]
_listeners = weakref.WeakKeyDictionary()
_listeners_lock = threading.Lock()


def _listen(client: Client, token: str, blocks: DaskBlocks) -> str:
    """Register `blocks` for drift reports of tasks; return the topic.

    There is one subscription per client.
    """
    topic = f"spliter-drift-{client.id}"
    with _listeners_lock:
        if client not in _listeners:
            listening: weakref.WeakValueDictionary[str, DaskBlocks] = weakref.WeakValueDictionary()
            _listeners[client] = listening

            def receive(event: tuple[float, Mapping[str, Any]]) -> None:
                _, report = event
                found = listening.get(report["split"])
                if found is not None:
                    found.record_drift(report["blocks"], report["nbytes"])

            client.subscribe_topic(topic, receive)
        _listeners[client][token] = blocks
    return topic
