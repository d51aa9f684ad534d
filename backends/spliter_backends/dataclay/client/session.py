"""Session of this process's dataClay client with its backends."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, Final

from spliter import BackendNotUsableError, BlockTimeoutError, InvalidArgumentError
from spliter.backend import check_process
from spliter_backends.dataclay.client.backend_calls import BackendLostError, Health, Peer
from spliter_backends.dataclay.client.connection import Connection
from spliter_backends.dataclay.message import pack_ids, unpack_ids
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay.config import get_runtime

ADMIN_SECONDS: Final = 60.0
"""Timeout of requests that do not wait for tasks."""

EXIT_SECONDS: Final = 2.0
"""Timeout of freeing what is left at the end of the program."""

NIL_ID: Final = uuid.UUID(int=0)


class Session(Connection):
    """A started dataClay client, and its backends."""

    def __init__(self, runtime: Any) -> None:
        super().__init__(runtime)
        self.owner: Final = os.getpid()
        self.executor: Any = None
        self._peers: dict[uuid.UUID, Peer] = {}
        self._described: dict[uuid.UUID, Mapping[str, Any]] = {}
        atexit.register(_end_leases, weakref.ref(self))

    def peer(self, backend_id: uuid.UUID) -> Peer:
        """Return the connection to a backend, which need not exist."""
        return self._peers.setdefault(backend_id, Peer(self, backend_id))

    def may_wait(self) -> bool:
        """Return whether this thread may block: it is not the thread of dataClay's event loop."""
        return bool(self.loop._thread_id != threading.get_ident())

    def wait(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Run a coroutine, which bounds its own waits, on dataClay's event loop."""
        if not self.may_wait():
            coroutine.close()
            raise InvalidArgumentError(
                "this call waits for dataClay and cannot run on dataClay's own event loop; run it "
                "in a thread: await asyncio.to_thread(...)"
            )
        running = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return running.result(timeout)
        except concurrent.futures.TimeoutError:
            running.cancel()
            raise

    async def end_leases(self) -> None:
        """Make all backends free what they keep for this client."""
        await asyncio.gather(*(peer.end_lease() for peer in self._peers.values()))

    async def backend_ids(self) -> list[uuid.UUID]:
        """Return the ids of the backends that are alive."""
        await self.refresh()
        known = sorted(self.runtime.backend_clients)
        checks = await asyncio.gather(*(self.peer(one).check_health() for one in known))
        return [
            one for one, (health, _) in zip(known, checks, strict=True) if health is not Health.LOST
        ]

    async def find_lost(self, backend_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return the lost backends among some, with the reasons."""
        checks = await asyncio.gather(*(self.peer(one).check_health() for one in backend_ids))
        return {
            one: why
            for one, (health, why) in zip(backend_ids, checks, strict=True)
            if health is Health.LOST
        }

    async def locate(self, object_ids: Sequence[uuid.UUID]) -> list[uuid.UUID | None]:
        """Query the backends of objects, ``None`` if unknown, with one request for any number.

        Any backend can answer it from the key-value store, which clients need not reach.
        """
        whys = []
        for backend_id in await self._candidates():
            try:
                async with asyncio.timeout(ADMIN_SECONDS):
                    found = await self.peer(backend_id).request("locate", pack_ids(object_ids))
            except BackendLostError as error:
                whys.append(str(error))
                continue
            except TimeoutError:
                raise BlockTimeoutError(
                    f"dataClay did not locate {len(object_ids)} objects within "
                    f"{ADMIN_SECONDS:.0f} s; check its key-value store"
                ) from None
            return [one if one != NIL_ID else None for one in unpack_ids(found)]
        raise BackendNotUsableError(
            f"no dataClay backend answers: {'; '.join(whys) or 'there is none'}"
        )

    async def _candidates(self) -> list[uuid.UUID]:
        """Return the backends, starting with those that have answered before."""
        if not self.runtime.backend_clients:
            await self.refresh()
        known = sorted(self.runtime.backend_clients)
        return sorted(known, key=lambda one: one not in self._described)

    async def describe(self, backend_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Any]:
        """Return the backends' descriptions of themselves; omit lost backends."""
        answers = await asyncio.gather(
            *(self.peer(one).request("describe") for one in backend_ids), return_exceptions=True
        )
        found: dict[uuid.UUID, Any] = {}
        for backend_id, answer in zip(backend_ids, answers, strict=True):
            if isinstance(answer, BackendLostError):
                self._described.pop(backend_id, None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[backend_id] = self._described[backend_id] = answer
        return found

    async def cores(self, backend_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
        """Return the cores of backends, queried once; 1 for lost backends."""
        await self.describe([one for one in backend_ids if one not in self._described])
        return {one: self._described.get(one, {}).get("cores", 1) for one in backend_ids}


def _end_leases(session: weakref.ReferenceType[Session]) -> None:
    """Free everything at backends that outlive this program."""
    alive = session()
    if alive is not None and get_runtime() is not None and alive.loop.is_running():
        with contextlib.suppress(Exception):
            alive.wait(alive.end_leases(), EXIT_SECONDS)


_sessions: weakref.WeakKeyDictionary[Any, Session] = weakref.WeakKeyDictionary()
_sessions_lock = threading.Lock()


def current_session() -> Session:
    """Return the session of the dataClay client started in this process.

    Raises an error if there is none, this process is itself a backend, or was forked from the one
    that started the client.
    """
    session = session_here()
    check_process(session.owner, "dataClay client")
    if session.runtime.is_backend:
        raise BackendNotUsableError(
            "this process is a dataClay backend, where a method that waits for tasks can deadlock; "
            "split in the client"
        )
    return session


def session_here() -> Session:
    """Return the session of this process, a client or a backend."""
    runtime = get_runtime()
    if runtime is None:
        raise BackendNotUsableError(
            "no dataClay client is started in this process; call dataclay.Client(host=...).start()"
            " first, or use spliter_backends.dataclay.cluster.EmbeddedDataClay"
        )
    with _sessions_lock:
        if runtime not in _sessions:
            _sessions[runtime] = Session(runtime)
        return _sessions[runtime]
