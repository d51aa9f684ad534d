"""A few chaos runs on each engine; ``python -m tests.chaos`` makes more.

Which faults hit what differs from machine to machine; that every run keeps its promises does not.
"""

from __future__ import annotations

import dataclasses
import threading

import pytest

from tests.chaos.cases import APPS, GRAPHS, GROUP, WORKERS, Fault, draw_case
from tests.chaos.runner import Outcome, run_case, run_seeds

NOT_HERE = {"cut-client", "cancel-tasks"}
"""End in what Dask itself does when its client connects again, which is not always the same."""


def first_six(seeds: range) -> list[int]:
    """Return the first six seeds that draw none of these faults."""
    drawn = [draw_case("dask", seed) for seed in seeds]
    return [it.seed for it in drawn if not NOT_HERE & {one.kind for one in it.faults}][:6]


def check(backend: str, seeds: list[int], app: str = "") -> None:
    runs = list(run_seeds(backend, seeds, app))
    broken = [str(run) for run in runs if not run.is_good]
    assert not broken, "\n\n".join(broken)
    assert {run.case.app for run in runs} == ({app} if app else set(APPS))
    # The positive control: faults were injected, and some runs came through them.
    assert any(one.done for run in runs for one in run.injected)
    assert any(run.outcome is Outcome.RIGHT for run in runs)


@pytest.mark.backend("dask")
def test_dask() -> None:
    with_nannies, without = range(GROUP), range(GROUP, 2 * GROUP)
    check("dask", [*first_six(with_nannies), *first_six(without)])


@pytest.mark.backend("dask")
def test_graphs_of_dask() -> None:
    check("dask", first_six(range(GROUP)), GRAPHS)


def reading_threads() -> int:
    """Return how many threads of this process have read blocks ahead."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith("spliter-read") for name in names)


@pytest.mark.backend("dask")
def test_dask_reads_ahead_in_loops_that_faults_hit() -> None:
    from distributed import Client

    from tests.chaos.dask_cluster import DaskCluster

    spills = [Fault("spill", 0.1 + 0.1 * at, target=at, seconds=0.0) for at in range(2 * WORKERS)]
    case = dataclasses.replace(
        draw_case("dask", GROUP + APPS.index("map-reduce")),
        rows=(50,) * 30,
        places=tuple(range(WORKERS)) * 10,
        as_split=True,
        materialize=False,
        faults=tuple(spills),
        prefetch=3,
    )
    cluster = DaskCluster(nannies=False)
    try:
        outcome = run_case(case, cluster)
        assert outcome.outcome is Outcome.RIGHT and not outcome.left, str(outcome)
        with Client(cluster.cluster.scheduler_address) as client:
            assert sum(client.run(reading_threads).values()) > 0
    finally:
        cluster.close()


@pytest.mark.backend("dataclay")
def test_dataclay() -> None:
    check("dataclay", list(range(6)))
