"""Fetch the records whose keys stand in the blocks of a partition, while the loop works.

The keys of a block are cut into batches, each key once. Threads of the process fetch the batches
of the following blocks while the loop works on this one (:mod:`spliter._reading.read_ahead`)::

    loop      keys 0, 1, 2 | wait | work 0 | keys 3 | work 1 | ...
    threads   batches of 0 -------|
              batches of 1 -----------------|
                batches of 2 -----------------------|

Blocks are requested and ``keys`` is called by the loop's own thread, in order.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from spliter._checks import check_choice, check_count, lazy_kind, name_of
from spliter._errors import InvalidArgumentError
from spliter._format import describe_type
from spliter._reading.keys import identity_of, plain_key
from spliter._reading.kinds import checked
from spliter._reading.pace import MAX_DEPTH, Pace, Prefetch, check_prefetch
from spliter._reading.read_ahead import (
    LookAhead,
    ReadAhead,
    TimedRead,
    start_read,
    timed,
    window_of,
)

Keys: TypeAlias = Callable[[Any], Iterable[Hashable]]
Missing: TypeAlias = Literal["raise"] | None
Records: TypeAlias = dict[tuple[Hashable, str], Any]
"""Records by the identity of their key."""

MAX_REQUESTS: Final = MAX_DEPTH
"""Requests of one loop that are pending at most; a block may need more than one."""


WORTHWHILE_SECONDS: Final = 0.0003
"""Requests that are faster are left to the loop. Unlike reads of blocks they wait for a server: at
0.5 ms, threads make a loop with NumPy 1.4 times as fast. One in pure Python, which computes while
a thread needs the interpreter, is up to 1.2 times as slow."""


class RecordSource(Protocol):
    """Records by key: a key-value store, a table, a service.

    It is sent to tasks: pickled it has options alone, and it connects when it is first used. Its
    methods are called in several threads at once. A source that can store records also has a method
    ``put(key, record)``, which ends with :func:`refetch_record`.

    Examples
    --------
    >>> class Squares:
    ...     max_batch = 100
    ...
    ...     def get(self, key):
    ...         return self.get_many([key])[0]
    ...
    ...     def get_many(self, keys):
    ...         return [key**2 if key >= 0 else None for key in keys]
    >>> import numpy as np
    >>> from spliter import split
    >>> (part,) = split([np.array([1, 2, 1]), np.array([-1])], partitions_per_location=1)
    >>> part.submit(lambda part: list(part.lookup(Squares(), lambda block: block))).result()
    [(array([1, 2, 1]), [1, 4, 1]), (array([-1]), [None])]
    """

    @property
    def max_batch(self) -> int:
        """Maximum number of keys in a call of :meth:`get_many`."""
        ...

    def get(self, key: Any) -> Any:
        """Return the record of a key; ``None`` if there is none."""
        ...

    def get_many(self, keys: Sequence[Any]) -> Sequence[Any]:
        """Return a record, or ``None``, for each of several keys, in their order.

        Keys are Python's own objects, not NumPy's. Those that are equal but look different, such as
        1, 1.0 and True, are different keys.
        """
        ...


@dataclass(frozen=True)
class Lookup:
    """What is fetched for each block: `keys` returns its keys, and `source` has their records.

    `missing` is "raise" if a key without a record is an error. Refuses what cannot be used.
    """

    source: RecordSource
    keys: Keys
    missing: Missing

    def __post_init__(self) -> None:
        source = describe_type(self.source)  # not its repr: a text may be a URL with a password
        get_many, most = (getattr(self.source, name, None) for name in ("get_many", "max_batch"))
        if not callable(get_many) or isinstance(self.source, type):
            raise InvalidArgumentError(
                f"the source must be an object with get_many(keys) and max_batch, got {source}; "
                "see spliter.backend.RecordSource"
            )
        check_count(f"max_batch of {source}", most)
        _check_plain(get_many, f"get_many of {source}")
        if not callable(self.keys):
            raise InvalidArgumentError(
                f"keys must be a function that returns the keys of a block, got {self.keys!r}"
            )
        _check_plain(self.keys, f"keys={name_of(self.keys)}")
        check_choice("missing", self.missing, None, "raise")

    def keys_of(self, block: Any) -> list[Hashable]:
        """Return the keys of a block, as Python's own objects."""
        keys: Any = self.keys(block)
        one_axis = getattr(keys, "ndim", 1) == 1 and not isinstance(keys, str | bytes)
        if not one_axis or not isinstance(keys, Iterable):
            _close_coroutine(keys)
            raise InvalidArgumentError(
                f"keys={name_of(self.keys)} must return keys, one after the other along one axis, "
                f"got {describe_type(keys)}"
            )
        if not isinstance(keys, np.ndarray):  # whose times would become integers
            keys = getattr(keys, "tolist", keys.__iter__)()
        return [plain_key(key) for key in keys]

    def batches(self, keys: Sequence[Hashable]) -> list[Batch]:
        """Return batches of the distinct keys."""
        try:
            distinct = list({identity_of(key): key for key in keys}.values())
        except TypeError:
            raise InvalidArgumentError(
                f"keys={name_of(self.keys)} must return keys that can be hashed, got "
                f"{next(key for key in keys if not _is_hashable(key))!r}"
            ) from None
        size = int(self.source.max_batch)
        return [Batch(distinct[at : at + size]) for at in range(0, len(distinct), size)]

    def fetch(self, keys: Sequence[Hashable]) -> Sequence[Any]:
        """Return the records of a batch; runs in any thread."""
        records: Any = self.source.get_many(keys)
        is_sequence = isinstance(records, Sequence) and not isinstance(records, str | bytes)
        if not is_sequence or len(records) != len(keys):
            number = f"{len(records)} records in " if is_sequence else ""
            _close_coroutine(records)
            raise InvalidArgumentError(
                f"get_many of {describe_type(self.source)} must return a list with a record or "
                f"None for each of {len(keys)} keys, got {number}{describe_type(records)}"
            )
        return records  # type: ignore[no-any-return]

    def align(self, keys: Sequence[Hashable], found: Records) -> list[Any]:
        """Return a record for each key of a block; raise if one is missing and must not be."""
        records = [found[identity_of(key)] for key in keys]
        missing = [key for (key, _), record in found.items() if record is None]
        if missing and self.missing == "raise":
            error = KeyError(missing[0])
            error.add_note(f"{len(missing)} of {len(found)} keys of the block have no record")
            raise error
        return records


