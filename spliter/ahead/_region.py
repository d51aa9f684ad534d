"""The region in which reads share records: what programs use."""

from __future__ import annotations

import asyncio
import builtins
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from spliter._checks import check_count, check_task_function
from spliter._errors import InvalidArgumentError, PackageMissingError
from spliter._reading.lookup import WORTHWHILE_SECONDS, RecordSource
from spliter.ahead._records import ABSENT, Identity, Records, Waiter
from spliter.ahead._requests import Requests
from spliter.ahead._trials import UNMEASURED_SECONDS, Throttle, Trial, TrialEnded, Unknown

if TYPE_CHECKING:
    from spliter.ahead._calls import Calls

MOST_KEYS: Final = 10_000
"""Absent keys of a trial: some seconds of requests, and a loop that never ends without records."""


@dataclass(frozen=True)
class Report:
    """What a region has done so far."""

    keys: int
    """Keys that were requested."""
    batches: int
    """Requests."""
    waits: int
    """How often the thread had nothing to do but wait for requests."""
    unused: int
    """Records that were fetched and have not been read."""
    stopped: str
    """Why :meth:`Region.run` makes no trials at the moment; empty if it does."""


class _Thread(threading.local):
    """What the regions of a thread share."""

    def __init__(self) -> None:
        self.requests: Requests = Requests()
        self.calls: Calls | None = None
        self.trial: Trial | None = None


_thread = _Thread()


class Region:
    """Reads of a program that share their records; see :func:`spliter.ahead`.

    It belongs to the thread that has entered its ``with`` statement.
    """

    def __init__(self, source: RecordSource, most_keys: int) -> None:
        check_count("most_keys", most_keys)
        self._records = Records(source)
        self._most_keys = most_keys
        self._throttle = Throttle()
        self._thread: int | None = None
        self._state = "has not begun; enter its with statement first"
        self._waits = 0
        self._mapped: Callable[..., Any] | None = None

    def __enter__(self) -> Region:
        if self._thread is not None:
            raise InvalidArgumentError("a region of ahead() can be entered once; make a new one")
        self._thread = threading.get_ident()
        self._state = ""
        _thread.requests.open(self._records)
        return self

    def __exit__(self, *error: object) -> None:
        self._check_usable()
        self._state = "has ended; read within its with statement"
        _thread.requests.close(self._records)

    def __reduce__(self) -> NoReturn:
        raise InvalidArgumentError(
            "a region of ahead() belongs to one thread and cannot be sent to a task; call "
            "ahead(source) in the function of the task"
        )

    def __repr__(self) -> str:
        """Return the source and what was requested."""
        report = self.report()
        return f"Region({self._records.source!r}, {report.keys} keys, {report.batches} batches)"

    def __getitem__(self, key: Any) -> Any:
        """Return the record of a key, which is not to be changed in place.

        Raises
        ------
        KeyError
            If the source has none.
        InvalidArgumentError
            If the key stands for a missing value or cannot be hashed, or the region has ended or
            belongs to another thread.
        RecordSourceError
            If the source cannot be read.
        """
        record = self._read(key)
        if record is None:
            raise KeyError(key)
        return record

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the record of a key, or `default` if the source has none."""
        record = self._read(key)
        return default if record is None else record

    def put(self, key: Any, record: Any) -> None:
        """Store a record in the source; later reads return it.

        In a call of :meth:`map` it waits until the calls before it have ended.

        Raises
        ------
        InvalidArgumentError
            If the source cannot store records.
        """
        self._check_usable()
        if _thread.trial is not None:
            _thread.trial.end()
        calls = _thread.calls
        if calls is not None and (call := calls.current()) is not None:
            calls.wait_for_turn(call)
        self._records.put(key, record)

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
        """Call a function as the built-in `map` does, reading for many calls at once.

        A call that reads an absent record leaves the thread to the next call. All calls run in this
        thread, one at a time, and give it up at reads only.

        Parameters
        ----------
        fn : callable
            Its calls must not depend on each other's effects. It may read this region and others of
            the thread, and call `map` itself.
        *iterables : iterable
            Arguments of each call; taken when the call is started.

        Returns
        -------
        list
            The results, in the order of the arguments.

        Raises
        ------
        InvalidArgumentError
            If `fn` is a coroutine or generator function, or an event loop runs in this thread.
        PackageMissingError
            If greenlet is not installed.
        BaseException
            The first error in the order of the arguments, after the calls before it have ended.
            Later calls end by ``GreenletExit`` where they wait.

        Examples
        --------
        >>> from spliter import ahead
        >>> class Managers:
        ...     max_batch = 100
        ...
        ...     def get_many(self, keys):
        ...         return [{"ada": "bob", "eve": "bob", "bob": "zoe"}.get(key) for key in keys]
        >>> def top(person):
        ...     manager = people.get(person)
        ...     return person if manager is None else top(manager)
        >>> with ahead(Managers()) as people:
        ...     people.map(top, ["ada", "eve"])
        ['zoe', 'zoe']
        >>> people.report().batches
        3
        """
        self._check_usable()
        if fn is not self._mapped:  # a function that calls itself is checked once
            check_task_function(fn, "the function of map()")
            self._mapped = fn
        arguments = zip(*iterables, strict=False)
        if not iterables:
            raise InvalidArgumentError("map() needs the arguments of its calls, got none")
        if (trial := self._trial()) is not None:
            return [trial.call(fn, each) for each in arguments]
        _check_no_event_loop()
        return _calls().map(fn, arguments)

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, after trial runs that find out which records it reads.

        In a trial, absent records are *unknown*: false, empty, and the result of all that is done
        with them. The keys of a trial are read in batches. When a trial has read nothing absent,
        its result is returned; otherwise the function is called again.

        Parameters
        ----------
        fn : callable
            Between its reads it must only compute, as it may run several times: its effects would
            happen in each. `put`, and reads of other regions, end a trial.
        *args, **kwargs
            Its arguments.

        Returns
        -------
        object
            What `fn` returns.

        Raises
        ------
        InvalidArgumentError
            If `fn` is a coroutine or generator function.
        BaseException
            What `fn` raises.

        Examples
        --------
        >>> from spliter import ahead
        >>> class Squares:
        ...     max_batch = 100
        ...
        ...     def get_many(self, keys):
        ...         return [key**2 for key in keys]
        >>> def total(n):
        ...     result = 0
        ...     for number in range(n):
        ...         result += squares[number]
        ...     return result
        >>> with ahead(Squares()) as squares:
        ...     squares.run(total, 10)
        285
        >>> squares.report().batches
        1
        """
        self._check_usable()
        check_task_function(fn, "the function of run()")
        if self._trial() is not None:
            return fn(*args, **kwargs)
        tried: set[Identity] = set()
        try:
            while not self._throttle.is_stopped:
                trial, result = self._try(fn, args, kwargs)
                if trial.is_complete:
                    return result
                new = {one: key for one, key in trial.keys.items() if one not in tried}
                if not new or not self._fetch(new):
                    break
                tried.update(new)
        finally:
            self._throttle.note_fetched(map(self._records.is_used, tried))
        return fn(*args, **kwargs)

    def report(self) -> Report:
        """Return what was requested so far."""
        records = self._records
        stopped = ""
        if self._throttle.is_stopped:
            stopped = "fewer than a quarter of the last keys of trials were read"
        return Report(records.nkeys, records.nbatches, self._waits, records.unused, stopped)

    def _check_usable(self) -> None:
        state = self._state
        if not state and self._thread != threading.get_ident():
            state = "belongs to another thread; open one in each thread"
        if state:
            raise InvalidArgumentError(f"this region of ahead() {state}")

    def _trial(self) -> Trial | None:
        """Return the trial that runs; end it if it is another region's."""
        trial = _thread.trial
        if trial is not None and trial.region is not self:
            trial.end()
        return trial

    def _read(self, key: Any) -> Any:
        self._check_usable()
        trial = self._trial()
        if trial is not None and isinstance(key, Unknown):
            return trial.read_unknown()
        plain, identity = self._records.identify(key)
        record = self._records.find(identity)
        if trial is not None:
            return trial.miss(plain, identity) if record is ABSENT else record
        self._throttle.note_read(record is not ABSENT)
        while record is ABSENT:
            waiter = self._wait_for({identity: plain})
            if waiter.error is not None:
                raise waiter.error.with_traceback(None)
            record = self._records.find(identity)  # absent if it was stored anew meanwhile
        return record

    def _fetch(self, keys: dict[Identity, Any]) -> bool:
        """Return whether records could be requested; if not, the program's own read raises it."""
        return self._wait_for(keys).error is None

    def _wait_for(self, keys: dict[Identity, Any]) -> Waiter:
        """Wait until the records of keys are present; let other calls run meanwhile."""
        requests, calls = _thread.requests, _thread.calls
        before = requests.waits
        call = calls.current() if calls is not None else None
        waiter = Waiter(lambda: None) if call is None else call.waiter
        waiter.error = None
        order = () if call is None else call.order
        for identity, plain in keys.items():
            self._records.want(plain, identity, waiter, order)
        if calls is not None and call is not None:
            calls.wait(call)
        else:
            requests.wait_for(waiter)
        self._waits += requests.waits - before
        return waiter

    def _try(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Trial, Any]:
        seconds = self._records.fastest
        seconds = UNMEASURED_SECONDS if seconds == math.inf else max(seconds, WORTHWHILE_SECONDS)
        trial = Trial(self, seconds, self._most_keys)
        _thread.trial = trial
        try:
            return trial, fn(*args, **kwargs)
        except TrialEnded:
            return trial, None
        except Exception:
            if trial.is_complete:
                raise
            return trial, None
        finally:
            _thread.trial = None


