"""Bound the scheduler's records of SplIter's finished tasks, and of the keys that clients need.

Dask records tasks in *spans* (``distributed.spans``). Outside of a span of the program it creates
a new one for each burst of tasks, and never removes spans or their groups of tasks. So SplIter's
tasks use a single span, and of its groups without tasks only the last few are kept. The times
recorded by span are unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from dask.typing import Key

from spliter_backends.dask.internals.scheduler import our_span

MAX_GROUPS: Final = 100
"""Number of groups in the span above which ended groups are removed."""

MAX_MESSAGES: Final = 1_000
"""Number of recorded messages above which the first ones are removed."""

KEPT: Final = 10
"""Number of ended groups, and of messages, to keep: Dask uses the end time of the last one."""


def prune_records(scheduler: Any) -> None:
    """Remove all but the last ended groups from our span; runs on the scheduler's event loop."""
    span = our_span(scheduler)
    if span is None:
        return
    if len(span.groups) > MAX_GROUPS:
        alive = scheduler.task_groups
        ended = [group for group in span.groups if alive.get(group.name) is not group]
        ended.sort(key=lambda group: group.stop)
        span.groups.difference_update(ended[:-KEPT])
    # Dask adds one entry per message, all of them equal.
    messages = span.metadata["collections"]
    if len(messages) > MAX_MESSAGES:
        del messages[:-KEPT]


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
