"""Add and remove keys that a client needs, in the scheduler."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dask.typing import Key


async def add_client_keys(keys: Sequence[Key], client: str, dask_scheduler: Any) -> list[Key]:
    """Add results that a client needs, report their state to it, and return unknown keys.

    Runs on the scheduler.
    """
    tasks = dask_scheduler.tasks
    dask_scheduler.client_desires_keys([key for key in keys if key in tasks], client)
    return [key for key in keys if key not in tasks]


async def release_client_keys(keys: Sequence[Key], client: str, dask_scheduler: Any) -> None:
    """Free results that a client no longer needs, unless others do; runs on the scheduler."""
    if client in dask_scheduler.clients:
        stimulus = f"spliter-release-{time.time()}"
        dask_scheduler.client_releases_keys(keys, client, stimulus_id=stimulus)
