"""Commands of ``spliter experiment``: run and report the paper's figures."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spliter_experiments.compare.registry import MODULES
from spliter_experiments.evaluation.catalog import FIGURES, load_scenario
from spliter_experiments.evaluation.report import write_report
from spliter_experiments.evaluation.runner import (
    Request,
    pending,
    request_for,
    requests_in,
    run_launched,
    run_request,
)
from spliter_experiments.evaluation.tables import plan_table, runs_table, total
from spliter_experiments.harness.console import errors_reported, note, progress
from spliter_experiments.harness.options import parse_counts, words
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.table import Grid

app = typer.Typer(
    no_args_is_help=True, help="Reproduce the paper's evaluation, one figure per command."
)


class SizeChoice(StrEnum):
    """Sizes of a scenario."""

    FULL = "full"
    LAPTOP = "laptop"


FigureArgument = Annotated[
    str, typer.Argument(help=f"Figure ({', '.join(FIGURES)}), or a scenario file (.toml).")
]
FolderArgument = Annotated[Path, typer.Argument(help="Folder with results.")]
SizeOption = Annotated[SizeChoice, typer.Option(help="laptop: minutes; full: the paper's.")]
BackendOption = Annotated[str, typer.Option(help=f"What to run on: {' or '.join(MODULES)}.")]
OnlyConfigurations = Annotated[
    str | None, typer.Option("--configurations", help="Only these, between commas.")
]
OnlyNodes = Annotated[str | None, typer.Option("--nodes", help="Only these numbers of nodes.")]
Repetitions = Annotated[int | None, typer.Option(min=1, help="Runs of each configuration.")]
Address = Annotated[
    str | None, typer.Option(help="Of your cluster, as `spliter compare` takes it.")
]


@app.command(name="list")
def list_scenarios() -> None:
    """List the experiments of the paper."""
    rows = []
    for figure in FIGURES:
        scenario = load_scenario(figure)
        rows.append((figure, scenario.title, scenario.kind, ", ".join(scenario.configurations)))
    grid = Grid(("figure", "experiment", "kind", "configurations"), tuple(rows))
    Console(markup=False).print(grid.terminal())


@app.command()
def show(
    figure: FigureArgument,
    size: SizeOption = SizeChoice.LAPTOP,
    backend: BackendOption = "dask",
    configurations: OnlyConfigurations = None,
    nodes: OnlyNodes = None,
    repetitions: Repetitions = None,
    runs: Annotated[bool, typer.Option("--runs", help="List every run.")] = False,
) -> None:
    """Show what an experiment is, and the plan of its runs, without running anything."""
    with errors_reported():
        request = _request(figure, size, backend, configurations, nodes, repetitions)
        scenario, planned = request.parsed, request.runs()
        console = Console(markup=False)
        console.print(scenario.title, style="bold", highlight=False)
        console.print(scenario.paper.reading.strip(), highlight=False, markup=False)
        if chosen := scenario.sizes[request.size].chosen:
            console.print(f"Chosen in this size: {chosen}.", highlight=False, markup=False)
        console.print(plan_table(planned, f"\n{request.name}"))
        if runs:
            console.print(runs_table(planned))


@app.command()
def run(
    figure: FigureArgument,
    results: Annotated[Path, typer.Option("--results", help="Folder for the results.")],
    size: SizeOption = SizeChoice.LAPTOP,
    backend: BackendOption = "dask",
    configurations: OnlyConfigurations = None,
    nodes: OnlyNodes = None,
    repetitions: Repetitions = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the run of this name.")] = None,
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
) -> None:
    """Run an experiment; what is done already is not done again."""
    with errors_reported():
        request = _request(figure, size, backend, configurations, nodes, repetitions)
        folder = ResultsFolder(results)
        todo = pending(request, folder, only or ())
        if dry_run:
            Console(markup=False).print(plan_table(todo, request.name))
            return
        _run(request, folder, only or (), address)


@app.command()
def resume(
    folder: FolderArgument,
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is left only.")] = False,
) -> None:
    """Do what is left of the experiments in a folder."""
    with errors_reported():
        results = ResultsFolder(folder)
        for request in requests_in(results):
            if dry_run:
                note(f"{request.name}: {total(pending(request, results))}")
            else:
                _run(request, results, (), address)


@app.command()
def report(folder: FolderArgument) -> None:
    """Draw the figures and write a page with tables, the paper's readings, and the verdicts."""
    with errors_reported():
        note(f"written: {', '.join(map(str, write_report(ResultsFolder(folder))))}")


def _request(
    figure: str,
    size: SizeChoice,
    backend: str,
    configurations: str | None,
    nodes: str | None,
    repetitions: int | None,
) -> Request:
    return request_for(
        figure,
        size.value,
        backend,
        configurations=None if configurations is None else words(configurations),
        nodes=None if nodes is None else parse_counts("--nodes", nodes),
        repetitions=repetitions,
    )


def _run(
    request: Request, folder: ResultsFolder, only: list[str] | tuple[()], address: str | None
) -> None:
    command = shlex.join(["spliter", *sys.argv[1:]])
    try:
        with progress() as listen:
            done = run_launched(request, folder, only=only, address=address, listen=listen)
            if done is None:
                done = run_request(
                    request, folder, only=only, address=address, listen=listen, command=command
                )
    except KeyboardInterrupt:
        note(
            f"{request.name}: interrupted; finished runs are kept: "
            f"spliter experiment resume {folder.path}"
        )
        raise
    left = len(pending(request, folder))
    folder.write_table(folder.records()) if folder.done() else None
    note(f"{request.name}: {done} runs done, {left} left; spliter experiment report {folder.path}")
