"""Call one backend from the client, without hanging if it is lost; free what it keeps.

dataClay retries forever when a backend is lost, so calls use its channels directly. While calls to
a backend are pending, its health is checked once a second. A task may run for any time, and a
backend whose interpreter is busy may be silent for a while; calls end if the backend is lost::

    answers                                        -> wait
    silent, but its machine accepts connections    -> wait, for MAX_SILENCE_SECONDS at most
    refuses connections, or cannot be reached      -> BackendLostError for all pending calls
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import pickle
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spliter import BackendNotUsableError
from spliter_backends.dataclay.client.connection import ANSWER_SECONDS, STOPPED, Connection
from spliter_backends.dataclay.message import check_fits, pack_ids, state_of
from spliter_backends.dataclay.objects import RequestHandler
from spliter_backends.dataclay.output import suppress_output

with suppress_output():
    from dataclay.exceptions import ObjectWithWrongBackendIdError
    from dataclay.proto.backend import backend_pb2

HEALTH_SERVICE: Final = "dataclay.proto.backend.BackendService"
CHECK_SECONDS: Final = 1.0
"""Interval between health checks of a backend with pending calls."""
MAX_SILENCE_SECONDS: Final = 120.0
"""Maximum silence of a backend that accepts connections: one long call into compiled code that
holds the interpreter's lock prevents it from answering."""
RENEWALS: Final = 5
"""Renewals within the length of a lease: four may be late or lost."""
FREE_AFTER: Final = 0.05
"""Delay in seconds during which requests to free objects are collected into one message."""
CHUNK_NBYTES: Final = 2**26
"""Size of the chunks in which large values are sent, far below the limit of a message."""
BATCH_NBYTES: Final = 2**25
"""Approximate size of a batch of objects made persistent with one message."""
MAX_ATTEMPTS: Final = 6
"""Maximum attempts to run a task, or to fetch a block, while blocks keep moving."""
NO_KWARGS: Final = pickle.dumps({})


class BackendLostError(Exception):
    """A backend is lost, or has never existed."""

    def __init__(self, backend_id: uuid.UUID, why: str) -> None:
        super().__init__(f"dataClay backend {backend_id} is lost ({why})")
        self.backend_id = backend_id


class ObjectMissingError(Exception):
    """The object of a method call is not at the called backend."""


class Health(enum.Enum):
    """Result of a health check."""

    ANSWERS = "answers"
    SILENT = "silent"
    LOST = "lost"