@dataclass(eq=False)
class Batch:
    """Keys that are fetched by one request."""

    keys: Sequence[Hashable]
    request: TimedRead | None = None
    """None if no thread was asked for it."""

    def by_key(self, records: Sequence[Any]) -> Records:
        """Return its records by the identity of their key."""
        return dict(zip(map(identity_of, self.keys), records, strict=True))


@dataclass(eq=False)
class BlockLookup:
    """A block whose records are being fetched."""

    block: Any = None
    keys: Sequence[Hashable] = ()
    batches: Sequence[Batch] = ()
    error: Exception | None = None
    """Raised by reading the block or its keys."""


class LookupAhead(LookAhead[BlockLookup]):
    """An iterator over blocks and their records that fetches those of the next blocks meanwhile.

    Parameters
    ----------
    nbytes : sequence of int
        Bytes of each block.
    prefetch : "auto", False or int
        For how many blocks to fetch records ahead.
    location : str
        Loops at the same location share one window.
    split : str
        Token of the Split.
    """

    def __init__(
        self,
        blocks: Iterator[Any],
        lookup: Lookup,
        nbytes: Sequence[int],
        prefetch: Prefetch = "auto",
        location: str = "",
        split: str = "",
    ) -> None:
        self._is_closed = True  # for the destructor
        check_prefetch(prefetch)
        window, has_memory = window_of(location), _always
        if isinstance(blocks, ReadAhead):
            window, has_memory = blocks._window, blocks.fetches.has_memory
        super().__init__(nbytes, window, has_memory, split, Pace(prefetch, WORTHWHILE_SECONDS))
        self._blocks = blocks
        self._lookup = lookup
        self._is_threaded = prefetch is not False
        self._fastest_request = math.inf
        self._queue: deque[Batch] = deque()
        self._requests: list[TimedRead] = []
        self._requested = 0  # blocks so far
        self._puts: dict[Hashable, int] = {}  # how many blocks were requested before, by name
        self._name_of: Callable[[Any], Hashable] = _itself
        on_put(self)

    def note_put(self, source: RecordSource, key: Any, name_of: Callable[[Any], Hashable]) -> None:
        """Have a record fetched again for blocks that were begun; called from any thread."""
        if source is self._lookup.source:
            self._name_of = name_of
            self._puts[name_of(key)] = self._requested

    def _begin(self, number: int) -> BlockLookup:
        self._requested = number + 1
        try:
            block = checked(next(self._blocks))
            if number == self._end - 1:
                next(self._blocks, None)  # let it end
            keys = self._lookup.keys_of(block)
            begun = BlockLookup(block, keys, self._lookup.batches(keys))
        except Exception as error:  # noqa: BLE001  whatever it is, it is raised at the block's turn
            self._end = number + 1
            return BlockLookup(error=error)
        self._queue.extend(begun.batches)
        self._request()
        return begun

    _begin_now = _begin

    def _request(self) -> None:
        """Have threads fetch the next batches, unless that takes longer than the requests."""
        self._requests = [request for request in self._requests if not request.done()]
        is_slow = WORTHWHILE_SECONDS <= self._fastest_request < math.inf
        if not self._is_threaded or (self._pace.is_auto and not is_slow):
            return
        while self._queue and len(self._requests) < MAX_REQUESTS:
            batch = self._queue.popleft()
            try:
                batch.request = start_read(self._lookup.fetch, batch.keys)
            except RuntimeError:  # the interpreter is shutting down: the loop fetches it
                return
            self._requests.append(batch.request)

    def _finish(self, number: int, pending: BlockLookup | None) -> tuple[Any, float]:
        assert pending is not None
        if pending.error is not None:
            try:
                raise pending.error
            finally:
                pending.error = None  # the error refers to this frame
        try:
            found, seconds = self._found(number, pending)
        except BaseException:
            self._drop(pending)  # its other requests
            raise
        return (pending.block, self._lookup.align(pending.keys, found)), seconds

    def _found(self, number: int, pending: BlockLookup) -> tuple[Records, float]:
        """Return the records of a block by their keys, and the seconds of its slowest request."""
        found: Records = {}
        slowest = 0.0
        for batch in pending.batches:
            records, seconds = self._fetched(batch)
            found.update(batch.by_key(records))
            slowest = max(slowest, seconds)
            self._fastest_request = min(self._fastest_request, seconds)
            self._request()
        if self._puts:
            names = ((key, self._name_of(key)) for key, _ in found)
            stale = [key for key, name in names if number < self._puts.get(name, 0)]
            for batch in self._lookup.batches(stale):
                found.update(batch.by_key(self._lookup.fetch(batch.keys)))
        return found, slowest if found else math.inf

    def _fetched(self, batch: Batch) -> tuple[Any, float]:
        """Return the records of a batch, from its thread or fetched now."""
        if self._queue and self._queue[0] is batch:
            self._queue.popleft()
        if batch.request is None or batch.request.cancel():
            return timed(self._lookup.fetch, batch.keys)
        return batch.request.result()

    def _drop(self, pending: BlockLookup) -> None:
        for batch in pending.batches:
            if batch.request is not None:
                self._drop_read(batch.request)


