"""Written submissions: what is in them, what they leave out, and how they are submitted."""

from __future__ import annotations

import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.harness.records import Record, ResultsFolder
from tests.slurm.commands import (
    hours_for_two,
    numbers_in,
    refused,
    scripts_in,
    seconds_of_job,
    slurm,
    spliter,
    submit,
    submitted,
)
from tests.slurm.fake import Answer, FakeSlurm
from tests.slurm.scenarios import KMEANS, full_runs, scenario_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a sweep"


@pytest.fixture
def chain(tmp_path: Path, folder: Path, fake_slurm: FakeSlurm) -> Path:
    """Three jobs, each after the one before."""
    slurm(scenario_file(tmp_path), *("--site", "generic", "--output", folder, "--hours", "2"))
    assert len(scripts_in(folder)) == 3
    return folder


def test_dry_run_shows_everything_and_writes_nothing(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    shown = slurm(scenario_file(tmp_path), "--site", "marenostrum4", "--output", folder,
                  "--dry-run", "--nodes", "16")  # fmt: skip
    assert not folder.exists()
    assert "1 jobs on marenostrum4" in shown
    assert "6 runs, about" in shown
    assert "6 runs on dask; 16 nodes, workers on each: 2, threads of each: 24" in shown
    assert "#SBATCH --nodes=16" in shown
    assert "--only fig09-full-dask-spliter-n16-b2304-r3" in shown
    assert fake_slurm.calls("sbatch") == []


def test_chain_is_handed_in_in_order(chain: Path, fake_slurm: FakeSlurm) -> None:
    assert fake_slurm.calls("sbatch") == []
    assert submitted(chain) == ["100", "101", "102"]
    after = [call[1:-1] for call in fake_slurm.calls("sbatch")]
    assert after == [[], ["--dependency=afterany:100"], ["--dependency=afterany:101"]]
    assert [f"scripts/{script.name}" for script in scripts_in(chain)] == [
        call[-1] for call in fake_slurm.calls("sbatch")
    ]
    # Nothing is submitted twice.
    assert submitted(chain) == ["100", "101", "102"]
    assert len(fake_slurm.calls("sbatch")) == 3


def test_refused_job_keeps_those_before_it(chain: Path, fake_slurm: FakeSlurm) -> None:
    said = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    fake_slurm.answer("sbatch", Answer("100\n"), Answer(err=said, status=1))
    done = submit(chain)
    assert done.returncode == 1
    assert "Invalid qos specification" in done.stderr
    assert f"{scripts_in(chain)[1].stem} is not submitted" in done.stderr
    assert numbers_in(chain) == ["100"]
    fake_slurm.answer("sbatch", Answer("101\n"), Answer("102\n"))
    assert submitted(chain) == ["100", "101", "102"]


def test_job_of_an_interrupted_submit_is_found_by_its_name(
    chain: Path, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.answer("squeue", Answer("77\n77\n"), Answer())
    assert submitted(chain) == ["77", "100", "101"]
    assert f"--name={scripts_in(chain)[0].stem}" in fake_slurm.calls("squeue")[0]


def test_submit_option_shows_what_slurm_refused(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    said = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    fake_slurm.answer("sbatch", Answer("100\n"), Answer(err=said, status=1))
    what = (scenario_file(tmp_path), "--site", "generic", "--output", folder, "--hours", "2")
    result = spliter("slurm", *what, "--submit")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Invalid qos specification" in result.output
    assert f"to continue: bash {folder}/submit.sh" in " ".join(result.output.split("\n"))
    assert numbers_in(folder) == ["100"]


def test_answer_that_is_no_number(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sbatch", Answer("welcome!\n"))
    assert "no job number in: welcome!" in submit(chain).stderr


def test_name_of_the_cluster_after_the_number(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sbatch", *(Answer(f"{number};mn5\n") for number in (7, 8, 9)))
    assert submitted(chain) == ["7", "8", "9"]


def test_command_that_hangs_is_ended(chain: Path, fake_slurm: FakeSlurm) -> None:
    script = chain / "submit.sh"
    text = script.read_text(encoding="utf-8")
    assert text.count("timeout 60 ") == text.count("squeue --") + text.count('"$@"') == 2
    script.write_text(text.replace("timeout 60", "timeout 0.5"), encoding="utf-8")
    fake_slurm.answer("sbatch", Answer(sleep=60))
    assert "is not submitted" in submit(chain).stderr


@pytest.mark.parametrize("own", [False, True])
def test_time_limit_follows_earlier_runs(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm, own: bool
) -> None:
    """Recorded runs are those of the folder itself, which are left out, or of another one."""
    what = (scenario_file(tmp_path), "--site", "generic", "--nodes", "16")
    results = ResultsFolder(folder / "results" if own else tmp_path / "earlier")
    slow = {"baseline": 2000.0, "spliter": 0.0}
    for run in full_runs(tmp_path, 16, repetitions=1):
        results.append(record_of(run, slow[run.configuration]))
    other: list[str | Path] = [] if own else ["--earlier", results.path]
    shown = slurm(*what, *other, "--output", folder)
    assert f"{4 if own else 6} runs, about" in shown
    # A warm-up, and next to nothing for the other configuration.
    least = 1.5 * (3 if own else 4) * 2000
    assert least <= seconds_of_job(folder) <= least + 300


def test_all_runs_are_recorded(tmp_path: Path, folder: Path) -> None:
    for run in full_runs(tmp_path, 16):
        ResultsFolder(folder / "results").append(record_of(run, 1.0))
    message = refused(
        *(scenario_file(tmp_path), "--site", "generic", "--nodes", "16", "--output", folder)
    )
    assert "results has all 6 runs" in message


def record_of(run: PlannedRun, seconds: float) -> Record:
    """Return the record of a run that took so long."""
    shared = {entry.name for entry in fields(Record)} & {entry.name for entry in fields(PlannedRun)}
    entries: dict[str, Any] = {
        **{name: getattr(run, name) for name in shared},
        **dict.fromkeys(("plan_digest", "host", "system", "processor", "command"), ""),
        **dict.fromkeys(("position", "host_memory", "init_seconds"), 0),
        **dict.fromkeys(("split_seconds", "rechunk_seconds", "tasks", "bytes_moved")),
        **dict.fromkeys(("seconds", "iterate_seconds"), seconds),
    }
    return Record(
        **entries,
        run_id=run.id,
        started_at="2026-01-01T00:00:00+00:00",
        host_cores=1,
        blocks_per_core=run.blocks_per_core,
        peak_memory_bytes=None,
        versions={},
    )


def test_second_submission_waits_for_the_first(
    chain: Path, tmp_path: Path, fake_slurm: FakeSlurm
) -> None:
    submitted(chain)
    before = scripts_in(chain)
    slurm(scenario_file(tmp_path), "--site", "generic", "--nodes", "2", "--output", chain)
    assert submitted(chain) == ["100", "101", "102", "103"]
    *_, dependency, script = fake_slurm.calls("sbatch")[-1]
    assert dependency == "--dependency=afterany:102"
    assert chain / script not in before


def test_folder_that_cannot_be_written(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "sweep"
    assert "cannot write" in refused(
        scenario_file(tmp_path), "--site", "generic", "--output", output
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["99", "--site", "generic"], "there is no figure '99'"),
        (["9", "--site", "nowhere"], "neither a file nor one of the profiles"),
        (["9", "--site", "marenostrum5"], "takes no job without --account and --qos"),
        (["9", "--site", "generic", "--network", "fabric"], "does not say which interface"),
        (["9", "--site", "generic", "--nodes", "3"], "is not measured on 3 nodes"),
        (["9", "--site", "generic", "--nodes", "few"], "--nodes takes whole numbers"),
        (["9", "--site", "generic", "--hours", "0.05"], "asks too much of generic: time"),
        (["9", "--site", "generic", "--earlier", "nowhere"], "there is no folder nowhere"),
        (["9", "--site", "generic", "--dry-run", "--submit"], "--dry-run writes nothing"),
        (["9", "--site", "generic", "--backend", "spark"], "'spark' is not one of 'dask'"),
    ],
)
def test_bad_input(folder: Path, fake_slurm: FakeSlurm, arguments: list[str], said: str) -> None:
    assert said in refused(*arguments, "--output", folder)
    assert not folder.exists()


def test_compss_is_handed_in_by_its_own_command(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    slurm(scenario_file(tmp_path), *("--site", "generic", "--backend", "compss"),
          *("--nodes", "1,2", "--output", folder))  # fmt: skip
    for script in (folder / "scripts").glob("*.sh"):
        script.write_text('enqueue_compss --job_dependency="$SPLITER_AFTER" app.py\n')
    fake_slurm.answer(
        "enqueue_compss",
        Answer("SC Configuration: x 3\nSubmitted batch job 55\n"),
        Answer("no queue\n", status=1),
    )
    assert submit(folder).returncode == 1
    assert numbers_in(folder) == ["55"]
    assert fake_slurm.calls("enqueue_compss") == [
        ["--job_dependency=None", "app.py"],
        ["--job_dependency=55", "app.py"],
    ]


def test_two_scenarios_share_jobs_of_a_shape(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    scenarios = [scenario_file(tmp_path), scenario_file(tmp_path, "12", KMEANS)]
    what: list[str | Path] = [*scenarios, "--site", "generic", "--nodes", "2"]
    slurm(*what, "--output", folder)
    (script,) = scripts_in(folder)
    text = script.read_text(encoding="utf-8")
    assert text.count("experiment run") == 2
    assert subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=False).returncode == 0
    slurm(*what, "--hours", hours_for_two(tmp_path / "one", *what), "--output", tmp_path / "two")
    first, second = scripts_in(tmp_path / "two")
    assert {first.stem[-2:], second.stem[-2:]} == {"-0", "-1"}
