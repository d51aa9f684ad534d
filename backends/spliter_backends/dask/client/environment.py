"""Check that the scheduler and the workers of a Dask cluster have this version of SplIter.

Tasks are functions of SplIter's that are pickled by name. Where it is missing, Dask says of a whole
graph that it cannot be deserialized; this says which process lacks what, before any task is sent.
"""

from __future__ import annotations

import asyncio
import pydoc
import weakref
from collections.abc import Collection
from typing import Any, Final

from distributed import Client

from spliter import BackendNotUsableError
from spliter_backends.dask import versions
from spliter_backends.dask.client.scheduler_calls import call_client
from spliter_backends.dask.versions import wrong_versions

ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for the workers' answers. A worker that is busy or stopped for longer is taken
for one that is well: ``split`` must not hang because of it."""

_checked: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()


async def query_versions(client: Client, workers: list[str] | None = None) -> dict[str, str | None]:
    """Ask the processes of a cluster for their versions of SplIter.

    Parameters
    ----------
    client : distributed.Client
        On its event loop.
    workers : list of str, optional
        Addresses of the workers to ask; by default the scheduler and all workers.

    Returns
    -------
    dict of str to (str or None)
        The version by address of a worker, or ``"scheduler"``; None where SplIter cannot be
        imported. Workers that do not answer in time are left out.
    """
    # A function of the standard library: it can be run where nothing of ours is installed.
    name = f"{versions.__name__}.VERSION"
    found: dict[str, Any] = {}
    if workers is None:
        found["scheduler"] = await _answer_of_scheduler(client, name)
    try:
        answers = await asyncio.wait_for(
            client.run(pydoc.locate, name, workers=workers, on_error="return"), ANSWER_TIMEOUT
        )
    except (TimeoutError, OSError):
        answers = {}
    return {
        process: answer if isinstance(answer, str) else None
        for process, answer in (found | answers).items()
        if not isinstance(answer, OSError)  # it is gone
    }


async def _answer_of_scheduler(client: Client, name: str) -> Any:
    try:
        return await client.run_on_scheduler(pydoc.locate, name)
    except pydoc.ErrorDuringImport:
        return None


def check_environment(client: Client, workers: Collection[str] | None = None) -> None:
    """Refuse a cluster whose processes lack SplIter, asking each process once.

    Parameters
    ----------
    client : distributed.Client
        A client of it; from a thread that may wait.
    workers : collection of str, optional
        Addresses of workers that are about to be used: those not asked before are asked. By
        default all processes, if none has been asked before.

    Raises
    ------
    BackendNotUsableError
        Naming the processes.
    """
    checked = _checked.get(client)
    new = None if checked is None else set(workers or ()) - checked
    if new is not None and not new:
        return
    found = call_client(client, query_versions, client, None if new is None else sorted(new))
    if wrong := wrong_versions(found):
        raise BackendNotUsableError(wrong)
    _checked.setdefault(client, set()).update(found, new or ())
