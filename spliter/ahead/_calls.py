"""Calls that leave their thread to others while they wait for records.

Each call is a greenlet. One runs at a time: the first in program order of those that can. It runs
until it waits for a record, or for the calls of a `map` of its own, or ends.
"""

from __future__ import annotations

import contextvars
import heapq
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from greenlet import GreenletExit, getcurrent, greenlet

from spliter._errors import SplIterError
from spliter.ahead._records import Order, Waiter
from spliter.ahead._requests import Requests

Function: TypeAlias = Callable[..., Any]


def _nothing() -> None: ...


class Group:
    """The calls of one `map`."""

    def __init__(self, fn: Function, arguments: Iterator[Any], parent: Call | None) -> None:
        self.fn: Function = fn
        self.parent: Call | None = parent
        self.context: contextvars.Context = contextvars.copy_context()
        self.results: list[Any] = []
        self.active: dict[int, Call] = {}
        """Calls that were started and have not ended, by number."""
        self.is_exhausted: bool = False
        self.error: BaseException | None = None
        self._arguments = arguments
        self._error_number = 0

    @property
    def is_done(self) -> bool:
        """Whether no call runs, and none will."""
        return self.is_exhausted and not self.active

    @property
    def order(self) -> Order:
        """Place of its next call in the program."""
        return (*(self.parent.order if self.parent else ()), len(self.results))

    def next_call(self, wake: Callable[[Call], None]) -> Call | None:
        """Return the next call; None if there is none, or its arguments raise an error."""
        number = len(self.results)
        try:
            arguments = next(self._arguments)
        except StopIteration:
            self.is_exhausted = True
            return None
        except BaseException as error:  # noqa: BLE001  raised by `map` at its turn
            self.fail(number, error)
            return None
        call = self.active[number] = Call(self, self.order, arguments, wake)
        self.results.append(None)
        return call

    def finish(self, call: Call) -> None:
        """Take the result or the error of a call that has ended."""
        number = call.order[-1]
        del self.active[number]
        call.waiter.on_ready = _nothing  # or the call would refer to itself
        if call.failure is not None:
            self.fail(number, call.failure)
        elif not self.error:
            self.results[number] = call.result

    def fail(self, number: int, error: BaseException) -> None:
        """End with an error, unless there is an earlier one, as soon as the calls before it end."""
        if not isinstance(error, Exception):
            number = -1  # such as KeyboardInterrupt: nothing goes on
        if self.error is None or number < self._error_number:
            self.error, self._error_number = error, number
        self.is_exhausted = True
        self.drop(after=number)

    def drop(self, after: int = -1) -> None:
        """End calls, by GreenletExit where they wait."""
        for number in [number for number in self.active if number > after]:
            self.active.pop(number).drop()


class Call(greenlet):
    """One call of a function."""

    def __init__(
        self,
        group: Group,
        order: Order,
        arguments: tuple[Any, ...],
        wake: Callable[[Call], None],
    ) -> None:
        super().__init__()
        self.gr_context = group.context.copy()
        self.order: Order = order
        self.result: Any = None
        self.failure: BaseException | None = None
        self.children: Group | None = None
        """That of the `map` that it waits for."""
        self.waiter: Waiter = Waiter(lambda: wake(self))
        self.group: Group = group
        self._arguments = arguments

    @property
    def is_first(self) -> bool:
        """Whether all calls before it in the program have ended."""
        is_first = next(iter(self.group.active)) == self.order[-1]
        parent = self.group.parent
        return is_first and (parent is None or parent.is_first)

    @property
    def can_write(self) -> bool:
        """Whether it need not wait for its turn any more."""
        return self.waiter.is_dropped or self.is_first

    def run(self) -> None:
        """Call the function."""
        arguments, self._arguments = self._arguments, ()
        try:
            self.result = self.group.fn(*arguments)
        except BaseException as error:  # noqa: BLE001  raised by `map`
            self.failure = error

    def check_dropped(self) -> None:
        """End the call if its result is not wanted any more."""
        if self.waiter.is_dropped:
            raise GreenletExit

    def drop(self) -> None:
        """End the call, and before it those that it waits for."""
        self.waiter.is_dropped = True
        if self.children is not None:
            self.children.is_exhausted = True
            self.children.drop()
        self.throw(GreenletExit)
        self.failure = None  # refers to its frames


