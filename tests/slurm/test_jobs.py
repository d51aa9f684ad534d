"""Putting runs into jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.harness.errors import TooMuchError
from spliter_slurm.jobs import START_SECONDS, make_jobs, spilling
from spliter_slurm.site import Site, load_site
from tests.slurm.scenarios import full_runs

SITE = load_site("marenostrum4")


def ids(runs: list[PlannedRun]) -> list[str]:
    return sorted(run.id for run in runs)


@pytest.fixture
def runs(tmp_path: Path) -> list[PlannedRun]:
    return full_runs(tmp_path, 2) + full_runs(tmp_path, 16)


@pytest.mark.parametrize("hours", [None, 0.5, 1.0])
def test_every_run_is_in_one_job(runs: list[PlannedRun], hours: float | None) -> None:
    seconds = None if hours is None else 3600 * hours
    jobs = make_jobs(runs, SITE, seconds=seconds)
    assert ids([run for job in jobs for run in job.runs]) == ids(runs)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        assert job.seconds <= (seconds or SITE.seconds)
        assert {(run.nodes, run.workers, run.threads) for run in job.runs} == {
            (job.shape.nodes, job.shape.workers, job.shape.threads)
        }


def test_shapes_are_jobs_of_their_own(runs: list[PlannedRun]) -> None:
    small, large = make_jobs(runs, SITE)
    assert (small.shape.nodes, small.shape.per_node, small.shape.threads) == (2, 2, 24)
    assert (large.shape.nodes, large.shape.workers) == (16, 32)


def test_long_jobs_are_cut_between_repetitions(tmp_path: Path) -> None:
    jobs = make_jobs(full_runs(tmp_path, 16), SITE, seconds=3600)
    assert len(jobs) > 1
    for job in jobs:
        repetitions = [run.repetition for run in job.runs]
        assert all(repetitions.count(number) == 2 for number in repetitions)


def test_time_limit_follows_the_estimates(tmp_path: Path) -> None:
    runs = full_runs(tmp_path, 2)
    (before,) = make_jobs(runs, SITE)
    (after,) = make_jobs([replace(run, estimated_seconds=500.0) for run in runs], SITE)
    assert before.seconds > START_SECONDS + sum(run.estimated_seconds for run in runs)
    assert after.seconds > START_SECONDS + 500 * len(runs)
    (stand,) = after.stands
    assert stand.limit > 500 * len(runs)


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("nodes", 8, "nodes 16, and it has 8"),
        ("cores_per_socket", 12, "cores on a node 48, and it has 24"),
        ("memory_gib", 0.2, "memory on a node"),
        ("hours", 0.05, "time"),
    ],
)
def test_what_a_site_has_not_is_refused(
    tmp_path: Path, entry: str, value: float, said: str
) -> None:
    site: Site = SITE.model_copy(update={entry: value})
    with pytest.raises(
        TooMuchError, match=r"fig09-full-dask-baseline-n16.*asks too much"
    ) as raised:
        make_jobs(full_runs(tmp_path, 16), site)
    assert said in str(raised.value)


def test_what_may_be_spilled_is_told_and_not_refused(tmp_path: Path) -> None:
    runs = full_runs(tmp_path, 2)
    needed = max(run.memory_bytes for run in runs) / 2**30
    site = SITE.model_copy(update={"memory_gib": needed / 1.5})
    (job,) = make_jobs(runs, site)
    assert spilling(job, site) == pytest.approx(needed / 3)
    assert spilling(job, SITE) == 0
