"""The commands against clusters that refuse, hang, forget and are not there."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.harness.errors import SlurmError, SubmissionError
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.slurm import control
from spliter_experiments.slurm.folder import Folder
from spliter_experiments.slurm.request import Request
from spliter_experiments.slurm.scheduler import Slurm
from tests.slurm.commands import hours_for_two, ran, refused, slurm, submission
from tests.slurm.fake import Answer, FakeSlurm
from tests.slurm.scenarios import KMEANS, full_runs, scenario_file

UNREACHABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a sweep"


@pytest.fixture
def chain(tmp_path: Path, folder: Path, fake_slurm: FakeSlurm) -> Path:
    """Three jobs, each after the one before."""
    ran("render", scenario_file(tmp_path), *("--site", "generic"),
        *("--output", folder, "--hours", "2"))  # fmt: skip
    assert len(submission(folder).jobs) == 3
    return folder


def test_dry_run_shows_everything_and_writes_nothing(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    shown = ran("render", scenario_file(tmp_path), "--site", "marenostrum4", "--output", folder,
                "--dry-run", "--nodes", "16")  # fmt: skip
    assert not folder.exists()
    assert "1 jobs on marenostrum4" in shown
    assert "6 runs, about" in shown
    assert "6 runs on dask; 16 nodes, workers on each: 2, threads of each: 24" in shown
    assert "#SBATCH --nodes=16" in shown
    assert "--only fig09-full-dask-spliter-n16-b2304-r3" in shown
    assert fake_slurm.calls("sbatch") == []


def test_dry_run_of_submit_shows_the_commands(chain: Path, fake_slurm: FakeSlurm) -> None:
    shown = ran("submit", chain, "--dry-run")
    first, second, _ = (job.name for job in submission(chain).jobs)
    assert f"--dependency=afterany:NUMBER_OF_{first}" in shown
    assert f"{second}.sbatch'" in shown
    assert fake_slurm.calls("sbatch") == []


def test_chain_is_handed_in_in_order(chain: Path, fake_slurm: FakeSlurm) -> None:
    ran("submit", chain)
    after = [call[1:-1] for call in fake_slurm.calls("sbatch")]
    assert after == [[], ["--dependency=afterany:100"], ["--dependency=afterany:101"]]
    assert [job.job_id for job in submission(chain).jobs] == ["100", "101", "102"]
    assert "all jobs have been handed in" in refused("submit", chain)
    assert len(fake_slurm.calls("sbatch")) == 3


def test_refused_job_keeps_those_before_it(chain: Path, fake_slurm: FakeSlurm) -> None:
    said = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    fake_slurm.answer("sbatch", Answer("100\n"), Answer(err=said, status=1))
    message = refused("submit", chain)
    assert "1 of 3 jobs were handed in" in message
    assert "Invalid qos specification" in message
    assert "give --account and --qos" in message
    assert [job.job_id for job in submission(chain).jobs] == ["100", None, None]
    fake_slurm.answer("sbatch", Answer("101\n"), Answer("102\n"))
    ran("submit", chain)
    assert [job.job_id for job in submission(chain).jobs] == ["100", "101", "102"]


def test_job_of_an_interrupted_submit_is_found_by_its_name(
    chain: Path, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.answer("squeue", Answer("77\n"), Answer())
    ran("submit", chain)
    assert [job.job_id for job in submission(chain).jobs] == ["77", "100", "101"]


def test_answer_that_is_no_number(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sbatch", Answer("welcome!\n"))
    assert "'welcome!', which is no job number" in refused("submit", chain)


def test_name_of_the_cluster_after_the_number(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sbatch", *(Answer(f"{number};mn5\n") for number in (7, 8, 9)))
    ran("submit", chain)
    assert [job.job_id for job in submission(chain).jobs] == ["7", "8", "9"]


def test_more_nodes_than_the_partition_has(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sinfo", Answer("debug|0/64/0/64|1:00\nmain*|0/8/0/8|1-00:00:00\n"))
    message = refused("submit", chain)
    assert "asks too much: 16 nodes, and the partition main has 8" in message
    assert fake_slurm.calls("sbatch") == []


def test_more_time_than_the_partition_allows(chain: Path, fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sinfo", Answer("main*|0/16/0/16|20:00\n"))
    message = refused("submit", chain)
    assert "and the partition main allows 0:20:00. Render with --hours" in message
    assert fake_slurm.calls("sbatch") == []


def test_more_than_the_profile_has(tmp_path: Path, folder: Path, fake_slurm: FakeSlurm) -> None:
    message = refused("render", scenario_file(tmp_path), "--site", "local", "--output", folder)
    assert "asks too much of local: cores on a node 48, and it has 2" in message
    assert not folder.exists()


@pytest.mark.parametrize("as_submission", [False, True])
def test_time_limit_follows_earlier_runs(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm, as_submission: bool
) -> None:
    scenario = scenario_file(tmp_path)
    options = ("--site", "generic", "--nodes", "16")
    before = control.draft(request_of(scenario), folder).submission.jobs[0].seconds
    earlier = tmp_path / "earlier"
    if as_submission:
        ran("render", scenario, *options, "--output", earlier)
    results = ResultsFolder(earlier / "results" if as_submission else earlier)
    slow = dict.fromkeys(("baseline", "spliter"), 0.0) | {"baseline": 2000.0}
    for run in full_runs(tmp_path, 16, repetitions=1):
        results.append(record_of(run, slow[run.configuration]))
    ran("render", scenario, *options, "--earlier", earlier, "--output", folder)
    after = submission(folder).jobs[0].seconds
    # Three repetitions and a warm-up of each, and next to nothing for the other configuration.
    assert 1.5 * 4 * 2000 <= after <= 1.5 * 4 * 2000 + 300
    assert after != before


def request_of(scenario: Path) -> Request:
    return Request(figures=(str(scenario),), site="generic", nodes=(16,))


def record_of(run: PlannedRun, seconds: float) -> Record:
    """Return the record of a run that took so long."""
    shared = {entry.name for entry in fields(Record)} & {entry.name for entry in fields(PlannedRun)}
    entries: dict[str, Any] = {
        **{name: getattr(run, name) for name in shared},
        **dict.fromkeys(
            ("plan_digest", "started_at", "host", "system", "processor", "command"), ""
        ),
        **dict.fromkeys(("position", "host_cores", "host_memory", "init_seconds"), 0),
        **dict.fromkeys(("split_seconds", "rechunk_seconds", "tasks", "bytes_moved")),
        **dict.fromkeys(("seconds", "iterate_seconds"), seconds),
    }
    return Record(
        **entries,
        run_id=run.id,
        blocks_per_core=run.blocks_per_core,
        peak_memory_bytes=None,
        versions={},
    )


@pytest.mark.parametrize("command", ["submit", "status"])
def test_no_slurm_on_the_path(
    chain: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if command != "submit":
        entry = submission(chain)
        Folder(chain).write(entry.with_number(entry.jobs[0].name, "100"))
    message = refused(command, chain)
    assert "is not on the PATH: run this on a login node" in message


@pytest.mark.parametrize("command", ["submit", "status"])
def test_controller_that_does_not_answer(chain: Path, fake_slurm: FakeSlurm, command: str) -> None:
    for name in ("sinfo", "squeue", "sbatch"):
        fake_slurm.answer(name, Answer(err=UNREACHABLE, status=1))
    if command != "submit":
        entry = submission(chain)
        Folder(chain).write(entry.with_number(entry.jobs[0].name, "100"))
    message = refused(command, chain)
    assert "the controller of SLURM does not answer; `scontrol ping`" in message


def test_command_that_hangs_is_ended(fake_slurm: FakeSlurm) -> None:
    fake_slurm.answer("sinfo", Answer(sleep=60))
    with pytest.raises(SlurmError, match=r"no answer in 0\.5 s"):
        Slurm(fake_slurm.environment, seconds=0.5).partitions()


def test_command_that_cannot_be_run(fake_slurm: FakeSlurm) -> None:
    program = fake_slurm.folder / "sinfo"
    program.write_text("#!/no/such/interpreter\n")
    with pytest.raises(SlurmError, match="cannot be run"):
        Slurm(fake_slurm.environment).partitions()


def test_status_takes_what_is_known_from_wherever(chain: Path, fake_slurm: FakeSlurm) -> None:
    ran("submit", chain)
    piece = chain / "jobs" / submission(chain).jobs[2].name / "0"
    piece.mkdir(parents=True)
    (piece / "state.tsv").write_text("102\tstarted\tx\n102\tended 143\tx\n")
    fake_slurm.answer("squeue", Answer("101|RUNNING|1:02|None\n"))
    fake_slurm.answer("sacct", Answer("100|CANCELLED by 1000|0:10|0:15\n101|PENDING|0:00|0:0\n"))
    states = [(entry.state, entry.detail) for entry in control.status(Folder(chain), Slurm())]
    assert states == [("CANCELLED", "0:15"), ("RUNNING", "None"), ("FAILED", "ended 143")]
    assert "0 of 6" in ran("status", chain)


def test_jobs_that_slurm_has_forgotten(chain: Path, fake_slurm: FakeSlurm) -> None:
    ran("submit", chain)
    fake_slurm.answer(
        "squeue", Answer(err="slurm_load_jobs error: Invalid job id specified\n", status=1)
    )
    assert {entry.state for entry in control.status(Folder(chain), Slurm())} == {"GONE"}


def test_tasks_of_an_array_are_told_apart(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    what = (scenario_file(tmp_path), "--site", "generic", "--nodes", "16")
    ran("render", *what, "--hours", hours_for_two(tmp_path / "one", *what), "--output", folder)
    ran("submit", folder)
    fake_slurm.answer("squeue", Answer("100_1|PENDING|0:00|JobArrayTaskLimit\n100_0|RUNNING|1:0|x"))
    entries = control.status(Folder(folder), Slurm())
    assert [entry.state for entry in entries] == ["RUNNING", "PENDING"]


def test_resume_waits_for_jobs_that_go_on(chain: Path, fake_slurm: FakeSlurm) -> None:
    ran("submit", chain)
    fake_slurm.answer(
        "squeue", Answer("100|RUNNING|1:0|None\n101|PENDING|0:0|x\n102|TIMEOUT|60:0|TimeLimit\n")
    )
    ran("submit", chain, "--resume")
    entry = submission(chain)
    assert len(entry.jobs) == 4
    assert sorted(entry.jobs[3].runs) == sorted(entry.jobs[2].runs)
    assert entry.jobs[3].attempt == 1
    fake_slurm.answer(
        "squeue", Answer("".join(f"{job.job_id}|RUNNING|0:0|None\n" for job in entry.jobs))
    )
    assert "no run of" in refused("submit", chain, "--resume")


def test_one_command_at_a_time(chain: Path, fake_slurm: FakeSlurm) -> None:
    with Folder(chain).locked():
        assert "another command is changing" in refused("submit", chain)


def test_folder_that_is_none(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    for command in ("submit", "status", "collect"):
        assert "is not a submission" in refused(command, tmp_path / "nothing")


def test_folder_that_is_taken(tmp_path: Path, chain: Path) -> None:
    message = refused("render", scenario_file(tmp_path), "--site", "generic", "--output", chain)
    assert "holds a submission already" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "Invalid JSON"), ("{}", "tag: Field required"), ('{"schema_version": 9}', "Input")],
)
def test_damaged_submission(chain: Path, text: str, said: str) -> None:
    (chain / "submission.json").write_text(text)
    with pytest.raises(SubmissionError, match=said):
        Folder(chain).read()


def test_folder_that_cannot_be_written(tmp_path: Path, fake_slurm: FakeSlurm) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "sweep"
    message = refused("render", scenario_file(tmp_path), "--site", "generic", "--output", output)
    assert "cannot write" in message


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
    ],
)
def test_bad_input(folder: Path, fake_slurm: FakeSlurm, arguments: list[str], said: str) -> None:
    assert said in refused("render", *arguments, "--output", folder)
    assert not folder.exists()


def test_collect_needs_no_slurm_and_tells_what_died(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran("submit", chain)
    first, *_ = submission(chain).jobs
    log = chain / "logs" / f"{first.name}-{first.job_id}.out"
    log.write_text("slurmstepd: error: *** JOB 100 CANCELLED DUE TO NODE FAILURE ***\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = slurm("collect", chain)
    assert result.exit_code == 1
    assert "0 of 18 runs are recorded" in result.output
    assert "DUE TO NODE FAILURE" in result.output


def test_compss_is_handed_in_by_its_own_command(
    chain: Path, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    fake_slurm.answer("enqueue_compss", Answer("SC Configuration: x\nSubmitted batch job 55\n"))
    for name in ("bash", "env"):
        real = shutil.which(name, path="/bin:/usr/bin")
        assert real is not None
        (fake_slurm.folder / name).symlink_to(real)
    script = tmp_path / "compss.sh"
    script.write_text('enqueue_compss --job_dependency="$SPLITER_AFTER" app.py\n')
    assert Slurm().enqueue_compss(str(script), "54") == "55"
    assert fake_slurm.calls("enqueue_compss") == [["--job_dependency=54", "app.py"]]
    fake_slurm.answer("enqueue_compss", Answer("no queue\n", status=1))
    with pytest.raises(SlurmError, match="no queue"):
        Slurm().enqueue_compss(str(script), None)


def test_two_scenarios_share_jobs_of_a_shape(
    tmp_path: Path, folder: Path, fake_slurm: FakeSlurm
) -> None:
    scenarios = [scenario_file(tmp_path), scenario_file(tmp_path, "12", KMEANS)]
    ran("render", *scenarios, *("--site", "generic", "--nodes", "2", "--output", folder))
    (job,) = submission(folder).jobs
    assert {run.partition("-")[0] for run in job.runs} == {"fig09", "fig12"}
    text = (folder / "scripts" / job.script).read_text()
    assert text.count("experiment run") == 2
    assert subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert json.loads((folder / "submission.json").read_text())["schema_version"] == 1
