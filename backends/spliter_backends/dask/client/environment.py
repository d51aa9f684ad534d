"""Check that the scheduler and the workers of a Dask cluster have this version of SplIter.

Tasks are functions of SplIter, pickled by name. Without SplIter at a process, Dask would report
that a graph cannot be deserialized; this check names the process and the versions before any task
is sent.
"""

from __future__ import annotations

import asyncio
import pydoc
import weakref
from collections.abc import Collection, Mapping
from typing import Any, Final

from distributed import Client

import spliter
from spliter import BackendNotUsableError
from spliter_backends.dask.client.scheduler_calls import call_client

VERSION: Final = spliter.__version__
"""Read by name in other processes, so that importing it there tests both packages."""

MAX_NAMED: Final = 5
"""Maximum number of processes named in a message."""

PAGE: Final = "docs/clusters.md"

ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for workers. A worker that does not answer in time is assumed to have the right
version, so that ``split`` does not hang."""

_checked: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()


async def query_versions(client: Client, workers: list[str] | None = None) -> dict[str, str | None]:
    """Query the versions of SplIter of a cluster's processes; runs on the client's event loop.

    Returns the version by address, or by ``"scheduler"``; None if SplIter cannot be imported there.
    Omits workers that do not answer in time. Without `workers`, the scheduler and all workers are
    queried.
    """
    # From the standard library, so that it runs where SplIter is not installed.
    name = f"{__name__}.VERSION"
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
        if not isinstance(answer, OSError)  # a departed worker
    }


async def _answer_of_scheduler(client: Client, name: str) -> Any:
    try:
        return await client.run_on_scheduler(pydoc.locate, name)
    except pydoc.ErrorDuringImport:
        return None


def check_environment(client: Client, workers: Collection[str] | None = None) -> None:
    """Raise if processes of a cluster lack SplIter; each process is queried once.

    `workers` will be used; those not queried before are queried. By default all processes are, if
    none has been queried before. Not called on the client's event loop.
    """
    checked = _checked.get(client)
    new = None if checked is None else set(workers or ()) - checked
    if new is not None and not new:
        return
    found = call_client(client, query_versions, client, None if new is None else sorted(new))
    if wrong := wrong_versions(found):
        raise BackendNotUsableError(wrong)
    _checked.setdefault(client, set()).update(found, new or ())


def wrong_versions(found: Mapping[str, str | None]) -> str:
    """Return a message about processes that lack this version of SplIter, empty if none does.

    `found` is the version by process; None if SplIter cannot be imported there.

    Examples
    --------
    >>> wrong_versions({"scheduler": VERSION})
    ''
    >>> print(wrong_versions({"scheduler": VERSION, "tcp://b:1": None}))
    tcp://b:1 has no spliter, this program has ...: install the same version there ...
    """
    wrong = [
        f"{process} has {f'spliter {version}' if version else 'no spliter'}"
        for process, version in sorted(found.items())
        if version != spliter.__version__
    ]
    if not wrong:
        return ""
    more = [f"{len(wrong) - MAX_NAMED} more processes too"] if len(wrong) > MAX_NAMED else []
    return (
        f"{'; '.join(wrong[:MAX_NAMED] + more)}, this program has {spliter.__version__}: install "
        f"the same version there (pip install 'pyspliter[dask]=={spliter.__version__}') in the "
        f"environment or image of each process; see {PAGE}, "
        "'What has to be installed where'"
    )
