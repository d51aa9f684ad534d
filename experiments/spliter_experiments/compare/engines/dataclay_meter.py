"""Count the calls and the bytes that a way costs on dataClay.

A task is one call of an active method that runs a kernel. SplIter's other calls (where blocks
are, what may be freed, new partitions, leases) are none. Bytes are those of arguments and results
of all calls, between this process and the backends: unlike on Dask there is no other traffic, as a
result that another backend needs goes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any

from spliter_backends.dataclay.executor import DataClayExecutor
from spliter_experiments.harness.runner import Reading

NO_TASKS = frozenset({"ask", "renew", "add_partition"})
"""The active methods of SplIter's that run no task."""


class Counts:
    """What has been counted so far."""

    def __init__(self) -> None:
        self.tasks = 0
        self.nbytes = 0


class _CountedCall:
    """A call under way whose reply is counted when it comes."""

    def __init__(self, call: Any, counts: Counts) -> None:
        self._call = call
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        reply = yield from self._call.__await__()
        self._counts.nbytes += len(reply.value)
        return reply


class CountingStub:
    """What gRPC made to call a backend by, with active methods counted; all calls go through it.

    Parameters
    ----------
    stub : object
        The original.
    counts : Counts
        Where to.
    """

    def __init__(self, stub: Any, counts: Counts) -> None:
        self.original = stub
        self._counts = counts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.original, name)
        return method

    def CallActiveMethod(self, request: Any, **kwargs: Any) -> _CountedCall:  # noqa: N802 - gRPC's
        """Make a call, counted."""
        self._counts.tasks += request.method_name not in NO_TASKS
        self._counts.nbytes += len(request.args) + len(request.kwargs)
        return _CountedCall(self.original.CallActiveMethod(request, **kwargs), self._counts)


class CallMeter:
    """Counters of one dataClay, for the time of a context.

    Parameters
    ----------
    executor : DataClayExecutor
        Of the client.
    """

    def __init__(self, executor: DataClayExecutor) -> None:
        self._clients: Mapping[Any, Any] = executor.session.runtime.backend_clients
        self._counts = Counts()

    def __enter__(self) -> CallMeter:
        for client in self._clients.values():
            client.stub = CountingStub(client.stub, self._counts)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            if isinstance(client.stub, CountingStub):
                client.stub = client.stub.original

    def reading(self) -> Reading:
        """Read the counters."""
        return Reading(self._counts.tasks, self._counts.nbytes)
