"""Each use of what Dask does not document is checked, and can be done without."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.running import run_command

pytest.importorskip("distributed")

import dask
from distributed import Client, get_worker

from spliter import reduce, split
from spliter_backends.dask.features import FEATURES
from spliter_backends.dask.internals.scheduler import our_span
from tests.conftest import ROOT
from tests.dask_backend import programs
from tests.dask_backend.conftest import start
from tests.dask_backend.programs import expected, spread, total
from tests.dask_backend.without import VARIABLE
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]

AT_WORKERS = {"spill buffer", "memory limits", "scheduler calls", "peer reads", "pool threads"}


@pytest.fixture
def checked_anew() -> Iterator[None]:
    """Forget what this process has found out."""
    with pytest.MonkeyPatch.context() as patch:
        for feature in FEATURES.values():
            patch.setattr(feature, "_found", None)
        yield


@pytest.mark.usefixtures("checked_anew")
@pytest.mark.parametrize("name", FEATURES)
def test_an_unknown_dask_is_logged_and_done_without(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "spliter.dask"):
        for _ in range(2):
            # None of the checks finds what it looks for here.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FEATURES[name], "_check", lambda *_: [].missing)  # type: ignore[attr-defined]
                assert not FEATURES[name].usable()
    assert [record.feature for record in caplog.records] == [name]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", ["batches", "pushes", "spill buffer", "peer reads", "dashboard", "failures"]
)
def test_a_check_sees_another_dask(name: str) -> None:
    feature = FEATURES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature, "_found", None)
        assert not feature.usable(object())


def found_at_worker(name: str) -> bool:
    """Check a feature at a worker."""
    worker = get_worker()
    objects = {"pool threads": [], "memory limits": [worker.memory_manager]}
    return bool(FEATURES[name]._check(*objects.get(name, [worker])))


def found_at_scheduler(name: str, dask_scheduler: Any) -> bool:
    from distributed.dashboard.scheduler import template_variables

    objects: dict[str, Callable[[], list[Any]]] = {
        "span records": lambda: [our_span(dask_scheduler)],
        "dashboard menu": lambda: [template_variables(dask_scheduler) for _ in range(2)],
    }
    checked = objects.get(name, lambda: [dask_scheduler])()
    return bool(FEATURES[name]._check(*checked))


@pytest.mark.usefixtures("checked_anew")
def test_this_dask_is_known(client: Client) -> None:
    assert sum(client.gather(split(spread(client, 4)).map(total))) == expected(4)  # makes our span
    found = {name: client.submit(found_at_worker, name).result(20) for name in AT_WORKERS}
    for name in ("dashboard", "dashboard menu", "failures", "span records"):
        found[name] = client.run_on_scheduler(found_at_scheduler, name)
    found["batches"] = FEATURES["batches"]._check(client)
    found["pushes"] = FEATURES["pushes"]._check(client.scheduler_comm)
    for name in ("spans", "unfused tasks", "pickling", "task graphs"):
        found[name] = FEATURES[name]._check()
    assert found == dict.fromkeys(FEATURES, True)


def turn_off(names: list[str]) -> None:
    """Do without features in this process."""
    for name in names:
        FEATURES[name].turn_off()


def check_again() -> None:
    """Forget what has been turned off."""
    for feature in FEATURES.values():
        feature._found = None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ExitStack() as stack:
        yield start(stack, n_workers=2).cluster


@pytest.fixture
def client_without(cluster: Any) -> Iterator[Callable[[list[str]], Client]]:
    """Have all processes of a cluster do without features; return a new client of it."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for feature in FEATURES.values():  # this process has the scheduler, too
            patch.setattr(feature, "_found", feature._found)

        def without(names: list[str]) -> Client:
            turn_off(names)
            client: Client = stack.enter_context(Client(cluster))
            client.run(turn_off, names)
            stack.callback(client.run, check_again)
            return client

        yield without


@pytest.mark.parametrize("name", [*FEATURES, "all"])
def test_results_are_the_same_without(
    name: str, client_without: Callable[[list[str]], Client]
) -> None:
    client = client_without(list(FEATURES) if name == "all" else [name])
    blocks = spread(client, 16)
    first, second = workers_of(client)
    others = [client.scatter(programs.make(at, 10), workers=[first]) for at in range(16)]
    with dask.annotate(priority=1), split(blocks, partitions_per_location=2) as parts:
        assert reduce(int.__add__, parts.map(programs.total)).result(30) == expected(16)
        # Submitted in a row, the second with the result of the first among its arguments.
        one = total(parts[0])
        two = parts[1].submit(programs.weighted, one)
        assert two.result(30) == one.result(30) * total(parts[1]).result(30)
        assert sum(client.gather(parts.map(_materialized))) == expected(16)
    squares = sum(at * at for at in range(160))
    with split(blocks, others) as pairs:
        assert pairs.moved.aligned_blocks == 8
        assert sum(client.gather(pairs.map(programs.products))) == squares
    # The plan is made before the blocks go to the other worker.
    with split(blocks, partitions_per_location=1) as parts:
        plan = list(parts)

        async def move_one(dask_scheduler: Any) -> None:
            key = blocks[0].key
            await dask_scheduler.gather_on_worker(second, {key: [first]})
            await dask_scheduler.delete_worker_data(first, [key], "test")

        client.run_on_scheduler(move_one)
        assert sum(client.gather([total(part) for part in plan])) == expected(16)
        assert parts.moved.fetched_blocks == 1


def _materialized(partition: Any) -> int:
    return int(partition.materialize().sum())


WHAT_DASK_DOES = "not schedule and not refuse and not cannot and not partitions_per and not repr"


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_conformance_without_any() -> None:
    # How blocks are shared out, and what is refused, is decided before Dask is asked.
    tests = ["tests/test_conformance_dask.py::TestArrays", "-k", WHAT_DASK_DOES]
    done = run_command(
        [sys.executable, "-m", "pytest", "-q", *tests],
        cwd=ROOT,
        env={**os.environ, VARIABLE: "all", "HYPOTHESIS_PROFILE": "quick"},
    )
    assert done.returncode == 0, done.stdout[-5_000:]