class Peer:
    """A backend, as this client calls it. Coroutines run on dataClay's event loop."""

    def __init__(self, session: Connection, backend_id: uuid.UUID) -> None:
        self.backend_id = backend_id
        self.handler_id = uuid.uuid5(backend_id, "spliter-request-handler")
        self._session = session
        self._pending_calls: set[asyncio.Future[Any]] = set()
        self._lost_reasons: dict[asyncio.Future[Any], str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._silent_since: float | None = None
        self._free_names: list[str] = []
        self._free_objects: list[uuid.UUID] = []
        self._renewing: asyncio.Task[None] | None = None
        self._freeing: asyncio.Task[None] | None = None

    async def call(self, object_id: uuid.UUID, method: str, *args: Any) -> Any:
        """Call an active method of an object at this backend, and return its result.

        Arguments are picklable by plain pickle. Raises `BackendLostError` if the backend is lost,
        before or during the call, `ObjectMissingError` if the object is not there.
        """
        packed_args = pickle.dumps(args)
        check_fits(len(packed_args))
        request = backend_pb2.CallActiveMethodRequest(
            object_id=str(object_id), method_name=method, args=packed_args, kwargs=NO_KWARGS
        )
        response = await self._rpc("CallActiveMethod", request)
        value: Any = pickle.loads(response.value) if response.value else None
        if isinstance(value, ObjectWithWrongBackendIdError):
            raise ObjectMissingError
        if response.is_exception:
            raise value
        return value

    async def call_handler(self, method: str, *args: Any) -> Any:
        """Call a method of the backend's request handler, which is created if it does not exist."""
        if self._renewing is None:
            self._renewing = self._session.loop.create_task(self._renew_lease())
        try:
            return await self.call(self.handler_id, method, *args)
        except ObjectMissingError:
            handler = RequestHandler()
            handler._dc_meta.id = self.handler_id
            await self.persist([handler])
            return await self.call(self.handler_id, method, *args)

    async def request(self, what: str, *arguments: Any) -> Any:
        """Send a request to the backend's request handler; see ``worker.tasks.HANDLERS``."""
        state, *answer = await self.call_handler("request", what, *arguments)
        if state == "away":
            raise ObjectMissingError
        return answer[0]

    async def persist(self, instances: Iterable[Any]) -> None:
        """Make volatile objects persistent at this backend, in batches; then use their ids."""
        batch: list[bytes] = []
        nbytes = 0
        for instance in instances:
            instance._dc_meta.dataset_name = self._session.credentials["dataset_name"]
            instance._dc_meta.master_backend_id = self.backend_id
            state = state_of(instance)
            if batch and nbytes + len(state) > BATCH_NBYTES:
                await self._persist(batch)
                batch, nbytes = [], 0
            batch.append(state)
            nbytes += len(state)
        if batch:
            await self._persist(batch)

    async def _persist(self, batch: Sequence[bytes]) -> None:
        check_fits(sum(map(len, batch)))
        request = backend_pb2.MakePersistentRequest(pickled_obj=batch)
        await self._rpc("MakePersistent", request)

    async def pull(self, what: str | uuid.UUID) -> bytearray:
        """Fetch a kept result, by its name, or an object's content, by its id, as a message."""
        transfer = self._session.new_name()
        try:
            total, chunk = await self.request("pull", transfer, what, 0, CHUNK_NBYTES)
            message = bytearray(total)
            message[: len(chunk)] = chunk
            for start in range(len(chunk), total, CHUNK_NBYTES):
                _, chunk = await self.request("pull", transfer, what, start, start + CHUNK_NBYTES)
                message[start : start + len(chunk)] = chunk
        except BaseException:
            self.free_later([transfer])
            raise
        return message

    async def push(self, message: bytearray) -> str:
        """Send a message of any size, and return its name at the backend."""
        transfer = self._session.new_name()
        try:
            for start in range(0, len(message), CHUNK_NBYTES):
                chunk = bytes(memoryview(message)[start : start + CHUNK_NBYTES])
                await self.request("push", transfer, len(message), start, chunk)
        except BaseException:
            self.free_later([transfer])
            raise
        return transfer

    async def _renew_lease(self) -> None:
        """Renew this client's lease at the backend until the client is stopped."""
        lease = self._session.name, self._session.lease_seconds
        while self._session.is_started():
            with contextlib.suppress(Exception):  # the next renewal may succeed
                await self.call_handler("renew", *lease)
            await asyncio.sleep(self._session.lease_seconds / RENEWALS)

    async def end_lease(self) -> None:
        """Make the backend free everything that it keeps for this client."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(BackendLostError, BackendNotUsableError):
                await self.request("end", self._session.name)

    def free_later(self, names: Sequence[str] = (), object_ids: Sequence[uuid.UUID] = ()) -> None:
        """Free results, transfers and objects at the backend soon.

        Callable from any thread, never waits or raises.
        """
        with contextlib.suppress(RuntimeError):  # the loop is closed at the program's end
            self._session.loop.call_soon_threadsafe(self._free, names, object_ids)

    def _free(self, names: Sequence[str], object_ids: Sequence[uuid.UUID]) -> None:
        self._free_names += names
        self._free_objects += object_ids
        if self._freeing is None:
            self._freeing = self._session.loop.create_task(self._free_soon())

    async def _free_soon(self) -> None:
        await asyncio.sleep(FREE_AFTER)
        names, self._free_names = self._free_names, []
        object_ids, self._free_objects = self._free_objects, []
        self._freeing = None
        await self._request_free(names, object_ids)

    async def _request_free(self, names: Sequence[str], object_ids: Sequence[uuid.UUID]) -> None:
        # A lost backend has nothing to free; a stopped client cannot send.
        with contextlib.suppress(BackendLostError, BackendNotUsableError):
            await self.request("free", names, pack_ids(object_ids))

    async def _rpc(self, name: str, request: Any) -> Any:
        """Make one call, with health checks while it is pending."""
        client = await self._client()
        call = getattr(client.stub, name)(
            request, metadata=[*client.metadata_call, *self._session.metadata]
        )
        waiting = asyncio.ensure_future(_wait_call(call))
        self._pending_calls.add(waiting)
        if self._watcher is None:
            self._watcher = self._session.loop.create_task(self._watch())
        try:
            return await waiting
        except asyncio.CancelledError:
            if why := self._lost_reasons.pop(waiting, None):
                raise BackendLostError(self.backend_id, why) from None
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise BackendNotUsableError(STOPPED) from None
        except grpc.aio.AioRpcError as error:
            raise await self._error_of(error) from None
        finally:
            self._pending_calls.discard(waiting)
            self._lost_reasons.pop(waiting, None)

    async def _client(self) -> Any:
        """Return dataClay's own client of this backend."""
        clients = self._session.runtime.backend_clients
        if self.backend_id not in clients:
            await self._session.refresh()
        try:
            client = clients[self.backend_id]
        except KeyError:
            raise BackendLostError(self.backend_id, "dataClay does not know it") from None
        if getattr(client, "stub", None) is None:
            raise BackendNotUsableError(STOPPED)
        return client

    async def _error_of(self, error: Any) -> Exception:
        """Return the error to raise for a failed call."""
        details = str(error.details())
        if error.code() is grpc.StatusCode.INTERNAL and "does not exist" in details:
            return ObjectMissingError()
        health, why = await self.check_health()
        if health is Health.LOST:
            return BackendLostError(self.backend_id, why)
        return BackendNotUsableError(
            f"a call of dataClay backend {self.backend_id} failed: {details}. Check that the same "
            "version of SplIter is importable there (PYTHONPATH of the backend)"
        )

    async def check_health(self) -> tuple[Health, str]:
        """Check the health of the backend; also return the reason if it is lost."""
        try:
            client = await self._client()
        except (BackendLostError, BackendNotUsableError) as error:
            return Health.LOST, str(error)
        request = health_pb2.HealthCheckRequest(service=HEALTH_SERVICE)
        stub = health_pb2_grpc.HealthStub(client.channel)
        try:
            await stub.Check(request, timeout=ANSWER_SECONDS, metadata=client.metadata_call)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return await self._check_connection(client)
            self._silent_since = None
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return Health.LOST, str(error.details())
            # It has no health service, but it has answered.
        self._silent_since = None
        return Health.ANSWERS, ""

    async def _check_connection(self, client: Any) -> tuple[Health, str]:
        """Check whether the machine of a silent backend still accepts connections for it."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(client.host, client.port)
        except OSError as error:  # includes the timeout
            return Health.LOST, f"no connection to {client.address}: {error}"
        writer.close()
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since > MAX_SILENCE_SECONDS:
            return Health.LOST, f"silent for {MAX_SILENCE_SECONDS:.0f} s"
        return Health.SILENT, ""

    async def _watch(self) -> None:
        """Check the backend's health as long as calls to it are pending."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._pending_calls:
                self._watcher = None
                return
            health, why = await self.check_health()
            if health is Health.LOST:
                for waiting in self._pending_calls:
                    self._lost_reasons[waiting] = why
                    waiting.cancel()


async def _wait_call(call: Any) -> Any:
    """Wait for a gRPC call, which is awaitable but no coroutine."""
    return await call
