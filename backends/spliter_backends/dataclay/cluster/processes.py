"""Start the processes of an embedded dataClay, and end them in order.

They are ended by `close`, at the end of the interpreter, or, if this process was killed, by the
watchdog (:mod:`.watchdog`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from spliter import BackendNotUsableError
from spliter_backends._shared import redis_store
from spliter_backends._shared.redis_store import HOST
from spliter_backends.dataclay.cluster import services
from spliter_backends.dataclay.cluster.services import Port, Service

CHECK_SECONDS = 0.05
STOP_SECONDS = 5.0
HEALTH = {
    "metadata": "dataclay.proto.metadata.MetadataService",
    "backend": "dataclay.proto.backend.BackendService",
}


class Processes:
    """The processes of one cluster; see :class:`EmbeddedDataClay` for its parameters."""

    def __init__(
        self, directory: Path | None, python_path: Sequence[str | Path], threads: int | None
    ) -> None:
        if importlib.util.find_spec("dataclay") is None:
            raise BackendNotUsableError(
                "dataClay is not installed; with Python < 3.13, run "
                'pip install "pyspliter[dataclay]"'
            )
        store = redis_store.find_store()
        if store is None:
            raise BackendNotUsableError(
                f"there is no key-value store for dataClay; {redis_store.STORE_HINT}"
            )
        self._store = store
        self._threads = threads
        self._python_path = python_path
        self._folder = Path(tempfile.mkdtemp(prefix="spliter-dataclay-", dir=directory))
        self._started: list[Service] = []
        self._watchdog = services.start_watchdog(self._folder)
        self.store_port, self.metadata_port = Port(), Port()
        self.backends: dict[uuid.UUID, Service] = {}
        # Also runs at the end of the interpreter, if the cluster is not closed.
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), self._started, self._watchdog, self._folder
        )

    def start(self, n_backends: int, timeout: float) -> None:
        """Start all processes concurrently: later ones wait for earlier ones by themselves.

        All must have answered within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        self._start("store", self._store.on_port(self.store_port.number), self.store_port, {})
        self._start(
            "metadata service",
            services.metadata_command(),
            self.metadata_port,
            {
                "DATACLAY_METADATA_HOST": HOST,
                "DATACLAY_METADATA_PORT": str(self.metadata_port.number),
                "DATACLAY_METADATA_LISTEN_ADDRESS": HOST,
            },
        )
        self.add(n_backends, deadline - time.monotonic())

    def add(self, count: int, timeout: float) -> list[uuid.UUID]:
        """Start backends, wait until they are registered and answer, and return their ids."""
        deadline = time.monotonic() + timeout
        new = {uuid.uuid4(): Port() for _ in range(count)}
        for backend, port in new.items():
            number = len(self.backends)
            spill = self._folder / f"backend-{number}"
            spill.mkdir()
            self.backends[backend] = self._start(
                f"backend {number}",
                services.backend_command(self._threads),
                port,
                {
                    "DATACLAY_BACKEND_ID": str(backend),
                    "DATACLAY_BACKEND_HOST": HOST,
                    "DATACLAY_BACKEND_PORT": str(port.number),
                    "DATACLAY_BACKEND_LISTEN_ADDRESS": HOST,
                    "DATACLAY_STORAGE_PATH": str(spill),
                },
            )
        self._wait(list(new), deadline)
        return list(new)

    def _start(
        self, name: str, command: Sequence[str], port: Port, settings: dict[str, str]
    ) -> Service:
        everywhere = {
            "DATACLAY_KV_HOST": HOST,
            "DATACLAY_KV_PORT": str(self.store_port.number),
            "DATACLAY_LOGLEVEL": "WARNING",
            # Objects end with the cluster; otherwise a backend writes them all when it stops.
            "DATACLAY_EPHEMERAL": "true",
        }
        env = services.environment(self._python_path, {**everywhere, **settings})
        service = services.start(name, command, port, self._folder, self._watchdog.pid, env)
        self._started.append(service)
        return service

    def _wait(self, new: list[uuid.UUID], deadline: float) -> None:
        """Wait until the metadata service and new backends answer, and the store knows them."""
        _, metadata, *_ = self._started
        self._until(functools.partial(_answers, metadata, "metadata"), metadata, deadline)
        for backend in new:
            service = self.backends[backend]
            self._until(functools.partial(_answers, service, "backend"), service, deadline)
            # A backend answers before it has registered.
            self._until(functools.partial(self._is_registered, backend), service, deadline)

    def _until(self, is_ready: Callable[[], bool], service: Service, deadline: float) -> None:
        while not is_ready():
            # Check dependencies first: the log of the process that failed has the reason.
            for needed in (*self._started[:2], service):
                if not needed.is_running():
                    raise BackendNotUsableError(_failed(needed, "ended while dataClay started"))
            if time.monotonic() > deadline:
                raise BackendNotUsableError(_failed(service, "did not answer in time"))
            time.sleep(CHECK_SECONDS)

    def _is_registered(self, backend: uuid.UUID) -> bool:
        import redis

        with redis.Redis(HOST, self.store_port.number, socket_timeout=STOP_SECONDS) as store:
            return bool(store.exists(f"/backend/{backend}"))

    def end(self) -> None:
        """End all processes and remove their files."""
        self._finalizer()
        # Services may never have been started, so release their ports here.
        for port in (self.store_port, self.metadata_port):
            port.release()


def _failed(service: Service, what: str) -> str:
    return f"dataClay's {service.name} {what}; the last lines of its log:\n{service.log_tail()}"


def _answers(service: Service, kind: str) -> bool:
    """Return whether a service of dataClay reports that it is serving."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(f"{HOST}:{service.port.number}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=HEALTH[kind]), timeout=STOP_SECONDS
            )
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _end(
    owner: int, started: list[Service], watchdog: subprocess.Popen[bytes], folder: Path
) -> None:
    """End the processes, the store last, so that the others need not wait for it."""
    if os.getpid() != owner:
        return  # a forked process does not own the processes it inherited
    store, others = started[:1], started[1:]
    for services_ in (others, store):
        for service in services_:
            service.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for service in services_:
            with contextlib.suppress(subprocess.TimeoutExpired):
                service.process.wait(max(0.0, deadline - time.monotonic()))
            service.process.kill()
            service.process.wait(STOP_SECONDS)
            service.port.release()
    shutil.rmtree(folder, ignore_errors=True)
    services.stop_watchdog(watchdog, 2 * STOP_SECONDS)
