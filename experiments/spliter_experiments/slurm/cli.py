"""Commands of ``spliter slurm``: render, submit, status, collect."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from spliter_experiments.evaluation.tables import total
from spliter_experiments.harness.console import errors_reported, note
from spliter_experiments.harness.errors import OptionError, SubmissionError
from spliter_experiments.harness.options import parse_counts, words
from spliter_experiments.harness.table import Grid
from spliter_experiments.slurm import control
from spliter_experiments.slurm.folder import Folder, Submission
from spliter_experiments.slurm.jobs import spilling
from spliter_experiments.slurm.render import clock
from spliter_experiments.slurm.request import Request
from spliter_experiments.slurm.scheduler import Slurm, submit_command
from spliter_experiments.slurm.site import GIB, Site, site_names

slurm = typer.Typer(
    no_args_is_help=True, help="The paper's experiments on a cluster with SLURM, as jobs."
)

FolderArgument = Annotated[Path, typer.Argument(help="Folder of the submission.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show everything; write and start nothing.")
]
Text = Annotated[str | None, typer.Option(help="As sbatch takes it.")]


@slurm.command()
def render(
    figures: Annotated[list[str], typer.Argument(help="Figures, or scenario files (.toml).")],
    output: Annotated[Path, typer.Option(help="New folder for scripts, logs and results.")],
    site: Annotated[
        str, typer.Option(help=f"Site profile: {', '.join(site_names())} or a .toml file.")
    ],
    size: Annotated[
        Literal["full", "laptop"], typer.Option(help="The paper's, or small.")
    ] = "full",
    backend: Annotated[str, typer.Option(help="What to run on: dask, dataclay, compss.")] = "dask",
    configurations: Annotated[
        str | None, typer.Option(help="Only these, such as spliter,rechunk.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Only these numbers of nodes: 1,2,4.")] = None,
    repetitions: Annotated[int | None, typer.Option(help="In place of the scenario's.")] = None,
    hours: Annotated[float | None, typer.Option(help="Longest time limit to ask for.")] = None,
    network: Annotated[
        str | None, typer.Option(help="fabric, ethernet, or the name of an interface.")
    ] = None,
    account: Text = None,
    qos: Text = None,
    partition: Text = None,
    constraint: Text = None,
    nodelist: Annotated[str, typer.Option(help="Nodes to use, such as node[1-4].")] = "",
    exclude: Annotated[str, typer.Option(help="Nodes to leave.")] = "",
    venv: Annotated[str | None, typer.Option(help="Virtual environment to activate.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter.")] = None,
    module: Annotated[list[str] | None, typer.Option(help="Load it too; may be repeated.")] = None,
    prolog: Annotated[
        list[str] | None, typer.Option(help="Line of shell before all; may be repeated.")
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(help="Results or a submission whose times are the estimates."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Write the batch scripts of one or more figures into a new folder."""
    given = {
        "account": account,
        "qos": qos,
        "partition": partition,
        "constraint": constraint,
        "venv": venv,
        "python": python,
    }
    with errors_reported():
        request = Request(
            figures=tuple(map(_absolute, figures)),
            size=size,
            backend=backend,
            configurations=None if configurations is None else words(configurations),
            nodes=None if nodes is None else parse_counts("--nodes", nodes),
            repetitions=repetitions,
            site=_absolute(site),
            overrides={name: value for name, value in given.items() if value is not None},
            modules=tuple(module or ()),
            prolog=tuple(prolog or ()),
            network=network,
            nodelist=nodelist,
            exclude=exclude,
            hours=_hours(hours),
        )
        draft = control.draft(request, output, earlier or ())
        _show_draft(draft, request.load_site(), dry_run)
        if not dry_run:
            draft.write()
            note(f"written: {draft.folder.path}; next: spliter slurm submit {output}")


