"""What a Dask cluster shows of SplIter: the page of partitions against workers, and its log."""

from __future__ import annotations

import logging
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("distributed")
pytest.importorskip("bokeh")

import dask.array as da
from distributed import Client, Event, LocalCluster

from spliter import BackendNotUsableError, gather, split
from spliter_backends.dask import dashboard as dask_dashboard
from spliter_backends.dask.dashboard import PAGE, PartitionTracker, add_page
from tests.dask_backend.programs import expected, spread, total
from tests.dask_backend.test_drift import move_all

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]


@pytest.fixture(scope="module")
def threads() -> Iterator[Client]:
    """Client of a cluster whose scheduler and workers are threads of this process."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def scheduler_of(client: Client) -> Any:
    cluster: Any = client.cluster
    return cluster.scheduler


def at_workers(client: Client) -> list[tuple[int, int]]:
    """Partitions and tasks of each worker, as the page has them."""

    def ask(dask_scheduler: Any) -> list[tuple[int, int]]:
        seen = dask_scheduler.plugins[PartitionTracker.name]
        return [(one.partitions, one.tasks) for one in seen.at_workers()]

    found: list[tuple[int, int]] = client.run_on_scheduler(ask)
    return found


def until(client: Client, wanted: list[tuple[int, int]], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while (found := at_workers(client)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def wait_for(event: str) -> Callable[[Any], bool]:
    return lambda part: bool(Event(event).wait(timeout=60))


@pytest.mark.feature("dashboard")
def test_page_counts_partitions_and_tasks_under_way(threads: Client) -> None:
    # Partitions of more than 64 blocks: shorter ones are not kept at workers.
    early = split(da.ones(400, chunks=2).persist())
    gather(early.map(len))
    address = add_page(threads)
    assert address.endswith(PAGE)
    until(threads, [(1, 0), (1, 0)])  # what was there before the page
    late = split(da.ones(1200, chunks=2).persist(), partitions_per_location=3)
    futures = late.map(wait_for("dashboard-test"))
    until(threads, [(4, 3), (4, 3)])
    Event("dashboard-test").set()
    gather(futures)
    until(threads, [(4, 0), (4, 0)])
    early.close()
    late.close()
    del early, late, futures
    until(threads, [(0, 0), (0, 0)])


@pytest.mark.feature("dashboard")
def test_page_is_served_once(threads: Client) -> None:
    assert add_page(threads) == add_page(threads)
    application = scheduler_of(threads).http_application
    assert sum(PAGE in getattr(one, "app_paths", ()) for one in application.applications) == 1
    with urllib.request.urlopen(add_page(threads), timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.feature("dashboard")
def test_page_is_in_the_menu_and_has_the_menu(threads: Client) -> None:
    pages = add_page(threads), add_page(threads).replace(PAGE, "/status")
    for page in pages:
        with urllib.request.urlopen(page, timeout=60) as answer:
            text = answer.read().decode()
        assert text.count(f'href="{PAGE.strip("/")}"') == 1, page
        assert 'href="workers"' in text


def test_without_bokeh_the_error_says_what_to_install(
    threads: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_dashboard, "dask_setup", _no_bokeh)
    with pytest.raises(BackendNotUsableError, match="install bokeh"):
        add_page(threads)


def _no_bokeh(dask_scheduler: Any) -> bool:
    return False


def test_blocks_that_have_moved_are_told(threads: Client, caplog: pytest.LogCaptureFixture) -> None:
    """A task that starts again is in the worker's log, the plan that follows in the client's."""
    parts = split(spread(threads, 12), partitions_per_location=1)
    first, second = sorted(parts.locations)
    with caplog.at_level(logging.INFO, logger="spliter"):
        move_all(threads, first, second)
        assert sum(gather(parts.map(total))) == expected(12)
        list(parts)
    told: list[Any] = [one for one in caplog.records if one.name.startswith("spliter")]
    assert [(one.name, one.event) for one in told] == [
        ("spliter.dask", "retry"),
        ("spliter", "replan"),
    ]
    retry, replan = told
    assert (retry.location, retry.attempt) == (second, 1)
    assert retry.task.startswith("total-")
    assert (replan.cause, replan.locations, replan.partitions) == ("drift", 1, 1)
