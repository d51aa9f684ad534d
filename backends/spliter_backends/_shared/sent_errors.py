"""How an error of a task gets from a worker to the program, with its traceback.

Exceptions are pickled without the lines that raised them. Here each of these is sent as file,
line and function, and at the other end a traceback of frames that bear these names is put
together: debuggers and error reports then show the task's own lines. What cannot be pickled, or
would end the program that asks for the result, arrives as ``TaskFailedError`` with the traceback
as text.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final

from spliter import TaskFailedError, TaskNotSerializableError

MOST_CAUSES: Final = 10
"""Causes of causes that are sent along: chains can be circular."""

_CAPTURE: Final = compile("frame = sys._getframe()", "<task>", "exec")


def result_not_pickled(result: Any, reason: BaseException) -> TaskNotSerializableError:
    """Return the error for a task whose result cannot be pickled.

    Parameters
    ----------
    result : object
        What the task returned.
    reason : BaseException
        What pickling it raised.

    Returns
    -------
    TaskNotSerializableError

    Examples
    --------
    >>> print(result_not_pickled([], TypeError("cannot pickle 'generator' object")))
    the task returned a list, which cannot be pickled: cannot pickle 'generator' object. ...
    """
    kind = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
    return TaskNotSerializableError(
        f"the task returned a {kind}, which cannot be pickled: {reason}. Return numbers and "
        "arrays, or use it inside the task"
    )


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    function: str


@dataclass(frozen=True)
class SentErrors:
    """Turns errors into messages and back, the way that one backend pickles.

    Parameters
    ----------
    dumps : callable
        Pickles anything to bytes.
    loads : callable
        Unpickles what that returned.
    caller : str
        Full name of the backend's module that calls tasks. Its lines are left out of tracebacks.
    """

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    caller: str

    def encode(self, error: BaseException) -> bytes:
        """Return an error of a task as a message.

        Parameters
        ----------
        error : BaseException
            As it was caught.

        Returns
        -------
        bytes
            For :meth:`decode`.
        """
        chain: list[tuple[BaseException, list[_Line]]] = []
        current: BaseException | None = error
        while current is not None and len(chain) < MOST_CAUSES:
            chain.append((self._that_travels(current), self._lines_of(current.__traceback__)))
            current = current.__cause__
        return self.dumps(chain)

    def decode(self, message: bytes) -> BaseException:
        """Return the error again, with a traceback and its causes.

        Parameters
        ----------
        message : bytes
            What :meth:`encode` returned.

        Returns
        -------
        BaseException
            To be raised.
        """
        try:
            chain: list[tuple[BaseException, list[_Line]]] = self.loads(message)
        except Exception as error:  # noqa: BLE001 -- a class's own unpickling may raise anything
            return TaskFailedError(
                f"the task raised an error that cannot be unpickled here ({error!r}); its class "
                "has to be importable in this program too"
            )
        errors = [one.with_traceback(_traceback_of(lines)) for one, lines in chain]
        for effect, cause in itertools.pairwise(errors):
            effect.__cause__ = cause
        return errors[0]

    def _that_travels(self, error: BaseException) -> BaseException:
        """Return the error if it survives being sent, else one that says what it was."""
        if not isinstance(error, Exception):
            return failure_by(error)
        text = "".join(traceback.format_exception(error)).rstrip()
        try:
            if type(self.loads(self.dumps(error))) is type(error):
                return error
            why = "it is unpickled as something else"
        except Exception as reason:  # noqa: BLE001 -- a class's own pickling may raise anything
            why = repr(reason)
        return TaskFailedError(
            f"the task raised {type(error).__name__}, which cannot be pickled ({why}):\n{text}"
        )

    def _lines_of(self, trace: TracebackType | None) -> list[_Line]:
        """Return the lines of the task, without those of the backend that called it."""
        frames = list(traceback.walk_tb(trace))
        of_task = [each for each in frames if each[0].f_globals.get("__name__") != self.caller]
        return [
            _Line(frame.f_code.co_filename, number, frame.f_code.co_name)
            for frame, number in of_task or frames
        ]


def failure_by(error: BaseException) -> TaskFailedError:
    """Describe how a task ended by what is no ``Exception`` and would end a worker.

    Parameters
    ----------
    error : BaseException
        As it was caught: ``SystemExit`` and the like.

    Returns
    -------
    TaskFailedError
        To be raised in its place.
    """
    text = "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, SystemExit):
        return TaskFailedError(
            f"the task called sys.exit({error.code!r}), which ends programs; a task ends by "
            f"returning or raising an error. It was called at:\n{text}"
        )
    return TaskFailedError(f"the task raised {type(error).__name__}:\n{text}")


def _traceback_of(lines: list[_Line]) -> TracebackType | None:
    made: TracebackType | None = None
    for line in reversed(lines):
        frame = _frame_named(line)
        made = TracebackType(made, frame, frame.f_lasti, line.number)
    return made


def _frame_named(line: _Line) -> FrameType:
    """Return the frame of a piece of code that has a given name and place."""
    code = _CAPTURE.replace(
        co_filename=line.file,
        co_name=line.function,
        co_qualname=line.function,
        co_firstlineno=line.number,
    )
    names: dict[str, Any] = {"sys": sys, "__name__": "task"}
    exec(code, names)
    frame: FrameType = names.pop("frame")
    return frame
