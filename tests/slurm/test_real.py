"""The commands on a real SLURM: four virtual nodes, jobs that run, die and are done again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.slurm.folder import last_state
from tests.conftest import SOURCE_ROOTS
from tests.slurm.cluster import VirtualSlurm, virtual_slurm, wait_until
from tests.slurm.commands import (
    hours_for_two,
    ran,
    refused,
    slurm,
    spliter,
    statuses,
    submission,
)
from tests.slurm.scenarios import KMEANS, scenario_file

pytestmark = [pytest.mark.slurm, pytest.mark.backend("dask")]

LAPTOP = ("--site", "local", "--size", "laptop", "--python", sys.executable)


@pytest.fixture(autouse=True)
def at_login_node(cluster: VirtualSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(cluster, monkeypatch)


def log_in(cluster: VirtualSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    # Batch jobs have the environment of where they were handed in.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, SOURCE_ROOTS)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a sweep"


def is_empty(cluster: VirtualSlurm) -> Callable[[], bool]:
    return lambda: not cluster.call("squeue", "--noheader")


def logs(folder: Path) -> str:
    files = sorted([*(folder / "logs").iterdir(), *folder.glob("jobs/*/*/logs/*")])
    return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def test_sweep_of_two_scenarios_on_four_nodes(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    scenarios = [scenario_file(tmp_path), scenario_file(tmp_path, "12", KMEANS)]
    what: list[str | Path] = [*scenarios, *LAPTOP, "--nodes", "4"]
    ran("render", *what, "--hours", hours_for_two(tmp_path / "one", *what), "--output", folder)
    (job,) = submission(folder).jobs
    assert len(job.pieces) == 2, "this is to be a job array"
    ran("submit", folder)
    assert "0 of 4" in ran("status", folder)
    wait_until(is_empty(cluster))
    shown = ran("status", folder)
    assert shown.count("COMPLETED") == 2, shown + logs(folder)
    assert shown.count("4 of 4") == 2

    assert "8 of 8 runs are recorded" in ran("collect", folder)
    table = pd.read_parquet(folder / "results" / "results.parquet")
    assert sorted(table.run_id) == sorted(submission(folder).runs)
    assert set(table.figure) == {"9", "12"}
    assert set(table.workers) == {4}
    for number in (0, 1):
        piece = folder / "jobs" / job.name / str(number)
        assert (piece / "nodes.txt").read_text().split() == ["node1", "node2", "node3", "node4"]
        assert [status for _, status in statuses(piece)] == [0]
        assert last_state(piece) == "ended 0"
    plotted = spliter("experiment", "report", folder / "results")
    assert plotted.exit_code == 0, plotted.output
    assert {file.suffix for file in (folder / "results").rglob("fig*.*g")} == {".png", ".svg"}
    assert "no run of" in refused("submit", folder, "--resume")


def test_job_killed_half_way_is_collected_and_done_again(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    ran("render", scenario_file(tmp_path), *LAPTOP,
        *("--nodes", "2", "--repetitions", "30", "--output", folder))  # fmt: skip
    ran("submit", folder)
    (job,) = submission(folder).jobs
    results = ResultsFolder(folder / "results")
    wait_until(lambda: len(results.done()) >= 2)
    cluster.call("scancel", "--full", "--signal=KILL", str(job.job_id))
    wait_until(is_empty(cluster))
    before = {record.run_id: record for record in results.records()}
    assert 2 <= len(before) < 60, "the job was not killed half-way"
    collected = slurm("collect", folder)
    assert collected.exit_code == 1
    assert f"{len(before)} of 60 runs are recorded" in collected.output
    assert "COMPLETED" not in ran("status", folder)

    shown = ran("submit", folder, "--resume")
    assert f"{60 - len(before)} runs, about" in shown
    again = submission(folder).jobs[1]
    assert set(again.runs) == set(job.runs) - set(before)
    wait_until(is_empty(cluster))
    assert "60 of 60 runs are recorded" in ran("collect", folder), logs(folder)
    after = {record.run_id: record for record in results.records()}
    assert {run: after[run] for run in before} == before, "a run was done twice"


def test_cancelled_job_ends_its_services(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    ran("render", scenario_file(tmp_path), *LAPTOP,
        *("--nodes", "2", "--repetitions", "30", "--output", folder))  # fmt: skip
    ran("submit", folder)
    (job,) = submission(folder).jobs
    wait_until(lambda: bool(ResultsFolder(folder / "results").done()))
    assert any("dask worker" in line for line in cluster.leftovers())
    cluster.call("scancel", str(job.job_id))
    wait_until(is_empty(cluster))
    assert "CANCELLED" in ran("status", folder)
    wait_until(lambda: cluster.leftovers() == [], 30)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("nodes = 16", "asks too much: 16 nodes, and the partition main has 4"),
        ("constraint = 'gold'", "no node of the partition has the feature"),
        ("partition = 'nosuch'", "there is no such partition"),
        ("account = ''", "asks too much"),
    ],
)
def test_what_the_cluster_has_not_is_refused(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path, entry: str, said: str
) -> None:
    """The profile promises more than there is."""
    profile = tmp_path / "optimistic.toml"
    nodes = "16" if "nodes" in entry else "1"
    lines = ["description = 'x'", "sockets = 2", "cores_per_socket = 24", "memory_gib = 96.0"]
    others = [] if "nodes" in entry else ["nodes = 4"]
    profile.write_text("\n".join([*lines, "hours = 48.0", "exclusive = false", *others, entry]))
    repetitions = "60" if "account" in entry else "1"
    ran("render", scenario_file(tmp_path), "--site", profile, "--nodes", nodes,
        *("--repetitions", repetitions, "--output", folder))  # fmt: skip
    assert said in refused("submit", folder)
    assert cluster.call("squeue", "--noheader") == ""


def test_controller_that_has_gone(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with virtual_slurm(nodes=2) as other:
        log_in(other, monkeypatch)
        ran("render", scenario_file(tmp_path), *LAPTOP, "--nodes", "2", "--output", folder)
        other.end_controller()
        assert "the controller of SLURM does not answer" in refused("submit", folder)


@pytest.mark.backend("dataclay")
def test_dataclay_services_are_started_for_its_runs(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    ran("render", scenario_file(tmp_path), *LAPTOP, "--backend", "dataclay",
        *("--nodes", "2", "--repetitions", "1", "--output", folder))  # fmt: skip
    ran("submit", folder)
    wait_until(is_empty(cluster))
    assert "COMPLETED" in ran("status", folder), logs(folder)
    table = pd.read_parquet(folder / "results" / "results.parquet")
    assert set(table.engine) == {"dataclay"}
    assert set(table.workers) == {2}
    wait_until(lambda: cluster.leftovers() == [], 30)