class Reader(Protocol):
    """What has records of a source, and must know which were stored anew."""

    def note_put(self, source: RecordSource, key: Any, name_of: Callable[[Any], Hashable]) -> None:
        """Count a record as stored anew, if it is of the reader's source; from any thread."""
        ...


_readers: Final[weakref.WeakValueDictionary[int, Reader]] = weakref.WeakValueDictionary()
"""Loops and regions of this process."""


def on_put(reader: Reader) -> None:
    """Have a reader notified of records that are stored, as long as it lives."""
    _readers[id(reader)] = reader


def refetch_record(
    source: RecordSource, key: Any, name_of: Callable[[Any], Hashable] | None = None
) -> None:
    """Have loops and regions that read a source fetch a record again; to be called by `put`.

    Without it, a loop that has fetched the record for its next blocks would yield the former one.

    Parameters
    ----------
    source : RecordSource
        Theirs: the object itself, in this process.
    key : object
        The key of the record that was stored.
    name_of : callable, optional
        Returns the same for keys of the same record; by default keys that are equal.

    Examples
    --------
    >>> from spliter import split
    >>> class Names(dict):
    ...     max_batch = 10
    ...
    ...     def get_many(self, keys):
    ...         return [self.get(key) for key in keys]
    >>> names = Names({1: "Ada"})
    >>> part = split([[1], [1]], partitions_per_location=1)[0].at_location()
    >>> for _, found in part.lookup(names, lambda block: block, prefetch=1):
    ...     names[1] = found[0] + "!"
    ...     refetch_record(names, 1)
    >>> names
    {1: 'Ada!!'}
    """
    for reference in _readers.valuerefs():  # a copy: other threads begin and end loops
        reader = reference()
        if reader is not None:
            reader.note_put(source, plain_key(key), name_of or _itself)


def _itself(key: Any) -> Hashable:
    return key  # type: ignore[no-any-return]


def _check_plain(fn: Any, name: str) -> None:
    if lazy_kind(fn) == "coroutine":
        raise InvalidArgumentError(
            f"{name} is a coroutine function; it must be a plain one, which threads can run"
        )


def _close_coroutine(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python warns that nobody awaits it


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _always() -> bool:
    return True