def ahead(source: RecordSource, *, most_keys: int = MOST_KEYS) -> Region:
    """Return a region in which reads of records go in batches.

    Its records stay until its end: a key is read once, and a record is never older than the region.

    Parameters
    ----------
    source : RecordSource
        Has the records, such as those of ``spliter_backends.records``.
    most_keys : int, default 10000
        Number of reads of absent records after which a trial of :meth:`Region.run` ends.

    Returns
    -------
    Region
        A context manager. ``region[key]`` and ``region.get(key)`` read, ``region.map(fn, ...)`` and
        ``region.run(fn, ...)`` read for many calls, or a whole loop, at once.

    Raises
    ------
    InvalidArgumentError
        If `source` has no `get_many` or `max_batch`.

    Notes
    -----
    After "Sprint: Speculative Prefetching of Remote Data" (OOPSLA 2011), which runs ahead of the
    program with copies of its state. Here nothing of the program is copied or undone.
    """
    return Region(source, most_keys)


def _calls() -> Calls:
    """Return those of this thread."""
    if _thread.calls is None:
        try:
            from spliter.ahead._calls import Calls
        except ModuleNotFoundError as error:
            raise PackageMissingError(
                f"map() of ahead() needs {error.name}, which is not installed; "
                "pip install 'pyspliter[ahead]'"
            ) from None
        _thread.calls = Calls(_thread.requests)
    return _thread.calls


def _check_no_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not hasattr(builtins, "__IPYTHON__"):  # a notebook's cells run in one, and may wait
        raise InvalidArgumentError(
            "map() of ahead() would stop the event loop that runs in this thread; "
            "await asyncio.to_thread(function), where the function opens the region and calls map()"
        )
