"""What jobs run beside the runner: waits, services, and the program of a COMPSs job."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spliter_experiments.harness.errors import ServiceError
from spliter_slurm import compss_program
from spliter_slurm.jobs import make_jobs
from spliter_slurm.render import render
from spliter_slurm.services import (
    address_of,
    dask_ready,
    dataclay_ready,
    keep_port,
)
from spliter_slurm.site import load_site
from tests.conftest import RunPython
from tests.running import run_command
from tests.slurm.commands import last_state, statuses
from tests.slurm.fake import Answer, FakeSlurm
from tests.slurm.scenarios import full_runs
from tests.waiting import wait_until

Batch = Callable[[str], "subprocess.CompletedProcess[str]"]


def test_address_of_interfaces() -> None:
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(ServiceError, match="has no interface 'ib7'"):
        address_of("ib7")


def test_port_is_kept_from_others_and_not_from_the_service() -> None:
    port = keep_port("127.0.0.1")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as service:
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.bind(("127.0.0.1", port))
        service.listen()


@pytest.mark.backend("dask")
def test_workers_that_do_not_come(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    where = ("--scheduler-file", str(file), "--interface", "lo", "--port", "0", "--no-dashboard")
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "dask", "scheduler", *where], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: file.exists() and bool(file.read_text()))
        with pytest.raises(ServiceError, match=r"0 of 3 workers came in 0\.5 s"):
            dask_ready(file, workers=3, seconds=0.5)
    finally:
        scheduler.terminate()
        scheduler.wait(30)


@pytest.mark.backend("dataclay")
def test_backends_that_do_not_come() -> None:
    port = socket.create_server(("127.0.0.1", 0))
    with port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
    with pytest.raises(ServiceError, match="0 of 2 backends came"):
        dataclay_ready(address, address, backends=2, seconds=0.5)


def test_errors_of_services_have_no_traceback(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        *("-m", "spliter_slurm.services", "store"),
        *("--file", str(tmp_path / "store"), "--interface", "ib7"),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_compss_program_goes_on_after_a_stand_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    stands = [
        {"name": "bad", "words": ["experiment", "show", "no such figure"]},
        {"name": "worse", "words": ["nonsense"]},
        {"name": "good", "words": ["experiment", "list"]},
    ]
    (tmp_path / "stands.json").write_text(json.dumps(stands))
    assert compss_program.main(str(tmp_path / "stands.json"), str(tmp_path)) == 1
    assert statuses(tmp_path) == [("bad", 2), ("worse", 1), ("good", 0)]


def test_script_for_compss_calls_enqueue_compss(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    site = load_site("generic").model_copy(update={"python": sys.executable})
    runs = [replace(run, engine="compss") for run in full_runs(tmp_path, 2)]
    (job,) = make_jobs(runs, site)
    folder = tmp_path / "a sweep"
    script = render(job, site, "", folder)
    scripts = folder / "scripts"
    scripts.mkdir(parents=True)
    for name, text in script.files.items():
        (scripts / name).write_text(text)
    fake_slurm.answer("enqueue_compss", Answer("Submitted batch job 9\n"))
    done = run_command(
        ["/bin/bash", str(scripts / script.name)],
        env={
            **os.environ,
            "PATH": f"{fake_slurm.folder}:/usr/bin:/bin",
            "SPLITER_AFTER": "8",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        check=True,
    )
    assert "9" in done.stdout
    ((*options, program, stands, work, units),) = fake_slurm.calls("enqueue_compss")
    assert "--job_dependency=8" in options
    assert f"--python_interpreter={sys.executable}" in options
    assert Path(program) == Path(compss_program.__file__)
    assert json.loads(Path(stands).read_text())[0]["name"] == "fig09-full-compss-n2-b2304"
    assert Path(work).is_dir()
    assert (units, "--cpus_per_node=48" in options) == ("48", True)


@pytest.fixture
def batch(tmp_path: Path, fake_slurm: FakeSlurm) -> Batch:
    """Run a rendered batch script with commands of SLURM that lie."""
    site = load_site("generic").model_copy(update={"python": str(tmp_path / "python")})
    (job,) = make_jobs(full_runs(tmp_path, 2, repetitions=1), site)
    script = render(job, site, "", tmp_path / "sweep")
    file = tmp_path / "job.sbatch"
    file.write_text(script.text)
    fake_slurm.answer("scontrol", Answer("n1\nn2\n"))

    def run(python: str) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/bash\n{python}\n")
        program.chmod(0o755)
        return run_command(
            ["/bin/bash", str(file)],
            env={
                "PATH": f"{fake_slurm.folder}:/usr/bin:/bin",
                "SLURM_JOB_ID": "5",
                "SLURM_JOB_NODELIST": "n[1-2]",
            },
        )

    return run


SRUN = """#!/bin/bash
# Leaves out its options, and where "rm" is meant, the command too.
while [[ $1 == --* ]]; do shift; done
[ "$1" = rm ] || exec "$@"
"""
WELL = """
case "$*" in
*"dask scheduler"*)
    while [ "$1" != --scheduler-file ]; do shift; done
    echo x > "$2"
    exec sleep 60
    ;;
*"dask worker"*) exec sleep 60;;
*dask-ready*) exec sleep 1;;
*"experiment run"*) exit {status};;
esac
"""


def with_srun(fake_slurm: FakeSlurm) -> None:
    srun = fake_slurm.folder / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)


def piece_of(tmp_path: Path) -> Path:
    (piece,) = tmp_path.glob("sweep/jobs/*")
    return piece


def test_job_whose_run_fails_ends_its_services_and_says_so(
    tmp_path: Path, fake_slurm: FakeSlurm, batch: Batch
) -> None:
    with_srun(fake_slurm)
    assert batch(WELL.format(status=0)).returncode == 0
    done = batch(WELL.format(status=7))
    assert done.returncode == 1
    assert "1 commands failed" in done.stderr
    assert [status for _, status in statuses(piece_of(tmp_path))] == [0, 7]
    assert last_state(piece_of(tmp_path)) == "ended 1"


def test_scheduler_that_ends_at_once_is_not_waited_for(
    tmp_path: Path, fake_slurm: FakeSlurm, batch: Batch
) -> None:
    with_srun(fake_slurm)
    done = batch("exit 3")
    assert done.returncode == 1
    assert "a service ended before it wrote" in done.stderr
    assert not (piece_of(tmp_path) / "ends.tsv").exists()


def test_workers_that_end_are_seen_before_the_next_command(
    tmp_path: Path, fake_slurm: FakeSlurm, batch: Batch
) -> None:
    with_srun(fake_slurm)
    done = batch(WELL.format(status=0).replace('worker"*) exec sleep 60', 'worker"*) exit 1'))
    assert done.returncode == 1
    assert "a service ended before fig09-full-dask-n2-b2304" in done.stderr


def test_job_that_is_told_to_end_does(tmp_path: Path, fake_slurm: FakeSlurm, batch: Batch) -> None:
    with_srun(fake_slurm)
    # The run itself tells the batch script, as SLURM does before the time limit.
    tell = 'kill -TERM "$(ps -o ppid= "$PPID" | tr -d " ")"; exec sleep 60'
    done = batch(WELL.replace("exit {status}", tell))
    assert done.returncode == 143
    assert last_state(piece_of(tmp_path)) == "ended 143"
