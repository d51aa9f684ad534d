"""The commands on a real SLURM: four virtual nodes, jobs that run, die and are done again."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from spliter_experiments.harness.records import ResultsFolder
from spliter_slurm.site import SITES
from tests.conftest import SOURCE_ROOTS
from tests.slurm.cluster import VirtualSlurm
from tests.slurm.commands import (
    hours_for_two,
    last_state,
    numbers_in,
    refused,
    scripts_in,
    slurm,
    spliter,
    statuses,
    submit,
    submitted,
)
from tests.slurm.scenarios import KMEANS, scenario_file
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.backend("dask")]

LAPTOP = ("--site", "local", "--size", "laptop", "--python", sys.executable)


@pytest.fixture(autouse=True)
def at_login_node(cluster: VirtualSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
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
    files = sorted([*(folder / "logs").iterdir(), *folder.glob("jobs/*/logs/*")])
    return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def test_sweep_of_two_scenarios_on_four_nodes(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    scenarios = [scenario_file(tmp_path), scenario_file(tmp_path, "12", KMEANS)]
    what: list[str | Path] = [*scenarios, *LAPTOP, "--nodes", "4"]
    hours = hours_for_two(tmp_path / "one", *what)
    shown = slurm(*what, "--hours", hours, "--output", folder, "--submit")
    assert "8 runs, about" in shown
    first, second = numbers_in(folder)  # these are to be two jobs
    status = slurm("status", folder)
    assert re.search(rf"{second} +(running|pending \(Dependency\))", status), status
    wait_until(is_empty(cluster))
    status = slurm("status", folder)
    for number in (first, second):
        assert re.search(rf"{number} +ended 0 +0\n", status), status + logs(folder)
    assert re.search(r"fig09-laptop-dask +4 +4 +0\n", status), status
    assert re.search(r"fig12-laptop-dask +4 +4 +0\n", status), status

    plotted = spliter("experiment", "report", folder / "results")
    assert plotted.exit_code == 0, plotted.output + logs(folder)
    table = pd.read_parquet(folder / "results" / "results.parquet")
    assert len(table) == 8, logs(folder)
    assert set(table.figure) == {"9", "12"}
    assert set(table.workers) == {4}
    for script in scripts_in(folder):
        piece = folder / "jobs" / script.stem
        assert (piece / "nodes.txt").read_text().split() == ["node1", "node2", "node3", "node4"]
        assert [status for _, status in statuses(piece)] == [0]
        assert last_state(piece) == "ended 0"
    assert {file.suffix for file in (folder / "results").rglob("fig*.*g")} == {".png", ".svg"}
    assert "has all 8 runs" in refused(*what, "--output", folder)


def test_job_killed_half_way_is_collected_and_done_again(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    options = (*LAPTOP, "--nodes", "2", "--repetitions", "20")
    what: list[str | Path] = [scenario_file(tmp_path), *options]
    slurm(*what, "--output", folder)
    (job,) = submitted(folder)
    results = ResultsFolder(folder / "results")
    wait_until(lambda: len(results.done()) >= 2)
    cluster.call("scancel", "--full", "--signal=KILL", job)
    wait_until(is_empty(cluster))
    before = {record.run_id: record for record in results.records()}
    assert 2 <= len(before) < 40, "the job was not killed half-way"

    shown = slurm(*what, "--output", folder)
    assert f"{40 - len(before)} runs, about" in shown
    assert not {run for run in before if run in scripts_in(folder)[1].read_text().split()}
    assert submitted(folder)[0] == job
    wait_until(is_empty(cluster))
    after = {record.run_id: record for record in results.records()}
    assert len(after) == 40, logs(folder)
    assert {run: after[run] for run in before} == before, "a run was done twice"


def test_job_after_one_that_slurm_has_forgotten_is_cancelled_and_ends_its_services(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    slurm(scenario_file(tmp_path), *LAPTOP,
          *("--nodes", "2", "--repetitions", "30", "--output", folder))  # fmt: skip
    (folder / "jobs.tsv").write_text("of-last-year\t99999\n")
    _, job = submitted(folder)
    wait_until(lambda: bool(ResultsFolder(folder / "results").done()))
    assert any("dask worker" in line for line in cluster.leftovers())
    cluster.call("scancel", job)
    wait_until(is_empty(cluster))
    wait_until(lambda: cluster.leftovers() == [], 30)


MPI = {
    "mpiexec": 'mpi_command = ["mpiexec"]',
    # SLURM 22.05 misreads long addresses, as those of MPICH's other network library (UCX) are.
    "srun": """
