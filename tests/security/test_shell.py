"""Batch scripts made of hostile words: run by a real shell, they do what they were made for."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from spliter_experiments.harness.errors import ProfileError
from spliter_slurm import site
from spliter_slurm.jobs import Job, make_jobs
from spliter_slurm.render import Script, render
from spliter_slurm.site import Site, load_site, parse_site
from tests.running import run_command
from tests.slurm.scenarios import full_runs
from tests.slurm.test_render import shellcheck

WORDS = {
    "spaces": "two  words",
    "command": "$(touch PWNED)",
    "backticks": "`touch PWNED`",
    "single quote": "it's; touch PWNED; '",
    "double quote": '"; touch PWNED; "',
    "line break": "a\ntouch PWNED\nb",
    "variable": "${HOME}~$PATH",
    "glob": "[a-z]*?{a,b}",
    "operators": "a & touch PWNED | b > c",
    "backslash": "a\\b\\",
    "comment": "a #b",
    "option": "-rf --no-preserve-root",
    "history": "!!$!",
}

COMMANDS = {
    "scontrol": "echo n1",
    "module": 'printf "%s\\0" "$@" >> "$RECORDS/module"',
    "srun": """printf '%s\\0' "$@" >> "$RECORDS/srun"
while [ $# -gt 0 ]; do
    if [ "$1" = --scheduler-file ]; then echo here > "$2"; fi
    if [ "$1" = rm ]; then exit 0; fi
    shift
done
exec sleep 60""",
    "activate": 'printf "%s\\0" yes >> "$RECORDS/activate"',
    "python": """printf '%s\\0' "$NOTE" >> "$RECORDS/note"
printf '%s\\0' "$@" >> "$RECORDS/python\"""",
}
"""What stands in for programs: each writes down the words that it was given."""


