"""Wait for futures of this process without a thread, and for blocks as long as some get ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def when_done(waiting: list[Future[Any]], start: Callable[[], None]) -> None:
    """Call a function when all futures of a list, which is emptied, are done.

    It is called immediately if all are, else by the thread that completes the last one.

    Examples
    --------
    >>> pending = Future()
    >>> when_done([pending], lambda: print("started"))
    >>> pending.set_result(None)
    started
    """
    while waiting and waiting[-1].done():
        waiting.pop()
    if waiting:
        # A future keeps its callbacks, which must not keep the arguments of a task that has run.
        kept = [start]
        waiting.pop().add_done_callback(lambda _: when_done(waiting, kept.pop()))
    else:
        start()


class Progress:
    """Pauses of a wait for several blocks, which ends if none becomes ready for some time.

    timeout: Seconds.
    pause: Seconds of the first pause; each is half as long again as the one before.
    longest: Seconds of the longest one.

    Examples
    --------
    >>> progress = Progress(timeout=0.0)
    >>> progress.pause(pending=2), progress.pause(pending=1), progress.pause(pending=1)
    (True, True, False)
    """

    def __init__(self, timeout: float, pause: float = 0.01, longest: float = 0.5) -> None:
        self._timeout = timeout
        self._pause = pause
        self._longest = longest
        self._fewest = float("inf")
        self._deadline = 0.0

    def pause(self, pending: int) -> bool:
        """Sleep; return False instead if no fewer blocks have been pending for the timeout."""
        if pending < self._fewest:
            self._fewest = pending
            self._deadline = time.monotonic() + self._timeout
        elif time.monotonic() > self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(1.5 * self._pause, self._longest)
        return True
