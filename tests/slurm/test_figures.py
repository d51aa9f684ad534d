"""The ready-made scripts in ``slurm/scripts``: as rendered, and run by a shell and by SLURM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spliter_experiments.evaluation import load_scenario
from spliter_experiments.harness.records import ResultsFolder
from spliter_slurm.figures import READY_FIGURES, READY_SITES, SCRIPTS, ready_scripts
from spliter_slurm.site import load_site
from tests.conftest import ROOT, SOURCE_ROOTS
from tests.running import run_command
from tests.slurm.cluster import VirtualSlurm
from tests.slurm.commands import last_state, seconds_in, statuses
from tests.slurm.fake import Answer, FakeSlurm
from tests.slurm.test_programs import WELL, with_srun
from tests.slurm.test_render import shellcheck
from tests.waiting import wait_until


def test_scripts_are_those_of_the_renderer() -> None:
    assert ROOT / "slurm" / "scripts" == SCRIPTS
    there = {
        str(file.relative_to(SCRIPTS)): file.read_text(encoding="utf-8")
        for file in SCRIPTS.rglob("*")
        if file.is_file()
    }
    assert there == ready_scripts(), "write them anew: python -m spliter_slurm.figures"


def test_shell_and_shellcheck_take_all() -> None:
    files = sorted(map(str, SCRIPTS.rglob("*.sbatch")))
    assert len(files) == 26
    for command in (
        *(["bash", "-n", file] for file in files),
        [shellcheck(), "--severity=style", *files],
    ):
        done = run_command(command)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("site", READY_SITES)
def test_jobs_fit_their_site(site: str) -> None:
    for figure in READY_FIGURES:
        text = ready_scripts()[f"{site}/fig{int(figure):02}.sbatch"]
        assert f"--nodes={max(load_scenario(figure).sizes['full'].nodes)}\n" in text
        assert 0 < seconds_in(text) <= load_site(site).seconds


def run_in_bash(
    script: Path, folder: Path, fake_slurm: FakeSlurm, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a script as a job on two nodes, with stand-ins for SLURM and for what it starts."""
    with_srun(fake_slurm)
    fake_slurm.answer("scontrol", Answer("n1\nn2\n"))
    activate = folder / "venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True, exist_ok=True)
    activate.write_text(f"PATH={activate.parent}:$PATH\n")
    python = activate.with_name("python")
    python.write_text(f"#!/bin/bash\n{WELL.format(status=0)}\n")
    python.chmod(0o755)
    return run_command(
        ["/bin/bash", str(script), *arguments],
        cwd=folder,
        env={
            "PATH": f"{fake_slurm.folder}:/usr/bin:/bin",
            "VIRTUAL_ENV": str(folder / "venv"),
            "SLURM_JOB_ID": "5",
            "SLURM_JOB_NODELIST": "n[1-2]",
        },
    )


def test_each_number_of_nodes_has_a_cluster_of_its_own(
    tmp_path: Path, fake_slurm: FakeSlurm
) -> None:
    done = run_in_bash(SCRIPTS / "generic" / "fig09.sbatch", tmp_path, fake_slurm, "laptop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out: 4 nodes; submit with --nodes=4" in done.stdout
    job = tmp_path / "spliter-figures" / "jobs" / "fig09"
    assert statuses(job) == [("fig09-laptop-n1", 0), ("fig09-laptop-n2", 0)]
    assert last_state(job) == "ended 0"


def test_kernels_need_no_cluster(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    done = run_in_bash(SCRIPTS / "generic" / "fig18.sbatch", tmp_path, fake_slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    job = tmp_path / "spliter-figures" / "jobs" / "fig18"
    assert statuses(job) == [("fig18-full-n1", 0)]


def test_size_that_there_is_not(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    done = run_in_bash(SCRIPTS / "generic" / "fig09.sbatch", tmp_path, fake_slurm, "huge")
    assert done.returncode == 2
    assert "there is no size huge; take full or laptop" in done.stderr


@pytest.mark.slurm
@pytest.mark.backend("dask")
def test_a_script_runs_on_slurm(
    cluster: VirtualSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The script takes the `python` on the PATH.
    path = [str(Path(sys.executable).parent), cluster.environment["PATH"]]
    for name, folders in {"PATH": path, "PYTHONPATH": map(str, SOURCE_ROOTS)}.items():
        monkeypatch.setitem(cluster.environment, name, os.pathsep.join(folders))
    monkeypatch.chdir(tmp_path)
    small = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=20")
    cluster.call("sbatch", *small, str(SCRIPTS / "generic" / "fig10.sbatch"), "laptop")
    wait_until(lambda: not cluster.call("squeue", "--noheader"), 250)
    job = tmp_path / "spliter-figures" / "jobs" / "fig10"
    logs = "\n".join(file.read_text() for file in tmp_path.glob("spliter-fig10-*.out"))
    assert statuses(job) == [("fig10-laptop-n1", 0), ("fig10-laptop-n2", 0)], logs
    records = ResultsFolder(tmp_path / "spliter-figures" / "results").records()
    planned = load_scenario("10")
    each = len(planned.configurations) * planned.sizes["laptop"].repetitions
    assert sorted(record.nodes for record in records) == [1] * each + [2] * each
    assert "left out: 4 nodes" in logs
    wait_until(lambda: cluster.leftovers() == [], 30)
