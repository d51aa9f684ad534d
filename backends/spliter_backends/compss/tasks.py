"""The PyCOMPSs tasks of the backend: few, general, and importable at the workers.

A task with constraints is one of these under a name of its own, because COMPSs registers the
constraints of a task once, with its name. Such names are made up as they are needed, here and at
the workers alike (module ``__getattr__``).
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
from spliter_backends.compss.outcome import TaskFailure, news_of_here, result_of
from spliter_backends.compss.source import Layout, put_together
from spliter_backends.compss.worker import (
    Attempt,
    BlockFacts,
    Call,
    attempted,
    called,
    sent_back,
)

_SEPARATOR: Final = "_constrained_"

# What is sent is deleted once the task has read it: PyCOMPSs would keep it to the end.
_SENT: Final = {"content": IN_DELETE}
_GIVEN: Final = {"inputs": COLLECTION_IN}
# Each goes to the next node, wherever its input is.
_IN_TURN: Final = {"is_distributed": True}

DECORATION: Final[Mapping[str, Mapping[str, Any]]] = {
    "call": {"returns": CompssFuture, **_SENT},
    "call_with": {"returns": CompssFuture, **_SENT, **_GIVEN},
    "make": {"returns": (CompssFuture, CompssFuture), **_SENT},
    "make_with": {"returns": (CompssFuture, CompssFuture), **_SENT, **_GIVEN},
    "make_in_turn": {"returns": (CompssFuture, CompssFuture), **_SENT, **_IN_TURN},
    "make_in_turn_with": {
        "returns": (CompssFuture, CompssFuture),
        **_SENT,
        **_GIVEN,
        **_IN_TURN,
    },
    "describe": {"returns": CompssFuture, **_GIVEN},
    "together": {"returns": CompssFuture, "layout": IN_DELETE, **_GIVEN},
    "spread": {"returns": CompssFuture, **_GIVEN},
}


_started: Final[Counter[str]] = Counter()
"""How often each has been started by this process."""


@task(**DECORATION["call"])  # type: ignore[untyped-decorator]
def call(key: str, content: bytes | Call) -> Any:
    """Make a call that takes neither futures nor blocks."""
    return sent_back(key, called(key, content, ()))


@task(**DECORATION["call_with"])  # type: ignore[untyped-decorator]
def call_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Make a call that takes futures or blocks."""
    return sent_back(key, called(key, content, inputs))


@task(**DECORATION["make"])  # type: ignore[untyped-decorator]
def make(key: str, content: bytes | Call) -> Any:
    """Make a block: return the block itself, and what there is to know about it."""
    return _made(key, called(key, content, ()))


@task(**DECORATION["make_with"])  # type: ignore[untyped-decorator]
def make_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Make a block of the results of others."""
    return _made(key, called(key, content, inputs))


@task(**DECORATION["make_in_turn"])  # type: ignore[untyped-decorator]
def make_in_turn(key: str, content: bytes | Call) -> Any:
    """Make a block at the next node."""
    return _made(key, called(key, content, ()))


@task(**DECORATION["make_in_turn_with"])  # type: ignore[untyped-decorator]
def make_in_turn_with(key: str, content: bytes | Call, inputs: Sequence[Any]) -> Any:
    """Make a block of the results of others, at the next node."""
    return _made(key, called(key, content, inputs))


def _made(key: str, attempt: Attempt | TaskFailure) -> tuple[Any, Any]:
    if isinstance(attempt, TaskFailure):
        return attempt, attempt
    return attempt.value, result_of(BlockFacts.of([attempt.value]), key, news_of_here())


@task(**DECORATION["describe"])  # type: ignore[untyped-decorator]
def describe(key: str, inputs: Sequence[Any]) -> Any:
    """Tell where this is, and how large a block is that is given as its pieces side by side."""
    for piece in inputs:
        if isinstance(piece, TaskFailure):
            return TaskFailure(piece.error, key, news_of_here())
    return result_of(BlockFacts.of(inputs), key, news_of_here())


@task(**DECORATION["together"])  # type: ignore[untyped-decorator]
def together(key: str, layout: Layout, inputs: Sequence[Any]) -> Any:
    """Put the blocks of a partition into one."""
    return sent_back(key, attempted(key, lambda: Attempt(put_together(layout, inputs))))


@task(**DECORATION["spread"])  # type: ignore[untyped-decorator]
def spread(key: str, output: int | None, count: int, inputs: Sequence[Any]) -> Any:
    """Return the blocks in what a task has returned one by one, then what is known of them."""

    def function() -> Attempt:
        blocks = inputs[0] if output is None else inputs[0][output]
        if len(blocks) != count:
            raise ValueError(f"the task returned {len(blocks)} blocks for {count}")
        return Attempt(list(blocks))

    failed = inputs[0] if isinstance(inputs[0], TaskFailure) else None
    found = failed or attempted(key, function)
    if isinstance(found, TaskFailure):
        return [found] * (count + 1)
    facts = [BlockFacts.of([block]) for block in found.value]
    return [*found.value, result_of(facts, key, news_of_here())]


_unwanted: Final[list[Any]] = []


def delete_later(future: Any) -> None:
    """Have COMPSs delete an object when next a task is started.

    Parameters
    ----------
    future : future
        Not needed by tasks that have not been submitted. May be called while garbage is
        collected, when the binding may be in the middle of something.
    """
    _unwanted.append(future)


def delete_unwanted() -> None:
    """Have COMPSs delete the objects that :func:`delete_later` was called with."""
    while _unwanted:
        compss_delete_object(_unwanted.pop())


def start(base: str, constraints: Mapping[str, Any], *args: Any, **options: Any) -> Any:
    """Start one of these tasks.

    Parameters
    ----------
    base : str
        Name of the task.
    constraints : mapping of str to object
        As given to ``@constraint``.
    *args, **options
        Of the task.

    Returns
    -------
    future, or list of future
        What it returns.
    """
    _started[base] += 1
    return constrained(base, constraints)(*args, **options)


def started() -> int:
    """Return how many of these tasks this process has started.

    Returns
    -------
    int
        Those that ran at once, without a runtime, count too.
    """
    return _started.total()


def constrained(base: str, constraints: Mapping[str, Any]) -> Callable[..., Any]:
    """Return one of these tasks, with constraints.

    Parameters
    ----------
    base : str
        Name of the task.
    constraints : mapping of str to object
        As given to ``@constraint``; none gives the task itself.

    Returns
    -------
    callable
        The PyCOMPSs task.
    """
    if not constraints:
        found: Callable[..., Any] = globals()[base]
        return found
    return _constrained(base, json.dumps(dict(constraints), sort_keys=True, default=str))


@functools.cache
def _constrained(base: str, encoded: str) -> Callable[..., Any]:
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    renamed = _renamed(base, f"{base}{_SEPARATOR}{digest}")
    found: Callable[..., Any] = constraint(**json.loads(encoded))(renamed)
    return found


def _renamed(base: str, name: str) -> Callable[..., Any]:
    """Return a task under another name."""
    plain = globals()[base].__wrapped__
    copy = types.FunctionType(plain.__code__, globals(), name, plain.__defaults__)
    copy.__qualname__ = name
    copy.__module__ = __name__
    found: Callable[..., Any] = task(**DECORATION[base])(copy)
    return found


def __getattr__(name: str) -> Any:
    """Find a constrained task by its name, which is how a worker is told what to run."""
    base, separator, _ = name.partition(_SEPARATOR)
    if separator and base in DECORATION:
        return _renamed(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