@slurm.command()
def submit(
    folder: FolderArgument,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do again what is missing and no job will do any more.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Hand in the jobs of a folder; those that were handed in before are let be."""
    with errors_reported():
        where, cluster = Folder(folder), Slurm()
        if resume:
            again = control.resume(where, cluster)
            _show_draft(again, again.submission.request.load_site(), dry_run)
            if not dry_run:
                again.write()
        submission = where.read()
        waiting = [job for job in submission.jobs if job.job_id is None]
        if dry_run:
            _show_commands(where, submission)
            return
        if not waiting:
            raise SubmissionError(
                "all jobs have been handed in. `spliter slurm status` tells how far they are; "
                "--resume does again what is missing"
            )
        for job in control.submit(where, cluster):
            _print(f"{job.job_id}  {job.name}")


@slurm.command()
def status(folder: FolderArgument) -> None:
    """Tell how far each job is, and how many of its runs are recorded."""
    with errors_reported():
        entries = control.status(Folder(folder), Slurm())
        headings = ("job", "number", "state", "elapsed", "recorded", "remark")
        rows = tuple(
            (
                entry.job.name,
                entry.job.number_of(entry.number) or "-",
                entry.state,
                entry.elapsed,
                f"{entry.done} of {len(entry.runs)}",
                entry.detail if entry.detail != "None" else "",
            )
            for entry in entries
        )
        _print_table(f"Jobs of {folder}", Grid(headings, rows))


@slurm.command()
def collect(folder: FolderArgument, dry_run: DryRun = False) -> None:
    """Put the records of all jobs into one table, also those of jobs that died."""
    with errors_reported():
        where = Folder(folder)
        found = control.collect(where, write=not dry_run)
        _print(f"{len(found.done)} of {len(found.done) + len(found.missing)} runs are recorded")
        if found.table is not None:
            _print(f"table: {found.table}")
            note(f"next: spliter experiment report {where.results}")
        for name, text in found.logs.items():
            Console(markup=False).print(f"\nruns are missing; the end of {name}:", style="yellow")
            _print(text)
        if found.missing:
            missing = ", ".join(found.missing[:3]) + (", ..." if len(found.missing) > 3 else "")
            note(f"missing: {missing}; next: spliter slurm submit --resume {folder}")
            raise typer.Exit(1)


def _show_draft(draft: control.Draft, site: Site, with_scripts: bool) -> None:
    jobs = [script.job for script in draft.scripts]
    runs = [run for job in jobs for run in job.runs]
    headings = ("job", "tasks", "runs", "nodes", "cores", "GiB/node", "limit")
    rows = tuple(
        (
            job.name,
            str(len(job.pieces)),
            str(len(job.runs)),
            str(job.shape.nodes),
            str(job.shape.workers * job.shape.threads),
            f"{max(run.memory_bytes for run in job.runs) / GIB:.3g}",
            clock(job.seconds),
        )
        for job in jobs
    )
    _print_table(f"{len(jobs)} jobs on {site.name}", Grid(headings, rows, total(runs)))
    for job in jobs:
        if over := spilling(job, site):
            note(f"{job.name}: up to {over:.3g} GiB on a node more than there are may be spilled")
    if with_scripts:
        for script in draft.scripts:
            for name, text in script.files.items():
                Console(markup=False).rule(name)
                _print(text)


def _show_commands(folder: Folder, submission: Submission) -> None:
    for job in submission.jobs:
        if job.job_id is not None:
            continue
        numbers = {
            other.name: other.job_id or f"NUMBER_OF_{other.name}" for other in submission.jobs
        }
        after = None if job.after is None else numbers[job.after]
        script = str(folder.script(job))
        if job.engine == "compss":
            _print(f"SPLITER_AFTER={after} bash {shlex.quote(script)}")
        else:
            _print(shlex.join(submit_command(script, after)))


def _print_table(title: str, grid: Grid) -> None:
    """Print a table; job names are never cut, so that they can be copied."""
    table = grid.terminal(title)
    table.columns[0].no_wrap = True
    Console(markup=False).print(table)


def _absolute(text: str) -> str:
    """Return a file's absolute path; return a name unchanged."""
    return str(Path(text).absolute()) if text.endswith(".toml") else text


def _hours(hours: float | None) -> float | None:
    if hours is not None and not 0 < hours < math.inf:
        raise OptionError(f"--hours takes a number above 0, got {hours:g}")
    return hours


def _print(text: str) -> None:
    Console(markup=False).print(text, highlight=False, soft_wrap=True)
