"""Future of a task: Ray's own reference with ``result``, ``exception`` and ``done``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from spliter import BlockLostError, BlockTimeoutError, Location
from spliter_backends.ray.cluster import block_timeout, check_known, usable_nodes
from spliter_backends.ray.errors import original_error, translate_error

CHECK_SECONDS: Final = 10.0
"""Seconds between checks that a node can still run the task."""


class RayFuture(ObjectRef):  # type: ignore[misc]
    """An ``ObjectRef`` with the methods of a future.

    ``ray.get``, ``ray.wait``, ``await`` and remote functions accept it like any reference. Pickled,
    for instance in a list argument, it becomes a plain ``ObjectRef``.

    Parameters
    ----------
    reference : ObjectRef
        Reference that Ray returned for the task.
    location : Location or None
        Node that the task was sent to.
    """

    def __init__(self, reference: ObjectRef, location: Location | None) -> None:
        super().__init__(reference.binary(), reference.owner_address())
        self.location = location

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the task and return its result.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Returns
        -------
        object
            Arrays are read-only views of the object store's memory, as from ``ray.get``.

        Raises
        ------
        TimeoutError
            If the task takes longer.
        BaseException
            The error of the task.
        BlockLostError
            If blocks that it needs are lost, or Ray was shut down.
        """
        return wait_for_results([self], timeout)[0]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return its error, or ``None`` if it succeeded.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        TimeoutError
            If the task takes longer.
        """
        if not self._has_ended(timeout):
            raise TimeoutError(f"the task has not finished after {timeout} s")
        try:
            self.result()
        except Exception as error:  # noqa: BLE001 -- returned to the caller
            return error
        return None

    def done(self) -> bool:
        """Return whether the task has finished, or its result is lost as Ray was shut down."""
        return self._has_ended(0)

    def _has_ended(self, timeout: float | None) -> bool:
        try:
            check_known([self])
        except BlockLostError:
            return True
        return bool(ray.wait([self], timeout=timeout, fetch_local=False)[0])

    def add_done_callback(self, fn: Callable[[RayFuture], object]) -> None:
        """Call a function with this future when the task has finished, in a thread of Ray."""
        try:
            check_known([self])
        except BlockLostError:
            fn(self)
        else:
            self.future().add_done_callback(lambda _: fn(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain reference: Ray counts references of types it knows only."""
        check_known([self])
        return _identity, (ObjectRef(self.binary(), self.owner_address()),)

    def __eq__(self, other: object) -> bool:
        """Return whether both refer to the same object; Ray's method also compares the types."""
        return isinstance(other, ObjectRef) and other.binary() == self.binary()

    __hash__ = ObjectRef.__hash__


def wait_for_results(references: Sequence[ObjectRef], timeout: float | None = None) -> list[Any]:
    """Wait for tasks and return their results, in order.

    Without a timeout there is no limit while some node can run tasks. Raises the error of the first
    failed task, `TimeoutError`, `BlockLostError` if blocks that they need are lost, or Ray was shut
    down, or `BlockTimeoutError` if no node could run a task for longer than the block timeout.
    """
    check_known(references)
    deadline = None if timeout is None else time.monotonic() + timeout
    last_seen = time.monotonic()
    while True:
        left = CHECK_SECONDS if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            return list(ray.get(list(references), timeout=min(left, CHECK_SECONDS)))
        except RayTaskError as error:  # first: a task may have raised one of those below
            raise original_error(error) from None
        except GetTimeoutError as error:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"no result after {timeout} s") from error
            if usable_nodes():
                last_seen = now
            elif now - last_seen > block_timeout():
                raise BlockTimeoutError(
                    "no node of the Ray cluster can run tasks; start one with a CPU"
                ) from error
        except RayError as error:
            failure = translate_error(error)
            if failure is error:
                raise
            raise failure from error


def _identity(value: Any) -> Any:
    return value
