"""What this process's dataClay client sends to a backend, and its list of backends."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Mapping
from typing import Any, Final

from spliter import BackendNotUsableError
from spliter_backends._shared.machine import positive_seconds
from spliter_backends.dataclay.output import suppress_output
from spliter_backends.dataclay.worker.leases import DEFAULT_SECONDS

with suppress_output():
    from dataclay.config import get_runtime, session_var, settings
    from dataclay.event_loop import get_dc_event_loop

ANSWER_SECONDS: Final = 1.5
"""Timeout of a health check, and of a connection: both together well under 5 s."""

STOPPED: Final = "the dataClay client of this Split was stopped; start one and split again"

LEASE_VARIABLE: Final = "SPLITER_DATACLAY_LEASE"


def lease_seconds() -> float:
    """Return the length of a lease in seconds, set by ``SPLITER_DATACLAY_LEASE``.

    Backends free a program's objects when it has not renewed its lease for this long; 300 s by
    default.
    """
    return positive_seconds(LEASE_VARIABLE, DEFAULT_SECONDS)


class Connection:
    """A started dataClay client, given its runtime."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = weakref.ref(runtime)
        self.loop: Any = get_dc_event_loop()
        self.credentials: Mapping[str, Any] = session_var.get(None) or {
            "dataset_name": settings.client.dataset if settings.client else settings.root_dataset,
            "username": settings.client.username if settings.client else settings.root_username,
            "token": b"",
        }
        self.metadata = [
            ("dataset-name", self.credentials["dataset_name"]),
            ("username", self.credentials["username"]),
            ("authorization", self.credentials["token"]),
        ]
        self.name: Final = uuid.uuid4().hex
        self.lease_seconds: Final = lease_seconds()

    @property
    def runtime(self) -> Any:
        """Runtime of the client."""
        runtime = self._runtime()
        if runtime is None:
            raise BackendNotUsableError(STOPPED)
        return runtime

    def new_name(self) -> str:
        """Return a unique name under which a backend can keep something for this client."""
        return self.name + uuid.uuid4().hex

    def is_started(self) -> bool:
        """Return whether the client is started and not stopped."""
        runtime = self._runtime()
        return runtime is not None and runtime is get_runtime()

    async def refresh(self) -> None:
        """Query the list of backends from the metadata service."""
        update = self.runtime.backend_clients.update()
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                await update
        except Exception as error:
            raise BackendNotUsableError(
                f"dataClay's metadata service did not list its backends: {error!r}; check that it "
                "is running"
            ) from error
