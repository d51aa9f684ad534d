"""Dask's annotations and spans hold for tasks on partitions, and do not unpin them."""

from __future__ import annotations

import operator
from typing import Any

import dask
import pytest
from distributed import Client, get_worker, span, wait

from spliter import reduce, split
from spliter_backends.dask.scheduler import records as dask_records
from tests.dask_backend import programs
from tests.dask_backend.programs import expected, spread
from tests.dask_workers import workers_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def total_and_annotations(partition: Any) -> tuple[int, dict[str, Any]]:
    task = get_worker().state.tasks[get_worker().get_current_task()]
    return sum(int(block.sum()) for block in partition), dict(task.annotations or {})


def spans(client: Client) -> dict[tuple[str, ...], int]:
    def count(dask_scheduler: Any) -> dict[tuple[str, ...], int]:
        by_name = dask_scheduler.extensions["spans"].spans_search_by_name
        return {name: len(found) for name, found in by_name.items()}

    found: dict[tuple[str, ...], int] = client.run_on_scheduler(count)
    return found


def sums_kept(client: Client) -> int:
    """Count the sums of times that the workers keep, by span and function."""
    return sum(client.run(lambda dask_worker: len(dask_worker.digests_total)).values())


def use(x: list[Any]) -> None:
    """Make a Split, iterate and drop it."""
    assert reduce(operator.add, split(x).map(programs.total)).result() == expected(8)


@pytest.mark.feature("spans")
def test_one_span_for_all_bursts(client: Client) -> None:
    # By default Dask makes one for each burst and keeps it, and workers keep sums by span.
    x = spread(client, 8)
    use(x)
    before = spans(client)
    kept = sums_kept(client)
    for _ in range(30):
        use(x)
    assert spans(client) == before
    assert before["spliter",] == 1
    assert sums_kept(client) < kept + 30  # a kind of time may be measured for the first time


@pytest.mark.feature("span records")
def test_groups_of_tasks_that_are_gone_are_forgotten(client: Client) -> None:
    # By default Dask keeps those of all bursts as long as its scheduler lives.
    x = spread(client, 8)
    lasting = split(x)
    wait(held := lasting.map(programs.total))
    for _ in range(150):
        use(x)
    groups, messages, alive = client.run_on_scheduler(look_at_our_span)
    assert dask_records.KEPT <= groups <= dask_records.MAX_GROUPS + 5
    assert messages <= dask_records.MAX_MESSAGES
    assert "total" in alive
    assert sum(future.result() for future in held) == expected(8)


@pytest.mark.feature("span records")
def test_messages_are_forgotten_also_where_a_group_lasts(client: Client) -> None:
    use(spread(client, 8))
    entry = {"type": "low-level-graph"}

    def fill(dask_scheduler: Any) -> int:
        ours = dask_scheduler.extensions["spans"].spans["spliter"]
        ours.metadata["collections"].extend([entry] * dask_records.MAX_MESSAGES)
        dask_records.prune_records(dask_scheduler)
        return len(ours.metadata["collections"])

    assert client.run_on_scheduler(fill) == dask_records.KEPT


def look_at_our_span(dask_scheduler: Any) -> tuple[int, int, set[str]]:
    """Count groups and messages; name the groups that the scheduler has and the span too."""
    ours = dask_scheduler.extensions["spans"].spans["spliter"]
    # What Dask's pages ask of a span.
    assert ours.stop >= ours.start > 0
    assert ours.states["memory"] > 0
    assert ours.cumulative_worker_metrics
    alive = {one.name for one in ours.groups if dask_scheduler.task_groups.get(one.name) is one}
    return len(ours.groups), len(ours.metadata["collections"]), alive


def test_control_of_one_span_for_all_bursts(client: Client) -> None:
    before = spans(client).get(("default",), 0)
    for number in range(30):
        client.submit(abs, number, pure=False).result()
        wait_until(lambda: not client.run_on_scheduler(_has_tasks))
    assert spans(client)["default",] >= before + 29


def _has_tasks(dask_scheduler: Any) -> bool:
    return any(str(key).startswith("abs-") for key in dask_scheduler.tasks)


def test_users_span(client: Client) -> None:
    x = spread(client, 8)
    with span("mine", "inner"):
        found = client.gather(split(x).map(total_and_annotations))
    assert [tags["span"]["name"] for _, tags in found] == [("mine", "inner")] * len(found)
    assert sum(total for total, _ in found) == expected(8)


@pytest.mark.feature("spans")
def test_users_annotations(client: Client) -> None:
    x = spread(client, 8)
    with dask.annotate(priority=7, retries=2, note="kept"):
        found = client.gather(split(x).map(total_and_annotations))
    for _, tags in found:
        assert (tags["priority"], tags["retries"], tags["note"]) == (7, 2, "kept")
        assert tags["span"]["name"] == ("spliter",)


def test_resources(start_cluster: Any) -> None:
    client = start_cluster(n_workers=2, resources={"GPU": 1})
    x = spread(client, 8)
    with dask.annotate(resources={"GPU": 1}):
        futures = split(x).map(total_and_annotations)
    assert sum(total for total, _ in client.gather(futures)) == expected(8)

    def restrictions(dask_scheduler: Any) -> list[Any]:
        return [dask_scheduler.tasks[key].resource_restrictions for key in keys]

    keys = [future.key for future in futures]
    assert client.run_on_scheduler(restrictions) == [{"GPU": 1}] * len(keys)


def test_users_workers_do_not_unpin(client: Client) -> None:
    x = spread(client, 40)
    one = workers_of(client)[:1]
    with dask.annotate(workers=one, allow_other_workers=True):
        futures = split(x).map(total_and_annotations)
        wait(futures)

    def pins(dask_scheduler: Any) -> list[Any]:
        tasks = [dask_scheduler.tasks[key] for key in keys]
        return [(sorted(one.worker_restrictions), one.loose_restrictions) for one in tasks]

    keys = [future.key for future in futures]
    pinned = client.run_on_scheduler(pins)
    assert {at for ats, _ in pinned for at in ats} == set(split(x).locations)
    assert not any(loose for _, loose in pinned)
