"""Refuse the use of an engine in a process that was forked from the one connected to it."""

from __future__ import annotations

import os
from typing import Any

from spliter._errors import ForkedError


def owner_of(executor: Any) -> int | None:
    """Return the id of this process, to which an executor is bound; None if it works in forks."""
    return None if executor.usable_in_forks else os.getpid()


def check_process(owner: int | None, what: str) -> None:
    """Raise if this process was forked from the one that an engine's object is bound to.

    Parameters
    ----------
    owner : int or None
        Id of that process.
    what : str
        The object, for the error.

    Raises
    ------
    ForkedError
        As calls of the engine would wait forever for threads that the fork has not got.

    Examples
    --------
    >>> check_process(os.getpid(), "client")
    >>> check_process(None, "Split")
    """
    if owner is not None and owner != os.getpid():
        raise ForkedError(
            f"this process was forked from the one that the {what} belongs to, and has not got its "
            f"threads and connections; use the {what} there, or start processes by 'spawn' and "
            "connect in each"
        )
