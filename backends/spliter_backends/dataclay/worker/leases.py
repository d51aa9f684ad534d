"""Leases of a backend's clients: free what a killed client has left behind.

A client renews its lease at each backend it uses, with one message for everything it keeps there.
Only this backend's clock is used. Time during which this process itself was stopped (or in compiled
code that holds the interpreter's lock) does not count, because renewals from that time are still
unread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from spliter.backend import log_event

DEFAULT_SECONDS: Final = 300.0
"""Length of a lease. A live client that cannot renew for this long (a debugger, a suspended
machine, one call into compiled code that holds the interpreter's lock) loses its data, so it is
longer than such a call. It also bounds how long a killed client's memory stays occupied."""

TICK: Final = 0.5
"""Seconds between two checks: short compared to any lease, and a check costs microseconds."""


class Leases:
    """Remaining seconds of each client's lease, counted down by a thread.

    free: Called in that thread with the name of a client whose lease has ended.
    """

    def __init__(self, free: Callable[[str], None]) -> None:
        self._free = free
        self._left: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Return the number of clients with a lease."""
        return len(self._left)

    def renew(self, client: str, seconds: float) -> None:
        """Set the remaining time of a lease; `seconds` is above 0."""
        with self._lock:
            self._left[client] = seconds
            self._start()

    def ensure(self, client: str) -> None:
        """Give a client a lease of the default length if it has none."""
        with self._lock:
            if client not in self._left:
                self._left[client] = DEFAULT_SECONDS
                self._start()

    def drop(self, client: str) -> None:
        """Remove a lease without freeing anything."""
        with self._lock:
            self._left.pop(client, None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._count_down, name="spliter-leases", daemon=True
            )
            self._thread.start()

    def _count_down(self) -> None:
        """Count the time down while there are leases."""
        before = time.monotonic()
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            self.pass_time(now - before)
            before = now
            with self._lock:
                if not self._left:
                    self._thread = None
                    return

    def pass_time(self, seconds: float) -> None:
        """Count leases down, and free the data of clients whose leases have ended.

        Of the seconds since the last call at most two ticks count: after more, this process was
        stopped.
        """
        elapsed = min(seconds, 2 * TICK)
        with self._lock:
            self._left = {client: left - elapsed for client, left in self._left.items()}
            ended = [client for client, left in self._left.items() if left <= 0]
            for client in ended:
                del self._left[client]
        for client in ended:
            self._end(client)

    def _end(self, client: str) -> None:
        try:
            self._free(client)
        except Exception:  # noqa: BLE001 -- dataClay's store may be unavailable for a while
            self.ensure(client)  # try again when this lease has ended
            return
        log_event(
            "lease",
            "client %(client)s has not renewed its lease; freed its results and copies",
            engine="dataclay",
            client=client,
        )