class Calls:
    """The calls of a thread."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._hub = getcurrent()
        self._ready: list[tuple[Order, int, Call]] = []
        self._groups: list[tuple[Order, int, Group]] = []
        self._writers: list[tuple[Order, int, Call]] = []
        self._pushed = 0
        self._waiting = 0
        self._waits = 0

    @staticmethod
    def current() -> Call | None:
        """Return the call that runs in this thread, if one does."""
        running = getcurrent()
        return running if isinstance(running, Call) else None

    def map(self, fn: Function, arguments: Iterator[Any]) -> list[Any]:
        """Return the results of calls, in their order.

        Raises
        ------
        BaseException
            The first error in program order.
        """
        parent = self.current()
        first = next(arguments, None)
        if first is None:
            return []
        group = Group(fn, chain([first], arguments), parent)
        self._push(self._groups, group.order, group)
        if parent is None:
            self._run(group)
        else:
            parent.children = group
            self._leave(parent)
            parent.children = None
        error, group.error = group.error, None
        if error is not None:
            try:
                raise error
            finally:
                error = None  # it refers to this frame
        return group.results

    def wait(self, call: Call) -> None:
        """Leave the thread to others until the records of a call are there."""
        self._waiting += 1
        self._waits += 1
        try:
            self._leave(call)
        finally:
            self._waiting -= 1

    def wait_for_turn(self, call: Call) -> None:
        """Leave the thread to others until all calls before this one have ended."""
        while not call.is_first:
            self._push(self._writers, call.order, call)
            self._leave(call)

    def _leave(self, call: Call) -> None:
        call.check_dropped()
        self._hub.switch()
        call.check_dropped()

    def _push(self, heap: list[Any], order: Order, item: object) -> None:
        self._pushed += 1
        heapq.heappush(heap, (order, self._pushed, item))

    def _wake(self, call: Call) -> None:
        self._push(self._ready, call.order, call)

    def _run(self, group: Group) -> None:
        outer, self._hub = self._hub, getcurrent()
        try:
            while not group.is_done:
                self._step()
        except BaseException:
            group.is_exhausted = True
            group.drop()
            raise
        finally:
            self._hub = outer

    def _step(self) -> None:
        """Run the first call that can run; if none can, wait for records."""
        waits = self._waits
        has_room = self._waiting < self._requests.window
        if self._groups and has_room and not self._is_before(self._ready, self._groups):
            *_, group = heapq.heappop(self._groups)
            self._start(group)
        elif self._ready:
            *_, call = heapq.heappop(self._ready)
            if not call.waiter.is_dropped:
                self._switch(call)
        else:
            self._requests.send_full()
            self._requests.send_rest()
            if not self._ready:
                self._wait()
        if self._waits > waits:
            self._requests.send_full()

    @staticmethod
    def _is_before(first: list[Any], second: list[Any]) -> bool:
        return bool(first) and first[0][0] < second[0][0]

    def _wait(self) -> None:
        if not self._requests.has_pending:
            raise SplIterError(
                "calls of map() wait for each other, though no record is pending; a function that "
                "reads records must not switch to another greenlet"
            )
        self._requests.wait()

    def _start(self, group: Group) -> None:
        if group.is_exhausted:
            return
        call = group.next_call(self._wake)
        if call is not None:
            self._push(self._groups, group.order, group)
            self._switch(call)
        else:
            self._end(group)

    def _switch(self, call: Call) -> None:
        call.parent = self._hub
        call.switch()
        if call.dead and not call.waiter.is_dropped:
            call.group.finish(call)
            self._end(call.group)
            while self._writers and self._writers[0][2].can_write:
                self._wake(heapq.heappop(self._writers)[2])

    def _end(self, group: Group) -> None:
        """Have a call go on whose `map` is done."""
        if group.is_done and group.parent is not None:
            self._wake(group.parent)
