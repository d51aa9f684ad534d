"""Count calls, bytes and kept objects on dataClay.

A task is a call of an active method that runs a kernel. SplIter's other calls (block locations,
releases, new partitions, leases) are not counted. Bytes are those of arguments and results of all
calls between this process and the backends. There is no other traffic: a result that another
backend needs passes through this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any

from spliter import Location
from spliter_backends.dataclay.executor import DataClayExecutor
from spliter_experiments.harness.runner import Reading


def kept_at(executor: DataClayExecutor, backends: Iterable[Location]) -> int:
    session = executor.session
    peers = [session.peer(uuid.UUID(backend)) for backend in backends]
    return sum(session.wait(peer.request("kept")) for peer in peers)


NO_TASKS = frozenset({"request", "renew", "add_partition"})
"""Active methods of SplIter that run no task."""


class Counts:
    """Tasks and bytes counted so far."""

    def __init__(self) -> None:
        self.tasks = 0
        self.nbytes = 0


class _CountedCall:
    """A pending call whose reply is counted on arrival."""

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
    """Wraps the gRPC stub of a backend, which all calls use, and counts active methods."""

    def __init__(self, stub: Any, counts: Counts) -> None:
        self.original = stub
        self._counts = counts

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.original, name)
        return method

    def CallActiveMethod(self, request: Any, **kwargs: Any) -> _CountedCall:  # noqa: N802 - gRPC's
        self._counts.tasks += request.method_name not in NO_TASKS
        self._counts.nbytes += len(request.args) + len(request.kwargs)
        return _CountedCall(self.original.CallActiveMethod(request, **kwargs), self._counts)


class CallMeter:
    """Counters of one dataClay while the context is open."""

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
        return Reading(self._counts.tasks, self._counts.nbytes)
