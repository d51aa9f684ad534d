"""Predict a figure in a size that cannot be run here.

All output is labelled as predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from spliter_experiments.evaluation.costs import Costs
from spliter_experiments.evaluation.model import most_blocks_per_core, predict
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.report import write_figure, write_text
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.tables import LABELS
from spliter_experiments.harness.summary import Summary
from spliter_experiments.harness.table import Grid, seconds, size

LABEL = "PREDICTED, not measured"

FOLDER = "predicted"

SLACK = 0.25
"""Accepted increase over the time with one block per core, as a share of it."""


@dataclass(frozen=True)
class Simulation:
    """Predicted seconds of a run per configuration and place of the axis, and their costs."""

    scenario: Scenario
    size: str
    costs: Costs
    runs: list[PlannedRun]
    predicted: list[float]

    def bars(self) -> list[Summary]:
        """Return the predictions as summaries, for plotting."""
        return [
            Summary(run.engine, run.configuration, run.x, run.blocks, 0, value, value, value, {})
            for run, value in zip(self.runs, self.predicted, strict=True)
        ]


def simulate(
    scenario: Scenario,
    size_name: str,
    runs: Sequence[PlannedRun],
    costs: Costs,
) -> Simulation:
    """Predict every configuration at every place of a figure's axis."""
    firsts = [run for run in runs if run.repetition == 1]
    predicted = [predict(scenario, run, costs) for run in firsts]
    return Simulation(scenario, size_name, costs, firsts, predicted)


def write_simulation(found: Simulation, folder: Path) -> list[Path]:
    """Write the predicted figure, and a JSON file of costs and predictions."""
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
    }
    text = json.dumps(content, indent=1) + "\n"
    return [*files, write_text(target / f"{files[0].stem}.json", text)]


def costs_table(costs: Costs) -> Table:
    """Return the costs as a table."""
    rows = (
        ("a task, there and back", _milliseconds(costs.round_trip)),
        ("the scheduler, for a task", _milliseconds(costs.task)),
        ("of that, what no work hides", _milliseconds(costs.telling)),
        ("from worker to worker", f"{size(round(costs.bandwidth))}/s"),
        ("SplIter, to split, for a block", _milliseconds(costs.split_block)),
        ("SplIter, in a pass, for a block", _milliseconds(costs.pass_block)),
        *_kernel_rows(costs),
    )
    return Grid(("cost", "value"), rows).terminal("Costs measured here")


def _kernel_rows(costs: Costs) -> Iterator[tuple[str, str]]:
    if costs.neighbors is not None:
        kernels = costs.neighbors
        for rows in kernels.build.sizes:
            yield f"a tree of {rows:,.0f} rows", _milliseconds(kernels.build.at(rows))
            asked = _milliseconds(1000 * kernels.ask.at(rows))
            yield f"1000 queries of a tree of {rows:,.0f} rows", asked
        yield "to merge 1000 answers of a tree", _milliseconds(1000 * kernels.merge)
    else:
        yield "the kernel, for a block", _milliseconds(costs.per_block)
        yield "the kernel, for 1000 rows", _milliseconds(1000 * costs.per_row)


def _milliseconds(taken: float) -> str:
    return f"{1e3 * taken:.3g} ms"


def predictions_table(found: Simulation) -> Table:
    """Return the predicted seconds, with a row per x value and a column per configuration."""
    names = list(dict.fromkeys(run.configuration for run in found.runs))
    values = {
        (run.x, run.configuration): value
        for run, value in zip(found.runs, found.predicted, strict=True)
    }
    rows = tuple(
        (f"{x:,.6g}", *(seconds(values[x, name]) for name in names))
        for x in sorted({x for x, _ in values})
    )
    return Grid((LABELS[found.scenario.x], *names), rows).terminal(f"Seconds, {LABEL}")


def block_sizes_table(found: Simulation) -> Table:
    """Return the largest number of blocks per core within `SLACK`, by number of nodes."""
    rows = {}
    for run in found.runs:
        key = (run.nodes, run.rows, run.configuration)
        if key not in rows and run.configuration in ("baseline", "spliter"):
            most = most_blocks_per_core(found.scenario, run, found.costs, SLACK)
            blocks, per_block = most or (1, run.rows // run.cores)
            rows[key] = (str(run.nodes), run.configuration, f"{blocks:,}", f"{per_block:,}")
    headings = ("nodes", "configuration", "blocks per core", "rows per block")
    title = f"Most blocks per core for {SLACK:.0%} more time than with one, {LABEL}"
    return Grid(headings, tuple(rows.values())).terminal(title)
