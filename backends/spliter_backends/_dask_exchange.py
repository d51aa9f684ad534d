"""What runs on Dask workers to let tasks that run at the same time exchange values.

Each sends its value to the workers of all others, which keep it until the task there asks::

    at one worker     allgather(a) ── a ──> ┐           ┌ [a, b]
    at another           ┌ <── b ────────── allgather(b)└ [a, b]

A task waits for the others no longer than a few times as long as it worked itself: one of them may
be behind a task that waits for this one, or never come.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Collection, Sequence
from pickle import dumps, loads
from typing import Any, Final, TypeAlias

from distributed import Worker, get_worker

from spliter import Location
from spliter_backends._dask_post import Post

LEAST_PATIENCE: Final = 1.0
"""Seconds that a task waits for the others at least: so much later may one of them begin."""

TIMES_AS_LONG: Final = 2.0
"""Besides, how many times as long as it has worked itself since the last exchange."""

Member: TypeAlias = tuple[str, int]
"""The name of an exchange, and the number of one of its tasks."""


class DaskExchange:
    """Lets a task exchange values with others; see :class:`spliter.Exchange`.

    Parameters
    ----------
    name : str
        A new one for each run of the tasks.
    number : int
        Of the task among all.
    locations : sequence of Location
        Workers of all tasks, in the order of the numbers.
    """

    def __init__(self, name: str, number: int, locations: Sequence[Location]) -> None:
        self._name = name
        self._number = number
        self._locations = tuple(locations)
        self._round = 0
        self._since: float | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"<DaskExchange: {self._number} of {len(self._locations)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A task that is run again begins again.
        return DaskExchange, (self._name, self._number, self._locations)

    def begin(self) -> None:
        """Count from now how long the task works until its first exchange."""
        self._since = time.monotonic()

    def allgather(self, value: Any) -> list[Any] | None:
        """Send a value to all, and wait for theirs; see :class:`spliter.Exchange`."""
        if self._is_over:
            return None
        worker = get_worker()
        pickled = dumps(value, protocol=5)
        others = [at for at in range(len(self._locations)) if at != self._number]
        worked = 0.0 if self._since is None else time.monotonic() - self._since
        patience = LEAST_PATIENCE + TIMES_AS_LONG * worked
        at = (self._round, self._number)
        for other in others:
            member = (self._name, other)
            Post.of(worker).send([self._locations[other]], put, member, at, pickled, patience)
        member = (self._name, self._number)
        found = _Box.of(worker).wait(member, self._round, others, patience)
        if found is None:
            self._is_over = True
            return None
        self._round += 1
        self._since = time.monotonic()
        return [
            value if at == self._number else loads(found[at]) for at in range(len(self._locations))
        ]


class _Box:
    """Values that a worker was sent and that no task there has asked for yet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._values: dict[Member, dict[tuple[int, int], bytes]] = {}
        self._until: dict[Member, float] = {}

    @staticmethod
    def of(worker: Worker) -> _Box:
        """Return the one of a worker."""
        with _boxes_lock:
            return _boxes.setdefault(worker, _Box())

    def put(self, member: Member, at: tuple[int, int], pickled: bytes, patience: float) -> None:
        """Keep a value for one of the tasks here, and drop what nobody has asked for in time."""
        now = time.monotonic()
        with self._changed:
            for old in [one for one, until in self._until.items() if until < now]:
                self._drop(old)
            self._values.setdefault(member, {})[at] = pickled
            self._until[member] = max(self._until.get(member, now), now + patience)
            self._changed.notify_all()

    def wait(
        self, member: Member, number: int, others: Collection[int], timeout: float
    ) -> dict[int, bytes] | None:
        """Take what others have sent to a task in one round; None if that does not come in time."""
        wanted = {(number, other) for other in others}
        with self._changed:
            has_come = self._changed.wait_for(
                lambda: wanted <= self._values.get(member, {}).keys(), timeout
            )
            if not has_come:
                self._drop(member)
                return None
            values = self._values[member] if wanted else {}
            found = {at[1]: values.pop(at) for at in wanted}
            if not values:
                self._drop(member)
        return found

    def _drop(self, member: Member) -> None:
        self._values.pop(member, None)
        self._until.pop(member, None)


_boxes: weakref.WeakKeyDictionary[Worker, _Box] = weakref.WeakKeyDictionary()
_boxes_lock = threading.Lock()


def put(
    worker: Worker, member: Member, at: tuple[int, int], pickled: bytes, patience: float
) -> None:
    """Keep a value for a task that will ask for it, or is waiting.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    member : tuple of (str, int)
        Exchange and task.
    at : tuple of (int, int)
        Number of the round, and of the task that has sent it.
    pickled : bytes
        The value.
    patience : float
        Seconds until the sender waits for the task no more: it is gone by then, or moved.
    """
    Post.of(worker).nbytes += len(pickled)
    _Box.of(worker).put(member, at, pickled, patience)
