"""What stops a program and is no error of a call: Ctrl-C, or what a signal handler raises."""

from __future__ import annotations

import signal
import traceback


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
    handlers = [getattr(signal.getsignal(each), "__code__", None) for each in signal.Signals]
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))
