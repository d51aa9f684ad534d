"""Send a task's error from a worker to the program, with its traceback.

Pickled exceptions lose their traceback. Here its lines are sent as file, line and function, and the
receiver builds a traceback of frames with these names, so that debuggers and error reports show the
task's own lines. An error that cannot be pickled, or that would end the receiving program, arrives
as ``TaskFailedError`` with the traceback as text.
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

MAX_CAUSES: Final = 10
"""Maximum length of a chain of causes: chains can be circular."""

_CAPTURE: Final = compile("frame = sys._getframe()", "<task>", "exec")


def result_not_pickled(result: Any, reason: BaseException) -> TaskNotSerializableError:
    """Return the error for a task whose result cannot be pickled.

    Examples
    --------
    >>> print(result_not_pickled([], TypeError("cannot pickle 'generator' object")))
    the task returned a list, which cannot be pickled: cannot pickle 'generator' object. ...
    """
    kind = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
    return TaskNotSerializableError(
        f"the task returned a {kind}, which cannot be pickled: {reason}. Return numbers and "
        "arrays, or use the object inside the task"
    )


@dataclass(frozen=True)
class _Line:
    file: str
    number: int
    function: str


@dataclass(frozen=True)
class ErrorCodec:
    """Converts errors to messages and back, with one backend's pickling.

    dumps: Pickles an object to bytes.
    loads: Unpickles the result of `dumps`.
    caller: Full name of the backend's module that calls tasks; its frames are omitted from
        tracebacks.
    """

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    caller: str

    def encode(self, error: BaseException) -> bytes:
        """Return an error of a task, as caught, as a message for :meth:`decode`."""
        chain: list[tuple[BaseException, list[_Line]]] = []
        current: BaseException | None = error
        while current is not None and len(chain) < MAX_CAUSES:
            sent = as_picklable(current, self.dumps, self.loads)
            chain.append((sent, self._task_lines(current.__traceback__)))
            current = current.__cause__
        return self.dumps(chain)

    def decode(self, message: bytes) -> BaseException:
        """Return the error from :meth:`encode`, with its traceback and causes, to be raised."""
        try:
            chain: list[tuple[BaseException, list[_Line]]] = self.loads(message)
        except Exception as error:  # noqa: BLE001 -- a class's own unpickling may raise anything
            return TaskFailedError(
                f"the task raised an error that cannot be unpickled here ({error!r}); its class "
                "must be importable in this program"
            )
        errors = [one.with_traceback(_build_traceback(lines)) for one, lines in chain]
        for effect, cause in itertools.pairwise(errors):
            effect.__cause__ = cause
        return errors[0]

    def _task_lines(self, trace: TracebackType | None) -> list[_Line]:
        """Return the lines of the task, without those of the calling backend."""
        frames = list(traceback.walk_tb(trace))
        of_task = [each for each in frames if each[0].f_globals.get("__name__") != self.caller]
        return [
            _Line(frame.f_code.co_filename, number, frame.f_code.co_name)
            for frame, number in of_task or frames
        ]


def as_picklable(
    error: BaseException, dumps: Callable[[Any], Any], loads: Callable[[Any], Any]
) -> BaseException:
    """Return the error if it survives pickling, else a ``TaskFailedError`` that describes it.

    Examples
    --------
    >>> import pickle
    >>> as_picklable(ValueError("by mistake"), pickle.dumps, pickle.loads)
    ValueError('by mistake')
    >>> print(as_picklable(KeyError(lambda: 0), pickle.dumps, pickle.loads))
    the task raised KeyError, which cannot be pickled (...):
    KeyError: ...
    """
    if not isinstance(error, Exception):
        return as_task_failure(error)
    text = "".join(traceback.format_exception(error)).rstrip()
    try:
        if type(loads(dumps(error))) is type(error):
            return error
        why = "unpickling gives another type"
    except Exception as reason:  # noqa: BLE001 -- a class's own pickling may raise anything
        why = repr(reason)
    return TaskFailedError(
        f"the task raised {type(error).__name__}, which cannot be pickled ({why}):\n{text}"
    )


def as_task_failure(error: BaseException) -> TaskFailedError:
    """Convert an error that is no ``Exception``, such as ``SystemExit``, and would end a worker."""
    text = "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, SystemExit):
        return TaskFailedError(
            f"the task called sys.exit({error.code!r}), which ends programs; return from the "
            f"task or raise an error instead. It was called at:\n{text}"
        )
    return TaskFailedError(f"the task raised {type(error).__name__}:\n{text}")


def _build_traceback(lines: list[_Line]) -> TracebackType | None:
    made: TracebackType | None = None
    for line in reversed(lines):
        frame = _build_frame(line)
        made = TracebackType(made, frame, frame.f_lasti, line.number)
    return made


def _build_frame(line: _Line) -> FrameType:
    """Return a frame of code with the given file, function and line."""
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
