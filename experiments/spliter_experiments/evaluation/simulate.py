"""Predict a figure in a size that cannot be run here, and say how far that can be trusted.

Everything written is labelled as predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from spliter_experiments.evaluation.checks import Check
from spliter_experiments.evaluation.costs import Costs
from spliter_experiments.evaluation.figures import LABELS, write_figure
from spliter_experiments.evaluation.model import most_blocks_per_core, predict
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.statistics import Bar
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.table import seconds, size

LABEL = "PREDICTED, not measured"

FOLDER = "predicted"

SLACK = 0.25
"""Share of the time with one block per core that finer blocks may add."""


@dataclass(frozen=True)
class Simulation:
    """What was predicted.

    Parameters
    ----------
    scenario : Scenario
        Of what.
    size : str
        In which size.
    costs : Costs
        From which costs.
    runs : list of PlannedRun
        One of each configuration and place.
    predicted : list of float
        Seconds of each.
    checks : list of Check
        The model against a real scheduler; empty if that was not asked for.
    """

    scenario: Scenario
    size: str
    costs: Costs
    runs: list[PlannedRun]
    predicted: list[float]
    checks: list[Check]

    def bars(self) -> list[Bar]:
        """Return the predictions as what a figure is drawn of."""
        return [
            Bar(
                engine=run.engine,
                configuration=run.configuration,
                x=run.x,
                runs=0,
                median=value,
                lower=value,
                upper=value,
                init=None,
                split=None,
                rechunk=None,
                iterate=None,
                tasks=None,
                nbytes=None,
                peak=None,
                blocks=run.blocks,
            )
            for run, value in zip(self.runs, self.predicted, strict=True)
        ]


def simulate(
    scenario: Scenario,
    size_name: str,
    runs: Sequence[PlannedRun],
    costs: Costs,
    checks: Sequence[Check] = (),
) -> Simulation:
    """Predict every configuration at every place of a figure.

    Raises
    ------
    PlanError
        If there is no model of the scenario.
    """
    firsts = [run for run in runs if run.repetition == 1]
    predicted = [predict(scenario, run, costs) for run in firsts]
    return Simulation(scenario, size_name, costs, firsts, predicted, list(checks))


def write_simulation(found: Simulation, folder: Path) -> list[Path]:
    """Write the predicted figure, and costs, predictions and checks as JSON.

    Raises
    ------
    ResultsError
        If they cannot be written.
    """
    target = folder / FOLDER / found.size
    files = write_figure(found.scenario, found.bars(), target, f"{LABEL}; {found.size} size")
    content = {
        "label": LABEL,
        "figure": found.scenario.figure,
        "size": found.size,
        "costs": asdict(found.costs),
        "predicted_seconds": {
            run.id.rpartition("-r")[0]: value
            for run, value in zip(found.runs, found.predicted, strict=True)
        },
        "checks": [asdict(check) | {"error": check.error} for check in found.checks],
    }
    file = target / f"{files[0].stem}.json"
    try:
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write {file}: {error}") from error
    return [*files, file]


def costs_table(costs: Costs) -> Table:
    """Return the costs as a table."""
    table = Table(title="Costs measured here", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("cost")
    table.add_column("value", justify="right")
    table.add_row("a task, there and back", _milliseconds(costs.round_trip))
    table.add_row("the scheduler, for a task", _milliseconds(costs.task))
    table.add_row("of that, what no work hides", _milliseconds(costs.telling))
    table.add_row("from worker to worker", f"{size(round(costs.bandwidth))}/s")
    table.add_row("SplIter, to split, for a block", _milliseconds(costs.split_block))
    table.add_row("SplIter, in a pass, for a block", _milliseconds(costs.pass_block))
    for what, value in _kernel_rows(costs):
        table.add_row(what, value)
    return table


def _kernel_rows(costs: Costs) -> Iterator[tuple[str, str]]:
    if costs.neighbors is not None:
        kernels = costs.neighbors
        for rows in kernels.build.sizes:
            yield f"a tree of {rows:,.0f} rows", _milliseconds(kernels.build.at(rows))
            asked = _milliseconds(1000 * kernels.ask.at(rows))
            yield f"1000 queries of a tree of {rows:,.0f} rows", asked
        yield "to merge 1000 answers of a tree", _milliseconds(1000 * kernels.merge)
    elif costs.cascade is not None:
        steps = costs.cascade
        for rows in steps.train.sizes:
            left = f"leaves {steps.kept.at(rows):,.0f}"
            yield f"to train on {rows:,.0f} rows; {left}", _milliseconds(steps.train.at(rows))
        for rows in steps.merge.sizes:
            yield f"to train on {rows:,.0f} rows left", _milliseconds(steps.merge.at(rows))
        yield "iterations", str(steps.iterations)
    else:
        yield "the kernel, for a block", _milliseconds(costs.per_block)
        yield "the kernel, for 1000 rows", _milliseconds(1000 * costs.per_row)


def _milliseconds(taken: float) -> str:
    return f"{1e3 * taken:.3g} ms"


def predictions_table(found: Simulation) -> Table:
    """Return the predicted seconds: a line per place, a column per configuration."""
    names = list(dict.fromkeys(run.configuration for run in found.runs))
    values = {
        (run.x, run.configuration): value
        for run, value in zip(found.runs, found.predicted, strict=True)
    }
    table = Table(title=f"Seconds, {LABEL}", title_justify="left", box=SIMPLE_HEAD)
    for heading in (LABELS[found.scenario.x], *names):
        table.add_column(heading, justify="right")
    for x in sorted({x for x, _ in values}):
        table.add_row(f"{x:,.6g}", *(seconds(values[x, name]) for name in names))
    return table


def block_sizes_table(found: Simulation) -> Table:
    """Return how finely the data may be cut on so many nodes: the answer most are after."""
    title = f"Most blocks per core for {SLACK:.0%} more time than with one, {LABEL}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in "nodes", "configuration", "blocks per core", "rows per block":
        table.add_column(heading, justify="right")
    seen = set()
    for run in found.runs:
        key = (run.nodes, run.rows, run.configuration)
        if key in seen or run.configuration not in ("baseline", "spliter"):
            continue
        seen.add(key)
        most = most_blocks_per_core(found.scenario, run, found.costs, SLACK)
        blocks, rows = most or (1, run.rows // run.cores)
        table.add_row(str(run.nodes), run.configuration, f"{blocks:,}", f"{rows:,}")
    return table


def checks_table(checks: Sequence[Check]) -> Table:
    """Return the model beside what was run here."""
    title = "The model against a real Dask scheduler: sleeping workers, and real runs"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("what")
    for heading in "workers", "tasks", "each sleeps", "predicted", "measured", "error":
        table.add_column(heading, justify="right")
    for check in checks:
        table.add_row(
            check.what,
            str(check.workers),
            str(check.tasks),
            "-" if check.work is None else f"{1e3 * check.work:.3g} ms",
            f"{seconds(check.predicted)} s",
            f"{seconds(check.measured)} s",
            f"{check.error:+.0%}",
        )
    return table
