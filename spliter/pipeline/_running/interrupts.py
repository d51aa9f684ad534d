"""What stops a program and is no error of a call: Ctrl-C, or what a signal handler raises."""

from __future__ import annotations

import functools
import signal
import traceback
from typing import Any


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is no call's, so that to run the call again would hide it.

    Parameters
    ----------
    error : BaseException
        What has been raised: ``KeyboardInterrupt``, ``SystemExit``, or by a signal handler, such as
        ``TimeoutError``.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return True
    handlers = [_code_of(signal.getsignal(each)) for each in signal.Signals]
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> Any:
    """Return the code of a function, of a method, or of an object that is called; else ``None``."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__code__", getattr(handler.__class__.__call__, "__code__", None))