mpi_command = ["srun", "--mpi=pmi2", "--overcommit"]
environment = { MPIR_CVAR_CH4_NETMOD = "ofi", FI_PROVIDER = "tcp" }
""",
}


@pytest.mark.parametrize("launcher", MPI)
def test_mpi_starts_the_cluster_of_a_job(
    launcher: str,
    cluster: VirtualSlurm,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("dask_mpi")
    # MPICH's mpiexec is installed next to the interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), cluster.environment["PATH"]])
    monkeypatch.setenv("PATH", path)
    site = tmp_path / "mpi.toml"
    profile = (SITES / "local.toml").read_text(encoding="utf-8")
    site.write_text(f'{profile}\nlauncher = "mpi"\n{MPI[launcher]}\n')
    slurm(scenario_file(tmp_path), "--site", site, *LAPTOP[2:], "--nodes", "2",
          *("--output", folder, "--submit"))  # fmt: skip
    wait_until(is_empty(cluster))
    results = ResultsFolder(folder / "results")
    assert len(results.done()) == 4, logs(folder)
    assert {record.workers for record in results.records()} == {2}
    (log,) = folder.glob("jobs/*/logs/cluster-*.log")
    assert {"dask_mpi-1", "dask_mpi-2"} <= set(log.read_text().split())  # named by their ranks
    wait_until(lambda: cluster.leftovers() == [], 30)


def test_job_that_the_cluster_refuses(cluster: VirtualSlurm, tmp_path: Path, folder: Path) -> None:
    slurm(scenario_file(tmp_path), *LAPTOP, "--partition", "nosuch", "--output", folder)
    done = submit(folder)
    assert done.returncode == 1
    assert "invalid partition specified: nosuch" in done.stderr
    assert "is not submitted" in done.stderr
    assert cluster.call("squeue", "--noheader") == ""


@pytest.mark.backend("ray")
def test_nodes_of_ray_are_started_for_its_runs(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    slurm(scenario_file(tmp_path), *LAPTOP, "--backend", "ray",
        *("--nodes", "2", "--repetitions", "1", "--output", folder))  # fmt: skip
    submitted(folder)
    wait_until(is_empty(cluster))
    records = ResultsFolder(folder / "results").records()
    assert {record.engine for record in records} == {"ray"}, logs(folder)
    assert {record.workers for record in records} == {2}
    wait_until(lambda: cluster.leftovers() == [], 30)


ENQUEUED = """#!/bin/bash
#SBATCH --nodes=2 --output={folder}/out
# What enqueue_compss writes around an application.
export HOME={folder}
arguments=("$SLURM_JOB_ID" node1 node1 " node2" ethernet {properties})
{storage}/storage_init.sh "${{arguments[@]}}" {folder}/variables || exit 1
settings=$HOME/.COMPSs/$SLURM_JOB_ID/storage/cfgfiles/storage.properties
cp "$settings" {folder}/settings
{python} - "$settings" > {folder}/backends << 'END'
import sys
from dataclay import Client
found = dict(line.strip().split("=", 1) for line in open(sys.argv[1]))
with Client(host=found["DC_HOST"], port=int(found["DC_PORT"])) as client:
    print(*sorted(map(str, client.get_backends())))
END
{storage}/storage_stop.sh "${{arguments[@]}}"
"""


@pytest.mark.backend("dataclay")
def test_dataclay_is_started_for_compss(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    site = tmp_path / "jar.toml"
    site.write_text('storage_jar = "/a.jar"\n' + (SITES / "local.toml").read_text())
    slurm(scenario_file(tmp_path), "--site", site, *LAPTOP[2:], "--backend", "compss+dataclay",
        *("--nodes", "2", "--repetitions", "1", "--output", folder))  # fmt: skip
    (properties,) = (folder / "scripts").glob("*.properties")
    here = tmp_path / "home"
    here.mkdir()
    script = here / "job"
    storage = SITES.parent / "storage" / "scripts"
    script.write_text(
        ENQUEUED.format(
            folder=here,
            storage=storage,
            python=sys.executable,
            properties=shlex.quote(str(properties)),
        )
    )
    cluster.call("sbatch", str(script))
    wait_until(is_empty(cluster))
    said = (here / "out").read_text() + logs(folder)
    lines = (here / "settings").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    homes = dict(pair.split("=") for pair in settings["SPLITER_COMPSS_WORKERS"].split(","))
    assert sorted(homes.values()) == ["node1", "node2"], said
    found = (here / "backends").read_text().splitlines()[-1]  # after what dataClay prints
    assert found.split() == sorted(homes), said
    wait_until(lambda: cluster.leftovers() == [], 30)


@pytest.mark.backend("dataclay")
def test_dataclay_services_are_started_for_its_runs(
    cluster: VirtualSlurm, tmp_path: Path, folder: Path
) -> None:
    slurm(scenario_file(tmp_path), *LAPTOP, "--backend", "dataclay",
        *("--nodes", "2", "--repetitions", "1", "--output", folder))  # fmt: skip
    submitted(folder)
    wait_until(is_empty(cluster))
    records = ResultsFolder(folder / "results").records()
    assert {record.engine for record in records} == {"dataclay"}, logs(folder)
    assert {record.workers for record in records} == {2}
    wait_until(lambda: cluster.leftovers() == [], 30)
