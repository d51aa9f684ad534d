"""``spliter slurm status``: jobs that wait, run, ended, and were never submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from spliter_experiments.harness.records import ResultsFolder
from tests.slurm.commands import refused, scripts_in, slurm
from tests.slurm.fake import Answer, FakeSlurm
from tests.slurm.scenarios import full_runs, scenario_file
from tests.slurm.test_commands import record_of


@pytest.fixture
def folder(tmp_path: Path, fake_slurm: FakeSlurm) -> Path:
    """Three submitted jobs, with the numbers 100 to 102."""
    made = tmp_path / "a sweep"
    what = (scenario_file(tmp_path), "--site", "generic", "--output", made, "--hours", "2")
    slurm(*what, "--submit")
    return made


def rows(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines()]


def names(folder: Path) -> list[str]:
    return [script.stem for script in scripts_in(folder)]


def write_states(folder: Path, name: str, number: int, *states: str) -> None:
    (folder / "jobs" / name).mkdir(parents=True, exist_ok=True)
    lines = [f"{number}\t{state}\t2026-01-01T00:00:00+0000\n" for state in states]
    (folder / "jobs" / name / "state.tsv").write_text("".join(lines))


def test_states_of_jobs_are_those_of_the_queue_or_their_own(
    folder: Path, fake_slurm: FakeSlurm
) -> None:
    first, second, third = names(folder)
    write_states(folder, first, 100, "started", "ended 1")
    (folder / "jobs" / first / "ends.tsv").write_text("a\t1\t9\t100\nb\t0\t9\t100\nc\t1\t9\t7\n")
    fake_slurm.answer(
        "squeue", Answer("101|RUNNING|None\n102|PENDING|Dependency\n55|RUNNING|None\n")
    )
    shown = slurm("status", folder)
    assert [first, "100", "ended", "1", "1"] in rows(shown)
    assert [second, "101", "running", "0"] in rows(shown)
    assert [third, "102", "pending", "(Dependency)", "0"] in rows(shown)
    assert "55" not in shown


def test_job_that_is_neither_queued_nor_ended_was_killed(
    folder: Path, fake_slurm: FakeSlurm
) -> None:
    first, second, _ = names(folder)
    write_states(folder, first, 100, "started")
    shown = slurm("status", folder)
    assert [first, "100", "killed", "0"] in rows(shown)
    assert [second, "101", "unknown", "0"] in rows(shown)


def test_done_and_missing_runs_are_counted_for_all_requests(
    folder: Path, tmp_path: Path, fake_slurm: FakeSlurm
) -> None:
    for run in full_runs(tmp_path, 2)[:4]:
        ResultsFolder(folder / "results").append(record_of(run, 1.0))
    # A later request for a part must not hide the others.
    slurm(scenario_file(tmp_path), "--site", "generic", "--nodes", "16", "--output", folder)
    shown = slurm("status", folder)
    assert [row[-3:] for row in rows(shown)[-4:-1]] == [
        ["1", "0", "6"], ["2", "4", "2"], ["16", "0", "6"],
    ]  # fmt: skip
    assert "for missing runs whose jobs have ended" in shown
    assert ["-", "not", "submitted", "0"] in [row[1:] for row in rows(shown)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(err="slurm: no controller\n", status=1), "squeue failed: slurm: no controller"),
        (None, "squeue cannot be run"),
    ],
)
def test_without_an_answer_of_slurm(
    folder: Path,
    fake_slurm: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer | None,
    said: str,
) -> None:
    first, *_ = names(folder)
    write_states(folder, first, 100, "started", "ended 0")
    if answer is None:
        monkeypatch.setenv("PATH", str(folder))
    else:
        fake_slurm.answer("squeue", answer)
    shown = slurm("status", folder)
    assert said in shown
    assert "the states are those that the jobs wrote" in shown
    assert [first, "100", "ended", "0", "0"] in rows(shown)


def test_half_written_files_are_read(folder: Path, fake_slurm: FakeSlurm) -> None:
    first, *_ = names(folder)
    write_states(folder, first, 100)
    (folder / "jobs" / first / "state.tsv").write_text("100\tstarted\t2026\n100")
    with (folder / "jobs.tsv").open("a") as stream:
        stream.write("spliter-")
    assert [first, "100", "killed", "0"] in rows(slurm("status", folder))


def test_folder_that_is_none_of_a_submission(tmp_path: Path) -> None:
    assert "has no folder results" in refused("status", tmp_path)
