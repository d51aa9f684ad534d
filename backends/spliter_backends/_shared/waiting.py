"""Call a function when futures of this process are done, without blocking a thread."""

from __future__ import annotations

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
