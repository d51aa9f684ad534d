"""Leases of a backend's clients: free what a client left behind when it was killed.

A client renews its lease at each backend it uses, with one message whatever it keeps there. Only
this backend's clock counts: no clocks are compared. Time in which this process itself stood still
(stopped, or in compiled code that holds the interpreter's lock) does not count either, as the
renewals of that time are still waiting to be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from spliter.backend import log_event

DEFAULT_SECONDS: Final = 300.0
"""Length of a lease. A client that lives but cannot renew for as long (a debugger, a suspended
machine, one call into compiled code that holds the interpreter's lock) loses what it keeps, so it
is longer than such a call takes. A killed client's memory is back before its next long run."""

TICK: Final = 0.5
"""Seconds between two checks: short beside any lease, and a check costs microseconds."""


class Leases:
    """Seconds left of the lease of each client, counted down by a thread.

    Parameters
    ----------
    free : callable
        Called in that thread with the name of a client whose lease has ended.
    """

    def __init__(self, free: Callable[[str], None]) -> None:
        self._free = free
        self._left: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """Return the number of clients that have a lease."""
        return len(self._left)

    def renew(self, client: str, seconds: float) -> None:
        """Let a lease end after some seconds from now.

        Parameters
        ----------
        client : str
            Name of the client.
        seconds : float
            Above 0.
        """
        with self._lock:
            self._left[client] = seconds
            self._start()

    def ensure(self, client: str) -> None:
        """Give a client a lease of the default length unless it has one."""
        with self._lock:
            if client not in self._left:
                self._left[client] = DEFAULT_SECONDS
                self._start()

    def drop(self, client: str) -> None:
        """End a lease without freeing anything."""
        with self._lock:
            self._left.pop(client, None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._count_down, name="spliter-leases", daemon=True
            )
            self._thread.start()

    def _count_down(self) -> None:
        """Count the time down until there are no leases."""
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
        """Count leases down, and free what belongs to clients whose leases have ended.

        Parameters
        ----------
        seconds : float
            That have passed since the last call. Of more than two ticks, two are counted: this
            process stood still.
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
        except Exception:  # noqa: BLE001 -- dataClay's store may be away for a while
            self.ensure(client)  # tried again when that has ended
            return
        log_event(
            "lease",
            "client %(client)s has not renewed its lease; what was kept for it is freed",
            engine="dataclay",
            client=client,
        )
