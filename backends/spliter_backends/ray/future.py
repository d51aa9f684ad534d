"""What stands for the result of a task: Ray's own reference, that can also be asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from spliter import BlockTimeoutError, Location
from spliter_backends.ray.cluster import block_timeout, usable_nodes
from spliter_backends.ray.errors import own, told

LOOK_SECONDS: Final = 10.0
"""After so long a wait it is made sure that there is something to wait for."""


class RayFuture(ObjectRef):  # type: ignore[misc]
    """An ``ObjectRef`` that has ``result``, ``exception`` and ``done`` as futures elsewhere do.

    ``ray.get``, ``ray.wait``, ``await`` and remote functions take it as any other reference. What
    arrives elsewhere, in a list that is an argument for instance, is a plain ``ObjectRef``.

    Parameters
    ----------
    reference : ObjectRef
        What Ray returned for the task.
    location : Location or None
        The node that the task was sent to.
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
            If it takes longer.
        BaseException
            What the task raised.
        BlockLostError
            If blocks that it needed are gone.
        """
        return results_of([self], timeout)[0]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return what it raised.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Returns
        -------
        BaseException or None
            ``None`` if it returned.

        Raises
        ------
        TimeoutError
            If it takes longer.
        """
        ready, _ = ray.wait([self], timeout=timeout, fetch_local=False)
        if not ready:
            raise TimeoutError(f"the task has not ended after {timeout} s")
        try:
            self.result()
        except Exception as error:  # noqa: BLE001 -- it is what was asked for
            return error
        return None

    def done(self) -> bool:
        """Whether the task has ended."""
        return bool(ray.wait([self], timeout=0, fetch_local=False)[0])

    def add_done_callback(self, fn: Callable[[RayFuture], object]) -> None:
        """Have a function called with this future when the task has ended, in a thread of Ray's.

        Parameters
        ----------
        fn : callable
            Gets this future.
        """
        self.future().add_done_callback(lambda _: fn(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the reference it is; Ray counts those it knows the type of."""
        return _same, (ObjectRef(self.binary(), self.owner_address()),)

    def __eq__(self, other: object) -> bool:
        """Whether the other refers to the same object; Ray's own also compares the types."""
        return isinstance(other, ObjectRef) and other.binary() == self.binary()

    __hash__ = ObjectRef.__hash__


def results_of(references: Sequence[ObjectRef], timeout: float | None = None) -> list[Any]:
    """Wait for results and return them, in order.

    Parameters
    ----------
    references : sequence of ObjectRef
        Of tasks.
    timeout : float, optional
        Seconds. Without it the tasks may take as long as they want, as long as there are nodes
        that can run them.

    Returns
    -------
    list

    Raises
    ------
    TimeoutError
        If it takes longer.
    BlockTimeoutError
        If there has been no node that could run a task for longer than the block timeout.
    BaseException
        What the first of the tasks that failed raised.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    last_seen = time.monotonic()
    while True:
        left = LOOK_SECONDS if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            return list(ray.get(list(references), timeout=min(left, LOOK_SECONDS)))
        except RayTaskError as error:  # first: a task may have raised one of those below
            raise own(error) from None
        except GetTimeoutError as error:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"no result after {timeout} s") from error
            if usable_nodes():
                last_seen = now
            elif now - last_seen > block_timeout():
                raise BlockTimeoutError(
                    "no node of the Ray cluster can run a task (one that is alive and has a CPU)"
                ) from error
        except RayError as error:
            failure = told(error)
            if failure is error:
                raise
            raise failure from error


def _same(value: Any) -> Any:
    return value
