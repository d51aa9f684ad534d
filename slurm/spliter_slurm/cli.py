"""``spliter slurm``: write and submit batch scripts for figures, and show what became of them."""

from __future__ import annotations

import math
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from spliter_experiments.evaluation.runner import request_for
from spliter_experiments.evaluation.tables import clock, total
from spliter_experiments.harness.console import errors_reported, note
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.options import parse_counts, words
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.table import Grid
from spliter_slurm.jobs import make_jobs, spilling
from spliter_slurm.render import RESULTS, Script, interface_of, render
from spliter_slurm.site import GIB, Site, load_site, site_names
from spliter_slurm.status import jobs_of, progress_of
from spliter_slurm.submission import missing_runs, submit, write_submission


class FiguresFirst(TyperGroup):
    """A group in which the command ``write`` need not be named: ``spliter slurm 9``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``write`` before arguments that begin with no command."""
        named = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in named else ["write", *args])


app = typer.Typer(
    cls=FiguresFirst,
    no_args_is_help=True,
    add_completion=False,
    help="Run the paper's experiments on a cluster with SLURM.",
)

Text = Annotated[str | None, typer.Option(help="As sbatch takes it.")]


@app.command()
def write(
    figures: Annotated[list[str], typer.Argument(help="Figures, or scenario files (.toml).")],
    output: Annotated[Path, typer.Option(help="Folder for scripts, logs and results.")],
    site: Annotated[
        str, typer.Option(help=f"Site profile: {', '.join(site_names())} or a .toml file.")
    ],
    size: Annotated[
        Literal["full", "laptop"], typer.Option(help="The paper's, or small.")
    ] = "full",
    backend: Annotated[
        Literal["dask", "dataclay", "compss", "compss+dataclay", "ray"],
        typer.Option(help="What to run on."),
    ] = "dask",
    configurations: Annotated[
        str | None, typer.Option(help="Only these, such as spliter,rechunk.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Only these numbers of nodes: 1,2,4.")] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="In place of the scenario's.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Longest time limit to ask for.")] = None,
    network: Annotated[
        str | None, typer.Option(help="fabric, ethernet, or the name of an interface.")
    ] = None,
    account: Text = None,
    qos: Text = None,
    partition: Text = None,
    venv: Annotated[str | None, typer.Option(help="Virtual environment to activate.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter.")] = None,
    storage_jar: Annotated[
        str | None, typer.Option(help="Storage interface of COMPSs over dataClay.")
    ] = None,
    earlier: Annotated[
        list[Path] | None, typer.Option(help="Results whose times are the estimates.")
    ] = None,
    submitted: Annotated[bool, typer.Option("--submit", help="Submit the jobs, too.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the jobs and their scripts; write nothing.")
    ] = False,
) -> None:
    """Write the batch scripts of one or more figures; runs that the folder records are left out.

    The word `write` may be left out: `spliter slurm 9 10`.
    """
    given = {
        "account": account,
        "qos": qos,
        "partition": partition,
        "venv": venv,
        "python": python,
        "storage_jar": storage_jar,
    }
    with errors_reported():
        if dry_run and submitted:
            raise OptionError("--dry-run writes nothing that --submit could submit; take one")
        requests = [
            request_for(
                str(Path(figure).absolute()) if figure.endswith(".toml") else figure,
                size,
                backend,
                configurations=None if configurations is None else words(configurations),
                nodes=None if nodes is None else parse_counts("--nodes", nodes),
                repetitions=repetitions,
            )
            for figure in figures
        ]
        options = {name: value for name, value in given.items() if value is not None}
        profile = load_site(site).model_copy(update=options)
        folder = output.absolute()
        jobs = make_jobs(
            missing_runs(requests, ResultsFolder(folder / RESULTS), earlier or ()),
            profile,
            seconds=_seconds(hours),
            prefix=f"spliter-{secrets.token_hex(3)}-",
        )
        interface = interface_of(profile, network)
        scripts = [render(job, profile, interface, folder) for job in jobs]
        _show_jobs(scripts, profile)
        if dry_run:
            _show_scripts(scripts)
            return
        script = write_submission(folder, requests, scripts, shlex.join(["spliter", *sys.argv[1:]]))
        if submitted:
            Console(markup=False).print(submit(script), end="", highlight=False, soft_wrap=True)
            note(f"submitted; next: spliter slurm status {shlex.quote(str(folder))}")
        else:
            note(f"written: {folder}; next: bash {shlex.quote(str(script))}")


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="Folder of `spliter slurm --output`.")],
) -> None:
    """Show the jobs of a folder, and how many of their runs are done and missing."""
    with errors_reported():
        if not (folder / RESULTS).is_dir():
            raise OptionError(
                f"{folder} has no folder {RESULTS}; give the --output of `spliter slurm`, or the "
                "folder spliter-figures of the ready-made scripts"
            )
        progress = progress_of(ResultsFolder(folder / RESULTS))
        jobs, silent = jobs_of(folder)
        rows = tuple((job.name, job.number, job.state, str(job.failed)) for job in jobs)
        table = Grid(("job", "number", "state", "failed"), rows).terminal()
        table.columns[0].no_wrap = True  # job names are copied
        counts = tuple(
            (each.plan, str(each.nodes), str(each.done), str(each.missing)) for each in progress
        )
        console = Console(markup=False)
        console.print(table)
        console.print(Grid(("plan", "nodes", "done", "missing"), counts).terminal())
        if silent:
            note(f"{silent}; the states are those that the jobs wrote")
        if any(each.missing for each in progress):
            note("for missing runs whose jobs have ended, call `spliter slurm` again")


def _seconds(hours: float | None) -> float | None:
    if hours is None:
        return None
    if not 0 < hours < math.inf:
        raise OptionError(f"--hours takes a number above 0, got {hours:g}")
    return 3600 * hours


def _show_jobs(scripts: Sequence[Script], site: Site) -> None:
    jobs = [script.job for script in scripts]
    headings = ("job", "runs", "nodes", "cores", "GiB/node", "limit")
    rows = tuple(
        (
            job.name,
            str(len(job.runs)),
            str(job.shape.nodes),
            str(job.shape.workers * job.shape.threads),
            f"{max(run.memory_bytes for run in job.runs) / GIB:.3g}",
            clock(job.seconds),
        )
        for job in jobs
    )
    sums = total([run for job in jobs for run in job.runs])
    table = Grid(headings, rows, sums).terminal(f"{len(jobs)} jobs on {site.name}")
    table.columns[0].no_wrap = True  # job names are copied
    Console(markup=False).print(table)
    for job in jobs:
        if over := spilling(job, site):
            note(f"{job.name}: up to {over:.3g} GiB on a node more than there are may be spilled")


def _show_scripts(scripts: Sequence[Script]) -> None:
    console = Console(markup=False)
    for script in scripts:
        for name, text in script.files.items():
            console.rule(name)
            console.print(text, highlight=False, soft_wrap=True)
