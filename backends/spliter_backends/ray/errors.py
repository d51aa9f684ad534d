"""How errors of tasks, and of Ray, reach the program.

What a task raises is raised by it in Ray too, so that ``ray.get`` shows it as it shows any error.
The lines that raised it go along as a message in an attribute, and ``RayFuture.result`` raises the
error as it was from that.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Final

from ray import cloudpickle
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    RayError,
    RayTaskError,
    TaskUnschedulableError,
)

from spliter import BlockLostError, BlockTimeoutError, TaskFailedError
from spliter_backends._shared.sent_errors import SentErrors

ERRORS: Final = SentErrors(cloudpickle.dumps, cloudpickle.loads, "spliter_backends.ray.worker")

MESSAGE: Final = "_spliter_message"
"""Attribute of an error that holds it as a message, with the lines that raised it."""


def travelling(error: BaseException) -> BaseException:
    """Return what a task is to raise in Ray for an error of the function it ran.

    Parameters
    ----------
    error : BaseException
        As it was caught.

    Returns
    -------
    BaseException
        Of the same type if Ray can send it, else a ``TaskFailedError``. :func:`own` makes the
        error of it again.
    """
    message = ERRORS.encode(error)
    sent = ERRORS.decode(message)
    try:
        vars(sent)[MESSAGE] = message
        pickle.dumps(sent)  # Ray does so, and drops what fails
    except Exception:  # noqa: BLE001 -- a class's own pickling may raise anything
        sent = TaskFailedError(f"the task raised {type(error).__name__}: {error}")
        vars(sent)[MESSAGE] = message
    return sent


def own(error: RayTaskError) -> BaseException:
    """Return the error that the user's function raised.

    Parameters
    ----------
    error : RayTaskError
        What Ray raises for it.

    Returns
    -------
    BaseException
        With a traceback of the lines that raised it, if the function ran in a task of SplIter's.
    """
    cause = error.cause
    if not isinstance(cause, BaseException):
        return TaskFailedError(str(error))
    message = getattr(cause, MESSAGE, None)
    if isinstance(message, bytes):
        return ERRORS.decode(message)
    if isinstance(cause, RayError):
        return told(cause)
    return cause.with_traceback(None)


def told(
    error: Exception,
    blocks: tuple[tuple[int, ...], ...] = (),
    timeout: float | None = None,
) -> BaseException:
    """Return what the program is to see for what Ray raised.

    Parameters
    ----------
    error : Exception
        From ``ray.get``.
    blocks : tuple of tuple of int
        Which blocks were waited for, if any were.
    timeout : float, optional
        How long was waited.

    Returns
    -------
    BaseException
        Errors of tasks as they were raised; ``BlockLostError`` and ``BlockTimeoutError`` for
        objects that are gone, or do not come; anything else as it is.
    """
    if isinstance(error, RayTaskError):  # before the others, which a task may have raised as well
        return own(error)
    if isinstance(error, ObjectLostError | TaskUnschedulableError):
        return BlockLostError(
            f"{_named(blocks)} lost, and Ray cannot make what was lost again "
            f"({type(error).__name__}: {_first_line(error)}). Objects made by tasks are made again "
            "by running these, those from ray.put are not; make the blocks anew and split them",
            blocks,
        )
    if isinstance(error, GetTimeoutError):
        return BlockTimeoutError(
            f"{_named(blocks)} not there after {timeout:g} s; are there nodes left that can make "
            "them? The limit is the environment variable SPLITER_RAY_BLOCK_TIMEOUT, in seconds"
        )
    return error


def _named(blocks: Sequence[tuple[int, ...]], most: int = 5) -> str:
    if not blocks:
        return "the result of a task, or what it needs, is"
    names = ", ".join(map(str, blocks[:most])) + (", ..." if len(blocks) > most else "")
    return f"of blocks {names} some are" if len(blocks) > 1 else f"block {names} is"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
