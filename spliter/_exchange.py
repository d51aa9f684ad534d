"""Tasks that run at the same time and exchange values, without a way back to the program."""

from __future__ import annotations

from collections.abc import Iterable

from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter._protocols import Exchange, LetsTasksExchange


def exchanges(partitions: Iterable[Partition]) -> list[Exchange] | None:
    """Return what the tasks on some partitions exchange values by, while they run.

    A loop whose passes each need what all tasks of the one before have found can then make many
    passes in one task per partition. Nothing depends on the others' being there: a task that
    waits in vain gets None, returns how far it has come, and the program goes on from there.

    Parameters
    ----------
    partitions : iterable of Partition
        Of one Split, or of several on the same engine: one for each of the tasks.

    Returns
    -------
    list of Exchange or None
        One for the task on each partition, for one run of the tasks: submit them at once. None
        where tasks of this engine do not reach each other, or there are more of them at a
        location than run there at the same time; make a task of each pass then.

    Raises
    ------
    InvalidArgumentError
        If there are no partitions, or they belong to different engines.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import exchanges, split
    >>> exchanges(split([np.ones(3), np.ones(2)])) is None  # in this process tasks do not
    True
    """
    given = list(partitions)
    executors = {id(partition.executor): partition.executor for partition in given}
    if len(executors) != 1:
        raise InvalidArgumentError(
            f"tasks exchange values on one engine, got {len(given)} partitions of {len(executors)}"
        )
    (executor,) = executors.values()
    locations = [partition.location for partition in given]
    return executor.exchanges(locations) if isinstance(executor, LetsTasksExchange) else None
