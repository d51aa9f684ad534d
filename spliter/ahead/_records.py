"""The records of a region: absent, requested or present.

A record that was requested before it was stored anew, by whoever calls
:func:`spliter.backend.refetch_record`, counts as absent when it arrives.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from spliter._errors import InvalidArgumentError
from spliter._format import describe_type
from spliter._reading.keys import identity_of, plain_key
from spliter._reading.lookup import Lookup, RecordSource, on_put

Identity: TypeAlias = tuple[Hashable, str]
Order: TypeAlias = tuple[int, ...]
"""Place of a call in the program: its number in its `map`, after those of the calls around it."""

ABSENT: Final = object()
"""In place of a record that is not present."""


@dataclass(eq=False, slots=True)
class Waiter:
    """What waits for records: the program, or one of its calls."""

    on_ready: Callable[[], object]
    left: int = 0
    error: Exception | None = None
    """The first of the requests of its records."""
    is_dropped: bool = False

    def wake(self, error: Exception | None) -> None:
        """Count a record that has arrived, or whose request has failed."""
        self.left -= 1
        self.error = self.error or error
        if not self.left:
            self.on_ready()


@dataclass(eq=False, slots=True)
class Wanted:
    """A record that is to be requested, or is requested."""

    key: Any
    identity: Identity
    waiters: list[Waiter] = field(default_factory=list)
    asked: int = -1
    """Number of puts before its request; -1 if it was not sent."""


@dataclass(eq=False, slots=True)
class Present:
    """A record, or None if the source has none."""

    record: Any
    asked: int
    is_used: bool = False


class Records:
    """What a region knows of the records of a source."""

    def __init__(self, source: RecordSource) -> None:
        self.source: RecordSource = source
        self._lookup = Lookup(source, tuple, None)
        self._present: dict[Identity, Present] = {}
        self._wanted: dict[Identity, Wanted] = {}
        self._queue: list[tuple[Order, int, Wanted]] = []  # a heap; may have some that were dropped
        self._puts: dict[Hashable, int] = {}
        self._name_of: Callable[[Any], Hashable] = plain_key
        self._nwanted = 0
        self.nputs: int = 0
        self.nkeys: int = 0
        self.nbatches: int = 0
        self.fastest: float = math.inf
        """Seconds of the fastest request."""
        on_put(self)

    @property
    def max_batch(self) -> int:
        """Maximum number of keys in a request."""
        return int(self.source.max_batch)

    @property
    def unused(self) -> int:
        """Number of records that were fetched and never read."""
        return sum(not entry.is_used for entry in self._present.values())

    def identify(self, key: Any) -> tuple[Any, Identity]:
        """Return a key as Python's own object, and what it is known by.

        Raises
        ------
        InvalidArgumentError
            If it stands for a missing value, or cannot be hashed.
        """
        plain = plain_key(key)
        identity = identity_of(plain)
        try:
            hash(identity)
        except TypeError:
            raise InvalidArgumentError(
                f"the key {key!r} cannot be hashed; make a tuple or a text of it"
            ) from None
        return plain, identity

    def find(self, identity: Identity) -> Any:
        """Return a record that is present, or ABSENT."""
        entry = self._present.get(identity)
        if entry is None:
            return ABSENT
        if self._puts and self._is_stale(identity, entry.asked):
            del self._present[identity]
            return ABSENT
        entry.is_used = True
        return entry.record

    def is_used(self, identity: Identity) -> bool:
        """Return whether a record was fetched and read."""
        entry = self._present.get(identity)
        return entry is not None and entry.is_used

    def _is_stale(self, identity: Identity, asked: int) -> bool:
        return asked < self._puts.get(self._name_of(identity[0]), 0)

    def note_put(self, source: RecordSource, key: Any, name_of: Callable[[Any], Hashable]) -> None:
        """Count a record that was stored anew; called from any thread."""
        if source is self.source:
            self.nputs += 1
            self._name_of = name_of
            self._puts[name_of(key)] = self.nputs

    def keep(self, identity: Identity, record: Any) -> None:
        """Have a record that was just stored."""
        self._present[identity] = Present(record, self.nputs, is_used=True)

    def want(self, key: Any, identity: Identity, waiter: Waiter, order: Order) -> None:
        """Have a record requested, once, and a waiter woken when it has arrived."""
        wanted = self._wanted.get(identity)
        if wanted is None or (wanted.asked >= 0 and self._is_stale(identity, wanted.asked)):
            wanted = self._wanted[identity] = Wanted(key, identity)
            self._nwanted += 1
            heapq.heappush(self._queue, (order, self._nwanted, wanted))
        wanted.waiters.append(waiter)
        waiter.left += 1

    def next_batch(self, least: int) -> list[Wanted]:
        """Return the keys of the next request in program order; none if there are fewer."""
        if len(self._queue) < least:
            return []
        batch: list[Wanted] = []
        while self._queue and len(batch) < self.max_batch:
            *_, wanted = heapq.heappop(self._queue)
            if any(not one.is_dropped for one in wanted.waiters):
                batch.append(wanted)
                wanted.asked = self.nputs
            else:
                del self._wanted[wanted.identity]
        return batch

    def fetch(self, batch: Sequence[Wanted]) -> Sequence[Any]:
        """Return the records of a batch; runs in any thread."""
        return self._lookup.fetch([wanted.key for wanted in batch])

    def settle(
        self, batch: Sequence[Wanted], found: Sequence[Any], error: Exception | None
    ) -> None:
        """Have the records of a request, or forget them if it failed; wake those that wait."""
        self.nbatches += 1
        self.nkeys += len(batch)
        for at, wanted in enumerate(batch):
            if self._wanted.get(wanted.identity) is wanted:
                del self._wanted[wanted.identity]
            if error is None and self._has_older(wanted):
                self._present[wanted.identity] = Present(found[at], wanted.asked)
        for wanted in batch:
            for waiter in wanted.waiters:
                waiter.wake(error)

    def _has_older(self, wanted: Wanted) -> bool:
        entry = self._present.get(wanted.identity)
        return entry is None or entry.asked < wanted.asked

    def put(self, key: Any, record: Any) -> None:
        """Store a record in the source, and have it.

        Raises
        ------
        InvalidArgumentError
            If the source cannot store records.
        """
        put = getattr(self.source, "put", None)
        if not callable(put):
            raise InvalidArgumentError(
                f"{describe_type(self.source)} has no put(key, record); it can only be read"
            )
        plain, identity = self.identify(key)
        put(plain, record)
        self.keep(identity, record)
