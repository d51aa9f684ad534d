"""Translate errors of Ray and of tasks into SplIter errors.

A task raises the user's error in Ray too, so that ``ray.get`` shows it as usual. An attribute of
the error carries it as a message with its traceback, from which ``RayFuture.result`` raises the
original error.
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
from spliter_backends._shared.collection_blocks import name_blocks
from spliter_backends._shared.error_codec import ErrorCodec

ERRORS: Final = ErrorCodec(cloudpickle.dumps, cloudpickle.loads, "spliter_backends.ray.worker")

MESSAGE: Final = "_spliter_message"
"""Attribute of an error with the error and its traceback as a message."""


def as_ray_error(error: BaseException) -> BaseException:
    """Return the error to raise in Ray for an error of the user's function.

    It is of the same type if Ray can pickle it, else a ``TaskFailedError``; :func:`original_error`
    converts it back.
    """
    message = ERRORS.encode(error)
    sent = ERRORS.decode(message)
    try:
        vars(sent)[MESSAGE] = message
        pickle.dumps(sent)  # Ray does the same, and drops attributes that fail
    except Exception:  # noqa: BLE001 -- a class's own pickling may raise anything
        sent = TaskFailedError(f"the task raised {type(error).__name__}: {error}")
        vars(sent)[MESSAGE] = message
    return sent


def original_error(error: RayTaskError) -> BaseException:
    """Return the error that the user's function raised.

    It has the original traceback, if the function ran in a task of SplIter.
    """
    cause = error.cause
    if not isinstance(cause, BaseException):
        return TaskFailedError(str(error))
    message = getattr(cause, MESSAGE, None)
    if isinstance(message, bytes):
        return ERRORS.decode(message)
    if isinstance(cause, RayError):
        return translate_error(cause)
    return cause.with_traceback(None)


def translate_error(
    error: Exception, blocks: tuple[tuple[int, ...], ...] = (), timeout: float | None = None
) -> BaseException:
    """Translate an error that Ray raised in place of some blocks.

    Returns the original error of a task; ``BlockLostError`` for lost objects; ``BlockTimeoutError``
    for a timeout; any other error unchanged.
    """
    if isinstance(error, RayTaskError):  # first: a task may have raised one of the others
        return original_error(error)
    if isinstance(error, ObjectLostError | TaskUnschedulableError):
        return BlockLostError(
            f"{_describe_blocks(blocks)} lost, and Ray cannot recreate the objects "
            f"({type(error).__name__}: {_first_line(error)}). Ray recreates results of tasks, but "
            "not objects from ray.put; make the blocks again and split them",
            blocks,
        )
    if isinstance(error, GetTimeoutError):
        return BlockTimeoutError(
            f"{_describe_blocks(blocks)} not available after {timeout:g} s; check that there are "
            "nodes to make them, or raise SPLITER_RAY_BLOCK_TIMEOUT (seconds)"
        )
    return error


def _describe_blocks(blocks: Sequence[tuple[int, ...]]) -> str:
    if not blocks:
        return "the result of a task, or one of its inputs, is"
    return f"some of {name_blocks(blocks)} are" if len(blocks) > 1 else f"block {blocks[0]} is"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
