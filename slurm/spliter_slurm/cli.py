"""``spliter slurm``: write batch scripts for the runs of one or more figures."""

from __future__ import annotations

import math
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

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
from spliter_slurm.submission import missing_runs, write_submission

Text = Annotated[str | None, typer.Option(help="As sbatch takes it.")]


def slurm(
    figures: Annotated[list[str], typer.Argument(help="Figures, or scenario files (.toml).")],
    output: Annotated[Path, typer.Option(help="Folder for scripts, logs and results.")],
    site: Annotated[
        str, typer.Option(help=f"Site profile: {', '.join(site_names())} or a .toml file.")
    ],
    size: Annotated[
        Literal["full", "laptop"], typer.Option(help="The paper's, or small.")
    ] = "full",
    backend: Annotated[
        Literal["dask", "dataclay", "compss"], typer.Option(help="What to run on.")
    ] = "dask",
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
    venv: Annotated[str | None, typer.Option(help="Virtual environment to activate.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter.")] = None,
    earlier: Annotated[
        list[Path] | None, typer.Option(help="Results whose times are the estimates.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the jobs and their scripts; write nothing.")
    ] = False,
) -> None:
    """Write the batch scripts of one or more figures; runs that the folder records are left out."""
    given = {
        "account": account,
        "qos": qos,
        "partition": partition,
        "venv": venv,
        "python": python,
    }
    with errors_reported():
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
        submit = write_submission(folder, requests, scripts, shlex.join(["spliter", *sys.argv[1:]]))
        note(f"written: {folder}; next: bash {shlex.quote(str(submit))}")


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
