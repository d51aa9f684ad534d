"""How the error of a task gets from a worker to the program, with its traceback.

A task that raises ends a COMPSs application. Ours never raise: they return the error. Exceptions
are pickled without the lines that raised them, so these are sent along as file, line and
function, and a traceback of frames with these names is put together where the error arrives.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from types import FrameType, TracebackType
from typing import Any, Final

import cloudpickle

from spliter import TaskFailedError

_CAPTURE: Final = compile("frame = sys._getframe()", "<task>", "exec")
_OURS: Final = ("_compss_worker.py",)


def pickled_error(error: BaseException) -> bytes:
    """Return an error as bytes.

    Parameters
    ----------
    error : BaseException
        As it was caught.

    Returns
    -------
    bytes
        For :func:`unpickled_error`. What cannot be pickled, or would end the program that asks
        for the result, becomes a ``TaskFailedError`` that says what it was.
    """
    lines = [
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.endswith(_OURS)
    ]
    message: bytes = cloudpickle.dumps((_that_travels(error), lines), protocol=5)
    return message


def _that_travels(error: BaseException) -> BaseException:
    text = "".join(traceback.format_exception(error)).rstrip()
    if not isinstance(error, Exception):
        return TaskFailedError(f"the task raised {type(error).__name__}({error}):\n{text}")
    try:
        if type(pickle.loads(cloudpickle.dumps(error))) is type(error):
            return error
        why = "it is unpickled as something else"
    except Exception as reason:  # noqa: BLE001 -- a class's own pickling may raise anything
        why = repr(reason)
    return TaskFailedError(
        f"the task raised {type(error).__name__}, which cannot be pickled ({why}):\n{text}"
    )


def unpickled_error(message: bytes) -> BaseException:
    """Return the error again, with a traceback.

    Parameters
    ----------
    message : bytes
        What :func:`pickled_error` returned.

    Returns
    -------
    BaseException
        To be raised.
    """
    try:
        error, lines = pickle.loads(message)
    except Exception as unreadable:  # noqa: BLE001 -- a class's own unpickling may raise anything
        return TaskFailedError(
            f"the task raised an error that cannot be unpickled here ({unreadable!r}); its class "
            "has to be importable in the main program too"
        )
    trace: TracebackType | None = None
    for line in reversed(lines):
        frame = _frame_named(*line)
        trace = TracebackType(trace, frame, frame.f_lasti, line[1])
    found: BaseException = error.with_traceback(trace)
    return found


def _frame_named(file: str, number: int, function: str) -> FrameType:
    """Return the frame of a piece of code that has a given name and place."""
    code = _CAPTURE.replace(co_filename=file, co_name=function, co_firstlineno=number)
    names: dict[str, Any] = {"sys": sys, "__name__": "task"}
    exec(code, names)
    frame: FrameType = names.pop("frame")
    return frame
