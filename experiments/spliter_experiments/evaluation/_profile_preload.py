"""Preload module of Dask clients under ``spliter profile``; records the tasks of each client."""

from __future__ import annotations

import uuid
from typing import Any

from distributed import Client

from spliter_experiments.evaluation.profile import Profile, TaskWatcher, fill, read_records

PROFILE = Profile()
"""Profile of the program that runs in this process."""

CONNECTED: dict[Client, str] = {}
"""Clients that are not closed yet, with the name of their scheduler plugin."""


async def dask_setup(client: Client) -> None:
    """Start recording; called by the client after it has connected."""
    name = f"spliter-profile-{uuid.uuid4().hex}"
    # On the client's own event loop, its methods return awaitables.
    registered: Any = client.register_plugin(TaskWatcher(name))
    await registered
    CONNECTED[client] = name


async def dask_teardown(client: Client) -> None:
    """Collect the recorded tasks; called by the client before it disconnects."""
    name = CONNECTED.pop(client, None)
    if name is not None:
        reading: Any = client.run_on_scheduler(read_records, name=name)
        records, cores = await reading
        fill(PROFILE, records, cores)
        dropped: Any = client.unregister_scheduler_plugin(name)
        await dropped
