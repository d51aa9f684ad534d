"""The requests of a thread: which keys are sent when, and what to do until they arrive.

A full batch is sent at once. The rest of the keys waits until nothing else can run, and until the
requests to the same source have ended that were pending when the last one ended: what waits for
them may want more. So a level of a program that follows references takes at most
``ceil(keys / max_batch)`` requests.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any, Final

from spliter._reading.lookup import MAX_REQUESTS, WORTHWHILE_SECONDS
from spliter._reading.read_ahead import TimedRead, start_read, timed
from spliter.ahead._records import Records, Waiter, Wanted

MIN_WINDOW: Final = 1000
"""Calls that may wait before no more are started: a few megabytes of greenlets."""


class Requests:
    """Requests that are pending in a thread, to the sources of its regions."""

    def __init__(self) -> None:
        self._open: list[Records] = []
        self._pending: dict[TimedRead, tuple[Records, list[Wanted], int]] = {}
        self._ended = 0
        self.waits: int = 0
        self.window: int = MIN_WINDOW
        """How many calls may wait for records before no more are started."""

    def open(self, records: Records) -> None:
        """Send the keys of a region from now on."""
        self._open.append(records)
        self.window = max(self.window, 2 * records.max_batch)

    def close(self, records: Records) -> None:
        """Send no more keys of a region, and forget its requests: they end by themselves."""
        self._open.remove(records)
        self.window = max([MIN_WINDOW, *(2 * one.max_batch for one in self._open)])
        for read, (of, *_) in list(self._pending.items()):
            if of is records:
                read.cancel()
                del self._pending[read]

    @property
    def has_pending(self) -> bool:
        """Whether a request has not ended."""
        return bool(self._pending)

    def send_full(self) -> None:
        """Send the batches that are full."""
        for records in self._open:
            while len(self._pending) < MAX_REQUESTS:
                batch = records.next_batch(least=records.max_batch)
                if not batch:
                    break
                self._send(records, batch)

    def send_rest(self) -> None:
        """Send what is left, except to sources whose requests may lead to more keys."""
        pending = self._pending.values()
        busy = {id(records) for records, _, ended in pending if ended < self._ended}
        rest = [
            (records, records.next_batch(1)) for records in self._open if id(records) not in busy
        ]
        rest = [(records, batch) for records, batch in rest if batch]
        is_alone = len(rest) == 1 and not self._pending  # nothing can run beside it
        for records, batch in rest:
            self._send(records, batch, is_alone)

    def _send(self, records: Records, batch: list[Wanted], is_alone: bool = False) -> None:
        if not is_alone and records.fastest >= WORTHWHILE_SECONDS:
            try:
                self._pending[start_read(records.fetch, batch)] = records, batch, self._ended
            except RuntimeError:  # the interpreter is shutting down
                pass
            else:
                return
        found: Any = ()
        error: Exception | None = None
        try:
            found, seconds = timed(records.fetch, batch)
            records.fastest = min(records.fastest, seconds)
        except Exception as failure:  # noqa: BLE001  whatever it is, it is raised where it is read
            error = failure
        except BaseException:
            records.settle(batch, (), InterruptedError())
            raise
        self.waits += 1
        self._ended += 1
        records.settle(batch, found, error)

    def wait(self) -> None:
        """Wait until a request has ended."""
        if not self._pending:
            return
        self.waits += 1
        self._ended += 1
        done = wait(self._pending, return_when=FIRST_COMPLETED).done
        for read in [one for one in self._pending if one in done]:
            records, batch, _ = self._pending.pop(read)
            error = read.exception()
            found: Any = ()
            if error is None:
                found, seconds = read.result()
                records.fastest = min(records.fastest, seconds)
            elif not isinstance(error, Exception):
                records.settle(batch, (), InterruptedError())
                raise error
            records.settle(batch, found, error)

    def wait_for(self, waiter: Waiter) -> None:
        """Send keys and wait until a waiter has all that it waits for."""
        while waiter.left:
            self.send_full()
            self.send_rest()
            if waiter.left:
                self.wait()
