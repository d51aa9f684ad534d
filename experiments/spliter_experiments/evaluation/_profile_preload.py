"""Loaded by every Dask client of a program under ``spliter profile``; notes what it does."""

from __future__ import annotations

import uuid
from typing import Any

from distributed import Client

from spliter_experiments.evaluation.profile import Profile, TaskWatcher, fill, read_seen

PROFILE = Profile()
"""Of the program that runs in this process."""

CONNECTED: dict[Client, str] = {}
"""Clients that have not been closed yet, with the name of their plugin."""


async def dask_setup(client: Client) -> None:
    """Start to note; called by the client when it has connected."""
    name = f"spliter-profile-{uuid.uuid4().hex}"
    # On the client's own loop, as here, its methods return what is to be awaited.
    registered: Any = client.register_plugin(TaskWatcher(name))
    await registered
    CONNECTED[client] = name


async def dask_teardown(client: Client) -> None:
    """Take what was noted; called by the client before it disconnects."""
    name = CONNECTED.pop(client, None)
    if name is not None:
        reading: Any = client.run_on_scheduler(read_seen, name=name)
        seen, cores = await reading
        fill(PROFILE, seen, cores)
        dropped: Any = client.unregister_scheduler_plugin(name)
        await dropped
