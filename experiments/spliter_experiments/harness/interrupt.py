"""Make sure that Ctrl-C ends the command, wherever it hits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Remember Ctrl-C for the time of the context.

    ``KeyboardInterrupt`` is lost where exceptions are ignored: in finalizers, and in callbacks of
    the garbage collector, of which Dask has one. What is yielded raises it again; call it now and
    then.

    Yields
    ------
    callable
        Raises ``KeyboardInterrupt`` if Ctrl-C was pressed since.
    """
    pressed = threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def remember(signum: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    # Python lets no other thread set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
