"""Report a folder of results: figures, and one self-contained HTML page.

Each figure is shown with its table, the paper's reading of it, and for each of the paper's findings
whether it holds here, with the measured ratio.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from jinja2 import Environment, StrictUndefined

from spliter_experiments.compare.registry import MODULES
from spliter_experiments.evaluation.catalog import FIGURES, file_stem
from spliter_experiments.evaluation.plan import PROCESS
from spliter_experiments.evaluation.runner import pending, requests_in
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.evaluation.tables import LABELS, kernel_table, measured_table, paper_table
from spliter_experiments.evaluation.verdict import Finding, findings
from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.plot import Style, write_plot
from spliter_experiments.harness.records import AGAIN, RUNS, Record, ResultsFolder
from spliter_experiments.harness.summary import summarise
from spliter_experiments.harness.table import Grid
from spliter_experiments.harness.table import size as bytes_said

PAGE = "report.html"
TEMPLATE = "report.html.j2"
FIGURES_FOLDER = "figures"


@dataclass(frozen=True)
class Section:
    """Content of the page for one experiment."""

    scenario: Scenario
    size: str
    picture: str
    tables: list[Grid]
    findings: list[Finding]
    missing: int

    @property
    def heading(self) -> str:
        return figure_heading(self.scenario)

    @property
    def chosen(self) -> str:
        return next(
            (size.chosen for name, size in self.scenario.sizes.items() if name == self.size)
        )


def figure_heading(scenario: Scenario) -> str:
    return "Table 1" if scenario.figure == "table1" else f"Figure {scenario.figure}"


def style_of(scenario: Scenario, note: str) -> Style:
    title = f"{figure_heading(scenario)}. {scenario.title}\n{note}"
    kind: Literal["bars", "lines"] = "bars" if scenario.y == "seconds" else "lines"
    return Style(title, LABELS[scenario.x], kind, scenario.y, scenario.axis)


def write_report(folder: ResultsFolder) -> list[Path]:
    """Plot all experiments in a folder and write the page; return the files."""
    records = folder.records()
    _check_engines(records, folder)
    files = [folder.write_table(records)]
    sections = []
    for (figure, size), (scenario, missing) in _asked(folder).items():
        mine = [record for record in records if (record.figure, record.size) == (figure, size)]
        if not mine:
            continue
        bars = summarise(mine, scenario.configurations, winsorize=True)
        style, target = style_of(scenario, _note(size, mine)), folder.path / FIGURES_FOLDER / size
        pictures = write_plot(bars, style, target, file_stem(figure))
        files += pictures
        tables = [
            kernel_table(bars) if figure == "table1" else None,
            measured_table(scenario, bars),
            paper_table(scenario),
        ]
        sections.append(
            Section(
                scenario,
                size,
                _embedded(next(file for file in pictures if file.suffix == ".svg")),
                [table for table in tables if table is not None],
                findings(scenario, bars),
                missing,
            )
        )
    page = folder.path / PAGE
    try:
        page.write_text(_page(sections, records), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write {page}: {error}") from error
    return [*files, page]


def _check_engines(records: Sequence[Record], folder: ResultsFolder) -> None:
    for record in records:
        if record.engine not in (PROCESS, *MODULES):
            raise ResultsError(
                f"{folder.path}/{RUNS}/{record.run_id}.json is not a record of a run (engine: "
                f"there is no {record.engine!r}); remove it and {AGAIN}"
            )


def _asked(folder: ResultsFolder) -> dict[tuple[str, str], tuple[Scenario, int]]:
    """Return scenario and missing runs of each figure and size, in the order of the paper."""
    found: dict[tuple[str, str], tuple[Scenario, int]] = {}
    for request in requests_in(folder):
        scenario = request.parsed
        key = (scenario.figure, request.size)
        _, before = found.get(key, (scenario, 0))
        found[key] = (scenario, before + len(pending(request, folder)))
    order = {name: number for number, name in enumerate(FIGURES)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0][0], len(order))))


def _note(size: str, records: Sequence[Record]) -> str:
    engines = ", ".join(dict.fromkeys(record.engine for record in records))
    nodes = sorted({record.nodes for record in records})
    first = records[0]
    per_node = f"{first.workers // first.nodes} x {first.threads} threads"
    counts = ", ".join(map(str, nodes))
    said = f"{engines}, {size}: {counts} nodes of {per_node}; {first.processor}"
    most = max(record.workers * record.threads for record in records)
    if size == "laptop" and most > first.host_cores:
        # In this size, nodes are processes of one machine.
        said += f"; {most} threads share {first.host_cores} cores"
    return said


def _embedded(picture: Path) -> str:
    content = base64.b64encode(picture.read_bytes()).decode()
    return f"data:image/svg+xml;base64,{content}"


def _page(sections: Sequence[Section], records: Sequence[Record]) -> str:
    template = (resources.files(__package__) / TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    first = records[0]
    return environment.from_string(template).render(
        sections=sections,
        first=first,
        memory=bytes_said(first.host_memory),
        runs=len(records),
        held=[finding for section in sections for finding in section.findings],
    )
