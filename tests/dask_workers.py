"""Which workers a Dask cluster has, and whether they run tasks."""

from __future__ import annotations

from typing import Any

from distributed import Client

from tests.waiting import wait_until


def workers_of(client: Client) -> list[str]:
    """Return the addresses of all workers, sorted."""
    return sorted(client.nthreads())


def described_workers(client: Client) -> dict[str, Any]:
    """Return what the scheduler knows of each worker, by its address.

    Not by ``client.scheduler_info(n_workers=-1)``: every two seconds the client asks by itself,
    for no workers, and that answer may come in between.
    """
    scheduler: Any = client.scheduler
    identity: dict[str, Any] = client.sync(scheduler.identity, n_workers=-1)
    workers: dict[str, Any] = identity["workers"]
    return workers


def wait_until_running(client: Client) -> None:
    """Wait until every worker runs a task."""
    wait_until(lambda: all(client.run(_executing).values()))


def _executing(dask_worker: Any) -> int:
    return int(dask_worker.state.executing_count)
