"""Runs in the scheduler: note which results a client wants, and which no longer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dask.typing import Key


async def add_client_keys(keys: Sequence[Key], client: str, dask_scheduler: Any) -> list[Key]:
    """Run on the scheduler: report the state of tasks to a client, now and when it changes.

    Parameters
    ----------
    keys : sequence of key
        Tasks whose results the client needs. They are kept until it releases them.
    client : str
        Identifier of the client.
    dask_scheduler : distributed.Scheduler
        Given by Dask.

    Returns
    -------
    list of key
        Those that the scheduler does not know.
    """
    tasks = dask_scheduler.tasks
    dask_scheduler.client_desires_keys([key for key in keys if key in tasks], client)
    return [key for key in keys if key not in tasks]


async def release_client_keys(keys: Sequence[Key], client: str, dask_scheduler: Any) -> None:
    """Run on the scheduler: free results that a client wants no longer, unless others do.

    Parameters
    ----------
    keys : sequence of key
        Of the results.
    client : str
        Identifier of the client.
    dask_scheduler : distributed.Scheduler
        Given by Dask.
    """
    if client in dask_scheduler.clients:
        stimulus = f"spliter-release-{time.time()}"
        dask_scheduler.client_releases_keys(keys, client, stimulus_id=stimulus)