def write_program(file: Path, name: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{COMMANDS[name]}\n", encoding="utf-8")
    file.chmod(0o755)


def a_job(folder: Path, engine: str, site: Site, called: str) -> Job:
    runs = [replace(run, engine=engine, scenario=called) for run in full_runs(folder, 2)]
    return make_jobs(runs, site, seconds=3600)[0]


def recorded(records: Path, name: str) -> list[str]:
    """Return the words that stand-ins have written down."""
    return (records / name).read_text(encoding="utf-8").split("\0")[:-1]


def run_in_bash(script: Script, folder: Path) -> Path:
    """Run a script with stand-ins for SLURM; return the folder of what these were given."""
    records, programs = folder / "records", folder / "programs"
    records.mkdir()
    for name in ("scontrol", "module", "srun"):
        write_program(programs / name, name)
    file = folder / script.name
    file.write_text(script.text, encoding="utf-8")
    done = run_command(
        ["bash", str(file)],
        cwd=folder,
        env={
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "RECORDS": str(records),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return records


def check_text(script: Script, folder: Path) -> None:
    file = folder / "checked.sh"
    file.write_text(script.text, encoding="utf-8")
    for command in (["bash", "-n"], [shellcheck(), "--severity=warning"]):
        done = run_command([*command, str(file)])
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("engine", ["process", "dask"])
@pytest.mark.parametrize("kind", WORDS)
def test_every_word_arrives_as_it_was_written(kind: str, engine: str, tmp_path: Path) -> None:
    word = WORDS[kind]
    here = tmp_path / f"for {word}"
    write_program(here / "bin" / "activate", "activate")
    write_program(here / "bin" / "python", "python")
    site = load_site("generic").model_copy(
        update={
            "name": word,
            "description": word,
            "venv": str(here),
            "python": str(here / "bin" / "python"),
            "modules": (word,),
            "environment": {"NOTE": word},
            "step_options": (f"--comment={word}",),
            "scratch": str(tmp_path),
        }
    )
    job = a_job(tmp_path, engine, site, str(here / "own.toml"))
    folder = tmp_path / "submission"
    script = render(job, site, word, folder)
    if engine == "dask":  # which has all that the other has
        check_text(script, tmp_path)
    records = run_in_bash(script, tmp_path)
    assert recorded(records, "module") == ["purge", "load", word]
    assert recorded(records, "activate")
    assert set(recorded(records, "note")) == {word}
    words = recorded(records, "python")
    assert str(here / "own.toml") in words
    assert str(folder / "results") in words
    if engine == "dask":
        assert {f"--comment={word}", word} <= set(recorded(records, "srun"))
    assert list(tmp_path.rglob("PWNED")) == []


@pytest.mark.parametrize("kind", WORDS)
def test_folder_of_the_submission(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / f"for {WORDS[kind]}"
    write_program(tmp_path / "python", "python")
    site = load_site("generic").model_copy(update={"python": str(tmp_path / "python")})
    job = a_job(tmp_path, "process", site, "9")
    if set(WORDS[kind]) & set("\"'\\\n"):
        with pytest.raises(ProfileError):
            render(job, site, "", folder)
        return
    records = run_in_bash(render(job, site, "", folder), tmp_path)
    assert str(folder / "results") in recorded(records, "python")
    assert (folder / "jobs" / job.name / "ends.tsv").exists()
    assert list(tmp_path.rglob("PWNED")) == []


@pytest.mark.parametrize("entry", ["partition", "account", "qos", "constraint"])
def test_options_of_sbatch_stay_options(entry: str, tmp_path: Path) -> None:
    """A word is refused, or stands in one directive and nowhere else."""
    for word in WORDS.values():
        site = load_site("generic").model_copy(update={entry: word})
        job = a_job(tmp_path, "process", site, "9")
        if set(word) & set("\"'\\\n"):
            with pytest.raises(ProfileError):
                render(job, site, "", tmp_path)
            continue
        lines = render(job, site, "", tmp_path).text.splitlines()
        (line,) = [line for line in lines if word in line]
        prefix, _, value = line.partition("=")
        assert prefix == f"#SBATCH --{entry}"
        assert shlex.split(value, comments=False) == [word]


def test_further_options_of_sbatch_are_one_line(tmp_path: Path) -> None:
    site = load_site("generic").model_copy(update={"batch_options": ("--mem=0\ntouch PWNED",)})
    with pytest.raises(ProfileError, match="one line"):
        render(a_job(tmp_path, "process", site, "9"), site, "", tmp_path)


@pytest.mark.parametrize(
    ("scratch", "good"),
    [
        ("${TMPDIR:-/tmp}", True),
        ("/scratch/$USER/a b", True),
        ("/tmp/$(touch PWNED)", False),
        ("/tmp/`touch PWNED`", False),
        ('/tmp"; touch PWNED; "', False),
        ("/tmp\ntouch PWNED", False),
        ("${x:-$(touch PWNED)}", False),
        ("${TMPDIR-$HOME/tmp}/@a!", True),
        ("${X@P}", False),
        ("${!X}", False),
        ("${X[$(touch PWNED)]}", False),
        ("${X[Y]}", False),
        ("${X:Y}", False),
        ("${X:-${Y@P}}", False),
        ("${X/a/$Y}", False),
        ("$", False),
        ("${X", False),
        ("/tmp\\", False),
    ],
)
def test_scratch_folders_have_variables_and_nothing_that_runs(scratch: str, good: bool) -> None:
    text = (Path(site.__file__).with_name("sites") / "generic.toml").read_text(encoding="utf-8")
    quoted = scratch.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    text = text.replace('scratch = "${TMPDIR:-/tmp}"', f'scratch = "{quoted}"')
    if good:
        assert parse_site(text, "own", "own.toml").scratch == scratch
    else:
        with pytest.raises(ProfileError, match="scratch"):
            parse_site(text, "own", "own.toml")


def test_compss_is_given_words_as_they_were_written(tmp_path: Path) -> None:
    word = WORDS["command"] + WORDS["single quote"]
    write_program(tmp_path / "python", "python")
    program = tmp_path / "programs" / "enqueue_compss"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" >> "$RECORDS/enqueue"\n', "utf-8")
    program.chmod(0o755)
    site = load_site("generic").model_copy(
        update={
            "description": WORDS["line break"],
            "python": str(tmp_path / "python"),
            "account": word,
            "compss_options": (f"--flag={word}",),
        }
    )
    job = a_job(tmp_path, "compss", site, "9")
    folder = tmp_path / word
    script = render(job, site, "", folder)
    (folder / "jobs" / job.name).mkdir(parents=True)
    records = run_in_bash(script, tmp_path)
    given = recorded(records, "enqueue")
    assert {f"--project_name={word}", f"--flag={word}"} <= set(given)
    assert str(folder / "scripts" / f"{job.name}.json") in given
    assert list(tmp_path.rglob("PWNED")) == []
