"""What stops a program and is no error of a call: Ctrl-C, or what a signal handler raises."""

from __future__ import annotations

import itertools
import traceback
from types import FrameType


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
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(itertools.starmap(_is_handler, itertools.pairwise(frames)))


def _is_handler(interrupted: FrameType, called: FrameType) -> bool:
    """Return whether a frame is that of a signal handler: it gets the one that is interrupted."""
    for value in called.f_locals.values():
        if any(each is interrupted for each in (value if type(value) is tuple else (value,))):
            return True
    return False
