"""What stops a program and is no error of a call: Ctrl-C, or what a signal handler raises."""

from __future__ import annotations

import inspect
import itertools
import traceback
from types import FrameType


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is no call's, so that to run the call again would hide it.

    Parameters
    ----------
    error : BaseException
        What has been raised: ``SystemExit``, ``KeyboardInterrupt``, by a signal handler, such as
        ``TimeoutError``, or in place of one of the latter, by a function that has caught it.
    """
    if isinstance(error, SystemExit):
        return True
    caught: BaseException | None = error
    while caught is not None:
        if isinstance(caught, KeyboardInterrupt):
            return True
        frames = [frame for frame, _ in traceback.walk_tb(caught.__traceback__)]
        if any(itertools.starmap(_is_handler, itertools.pairwise(frames))):
            return True
        caught = caught.__context__
        if caught is None or caught.__traceback__ is None:
            return False
        if caught.__traceback__.tb_frame not in frames:  # caught before the function was called
            return False
    return False


def _is_handler(interrupted: FrameType, called: FrameType) -> bool:
    """Return whether a frame is that of a signal handler: of a number, and what it interrupts."""
    code, values = called.f_code, called.f_locals
    given = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & inspect.CO_VARARGS:
        others = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += others if type(others) is tuple else ()
    return any(
        frame is interrupted and type(number) is int for number, frame in itertools.pairwise(given)
    )
