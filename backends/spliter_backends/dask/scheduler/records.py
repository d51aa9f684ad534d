"""Bound the scheduler's records of SplIter's finished tasks.

Dask records tasks in *spans* (``distributed.spans``). Outside of a span of the program's it makes
a new one for each burst of tasks, and never forgets one, nor the groups of tasks that were in it;
each worker keeps the sums of its times by span. So our tasks are all in one, and of its groups
whose tasks are gone the scheduler keeps the last few. Sums of times are not touched.
"""

from __future__ import annotations

from typing import Any, Final

from spliter_backends.dask.internals import our_span

MAX_GROUPS: Final = 100
"""Groups of tasks from which the span is looked through."""

MAX_MESSAGES: Final = 1_000
"""Messages from which on the first ones are forgotten."""

KEPT: Final = 10
"""Groups that are gone, and messages, of which so many stay: Dask asks for the last end of any."""


def prune_records(scheduler: Any) -> None:
    """Forget all but the last groups of our span whose tasks are gone.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        On its event loop; one without spans is left alone.
    """
    span = our_span(scheduler)
    if span is None:
        return
    if len(span.groups) > MAX_GROUPS:
        alive = scheduler.task_groups
        gone = [group for group in span.groups if alive.get(group.name) is not group]
        gone.sort(key=lambda group: group.stop)
        span.groups.difference_update(gone[:-KEPT])
    # An entry for each message, all alike, also where its group has been there all the time.
    messages = span.metadata["collections"]
    if len(messages) > MAX_MESSAGES:
        del messages[:-KEPT]
