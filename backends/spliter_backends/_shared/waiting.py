"""Start something once futures of this process are done, without occupying a thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def when_done(waiting: list[Future[Any]], start: Callable[[], None]) -> None:
    """Call a function once futures are done, without waiting for them.

    Parameters
    ----------
    waiting : list of Future
        Emptied.
    start : callable
        Called at once if all are done, else by the thread that completes the last one.

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
        waiting.pop().add_done_callback(lambda _: when_done(waiting, start))
    else:
        start()
