"""The PyCOMPSs tasks of the backend: few, generic, and importable at the workers.

A task with constraints is a copy of one of these under its own name, because COMPSs registers the
constraints of a task once, by name. Copies are created on demand, in the main program and at the
workers (module ``__getattr__``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spliter_backends.compss.api import (
    COLLECTION_IN,
    IN_DELETE,
    compss_delete_object,
    constraint,
    task,
)
from spliter_backends.compss.future import CompssFuture
from spliter_backends.compss.outcome import TaskFailure, local_report, result_of
from spliter_backends.compss.source import BlockInputs, concatenate_inputs
from spliter_backends.compss.worker import (
    BlockMetadata,
    Call,
    CallResult,
    catch_failure,
    pack_outcome,
    run_call,
)

_SEPARATOR: Final = "_constrained_"

# Arguments are deleted once the task has read them: PyCOMPSs would keep them until it ends.
_CONTENT: Final = {"content": IN_DELETE}
_INPUTS: Final = {"inputs": COLLECTION_IN}
# Each task goes to the next node, regardless of where its input is.
_IN_TURN: Final = {"is_distributed": True}

DECORATION: Final[Mapping[str, Mapping[str, Any]]] = {
    "call": {"returns": CompssFuture, **_CONTENT},
    "call_with": {"returns": CompssFuture, **_CONTENT, **_INPUTS},
    "make": {"returns": (CompssFuture, CompssFuture), **_CONTENT},
    "make_with": {"returns": (CompssFuture, CompssFuture), **_CONTENT, **_INPUTS},
    "make_in_turn": {"returns": (CompssFuture, CompssFuture), **_CONTENT, **_IN_TURN},
    "make_in_turn_with": {
        "returns": (CompssFuture, CompssFuture),
        **_CONTENT,
        **_INPUTS,
        **_IN_TURN,
    },
    "describe": {"returns": CompssFuture, **_INPUTS},
    "concatenate": {"returns": CompssFuture, "block_inputs": IN_DELETE, **_INPUTS},
    "separate": {"returns": CompssFuture, **_INPUTS},
}


_started: Final[Counter[str]] = Counter()
"""Number of tasks started by this process, by name."""


@task(**DECORATION["call"])  # type: ignore[untyped-decorator]
def call(key: str, content: bytes | Call) -> Any:
    """Run a call without futures or blocks."""
    return pack_outcome(key, run_call(key, content, ()))


@task(**DECORATION["call_with"])  # type: ignore[untyped-decorator]
def call_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Run a call with futures or blocks."""
    return pack_outcome(key, run_call(key, content, inputs))


@task(**DECORATION["make"])  # type: ignore[untyped-decorator]
def make(key: str, content: bytes | Call) -> Any:
    """Make a block: return the block itself, and its metadata."""
    return _pack_block(key, run_call(key, content, ()))


@task(**DECORATION["make_with"])  # type: ignore[untyped-decorator]
def make_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Make a block from the results of others."""
    return _pack_block(key, run_call(key, content, inputs))


@task(**DECORATION["make_in_turn"])  # type: ignore[untyped-decorator]
def make_in_turn(key: str, content: bytes | Call) -> Any:
    """Make a block at the next node."""
    return _pack_block(key, run_call(key, content, ()))


@task(**DECORATION["make_in_turn_with"])  # type: ignore[untyped-decorator]
def make_in_turn_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Make a block from the results of others, at the next node."""
    return _pack_block(key, run_call(key, content, inputs))


def _pack_block(key: str, attempt: CallResult | TaskFailure) -> tuple[Any, Any]:
    if isinstance(attempt, TaskFailure):
        return attempt, attempt
    return attempt.value, result_of(BlockMetadata.of([attempt.value]), key, local_report())


@task(**DECORATION["describe"])  # type: ignore[untyped-decorator]
def describe(key: str, inputs: Sequence[Any]) -> Any:
    """Return the metadata of a block, given as its parts side by side."""
    for part in inputs:
        if isinstance(part, TaskFailure):
            return TaskFailure(part.error, key, local_report())
    return result_of(BlockMetadata.of(inputs), key, local_report())


@task(**DECORATION["concatenate"])  # type: ignore[untyped-decorator]
def concatenate(key: str, block_inputs: BlockInputs, inputs: Sequence[Any]) -> Any:
    """Concatenate the blocks of a partition."""
    return pack_outcome(
        key, catch_failure(key, lambda: CallResult(concatenate_inputs(block_inputs, inputs)))
    )


@task(**DECORATION["separate"])  # type: ignore[untyped-decorator]
def separate(key: str, output: int | None, count: int, inputs: Sequence[Any]) -> Any:
    """Return the blocks in a task's result one by one, then their metadata."""

    def function() -> CallResult:
        blocks = inputs[0] if output is None else inputs[0][output]
        if len(blocks) != count:
            raise ValueError(f"the task must return {count} blocks, got {len(blocks)}")
        return CallResult(list(blocks))

    failed = inputs[0] if isinstance(inputs[0], TaskFailure) else None
    found = failed or catch_failure(key, function)
    if isinstance(found, TaskFailure):
        return [found] * (count + 1)
    metadata = [BlockMetadata.of([block]) for block in found.value]
    return [*found.value, result_of(metadata, key, local_report())]


_to_delete: Final[list[Any]] = []


def delete_later(future: Any) -> None:
    """Schedule the deletion of an object that no later task uses for the next start of a task.

    The call is safe during garbage collection, which may interrupt PyCOMPSs at any point.
    """
    _to_delete.append(future)


def delete_scheduled() -> None:
    """Delete the objects passed to :func:`delete_later`."""
    while _to_delete:
        compss_delete_object(_to_delete.pop())


def start(base: str, constraints: Mapping[str, Any], *args: Any, **options: Any) -> Any:
    """Start one of these tasks."""
    _started[base] += 1
    return with_constraints(base, constraints)(*args, **options)


def count_started() -> int:
    """Return how many tasks this process has started, including those run without a runtime."""
    return _started.total()


def with_constraints(base: str, constraints: Mapping[str, Any]) -> Callable[..., Any]:
    """Return one of these tasks with arguments of ``@constraint``; without any, the task itself."""
    if not constraints:
        found: Callable[..., Any] = globals()[base]
        return found
    return _make_constrained(base, json.dumps(dict(constraints), sort_keys=True, default=str))


@functools.cache
def _make_constrained(base: str, encoded: str) -> Callable[..., Any]:
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    renamed = _rename_task(base, f"{base}{_SEPARATOR}{digest}")
    found: Callable[..., Any] = constraint(**json.loads(encoded))(renamed)
    return found


def _rename_task(base: str, name: str) -> Callable[..., Any]:
    """Return a copy of a task under another name."""
    plain = globals()[base].__wrapped__
    copy = types.FunctionType(plain.__code__, globals(), name, plain.__defaults__)
    copy.__qualname__ = name
    copy.__module__ = __name__
    found: Callable[..., Any] = task(**DECORATION[base])(copy)
    return found


def __getattr__(name: str) -> Any:
    """Find a constrained task by its name, as workers do."""
    base, separator, _ = name.partition(_SEPARATOR)
    if separator and base in DECORATION:
        return _rename_task(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
