"""Measure again every figure that the documentation claims.

    python benchmarks/performance.py --update             # all of them: about two hours
    python benchmarks/performance.py --only rows-dask csvm
    python benchmarks/performance.py --quick              # short forms: does everything still run?
    python benchmarks/performance.py --update --older-than 2026-11-22   # go on where that ended
    python benchmarks/performance.py --update --only programs --records out   # runs that are there

``performance.toml`` next to this file lists them. Figures that are not measured stay on the page
unchanged. For ``spliter compare``, times are divided by SplIter's in the same round, or by the
ideal's: medians and quartiles. Other commands print the table themselves. The peers with MPI are
found by ``SPLITER_MPICH`` and ``SPLITER_OPENMPI``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spliter_experiments.compare.ways import MEANINGS, PARTITIONED
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.harness.table import Grid, pivot_grid, ratio_grid, runs_of
from spliter_experiments.layouts.workload import over_grid, packed_ways, span_grid

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benchmarks" / "performance.toml"
PAGE = ROOT / "docs" / "performance.md"
BASES = ("spliter", "pipeline", PARTITIONED, "llvm", *packed_ways())
"""Ways that the others are divided by; the first one that was measured."""

PACKAGES = ("python", "numpy", "dask", "distributed", "dataclay", "ray", "pandas", "scikit-learn")

MOST_PATTERNS = 6
"""Of more patterns the table has the faster MPI library only."""

LAST_LINES = 8
LIMIT_SECONDS = 3 * 3600
NOT_MEASURED = "not measured"
VARIABLE = re.compile(r"[A-Z_]+=")
DAY = re.compile(r"(\d{4}-\d{2}-\d{2}), ([A-Z])\b")
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->"


@dataclass(frozen=True)
class Figure:
    """A claim of the documentation and the command that measures it.

    `quick` are options that make the command short; `plot` is where its plot goes, if a page shows
    it.
    """

    name: str
    page: str
    claim: str
    command: str
    quick: str = ""
    plot: str = ""


def read_figures(file: Path = FIGURES) -> list[Figure]:
    return [Figure(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["figure"]]


def words_of(figure: Figure, quick: bool, folder: str) -> tuple[dict[str, str], list[str]]:
    """Return a command's variables and words, to be run with this interpreter."""
    words = shlex.split(figure.command)
    settings = list(itertools.takewhile(VARIABLE.match, words))
    program, *words = [word for word in words[len(settings) :] if word != "sudo"]
    words += shlex.split(figure.quick.format(folder=folder)) if quick else []
    starts = ["-m", "spliter_experiments"] if program == "spliter" else []
    variables = dict(setting.split("=", maxsplit=1) for setting in settings)
    return variables, [sys.executable, *starts, *words]


def machine_of(here: Facts) -> str:
    found = {name: here.versions[name] for name in PACKAGES if name in here.versions}
    versions = ", ".join(f"{name} {version}" for name, version in found.items())
    memory = f"{here.memory / 2**30:.0f} GiB"
    return f"{here.processor}, {here.cores} cores, {memory}, {here.system}; {versions}"


def measure(figure: Figure, quick: bool) -> tuple[str, str, list[str]]:
    """Run the command of a figure; return the day, the machine, and the table."""
    roots = [ROOT, *(ROOT / name for name in ("backends", "apps", "experiments", "slurm"))]
    with tempfile.TemporaryDirectory(prefix="spliter-performance-") as folder:
        variables, words = words_of(figure, quick, folder)
        compares = "compare" in words
        path = os.pathsep.join(map(str, roots))
        done = subprocess.run(
            [*words, *(["--output", folder] if compares else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, **variables},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        if figure.plot and not quick:
            (plot,) = Path(folder).glob("**/*.png")
            shutil.copyfile(plot, ROOT / figure.plot)
        if compares:
            return of_records(ResultsFolder(Path(folder)).records())
    lines = done.stdout.rstrip().splitlines()
    if not any(line.startswith("| ---") for line in lines):
        lines = ["```text", *lines[-LAST_LINES:], "```"]
    return dt.datetime.now(dt.UTC).date().isoformat(), machine_of(facts()), lines


def of_records(records: Sequence[Record]) -> tuple[str, str, list[str]]:
    """Return day, machine and table of records."""
    last = max(records, key=lambda one: one.started_at)
    here = Facts(last.versions, last.system, last.processor, last.host_cores, last.host_memory)
    return last.started_at[:10], machine_of(here), table_of(records).markdown()


def table_of(records: Sequence[Record]) -> Grid:
    """Return a short table: of many patterns or programs, a row for each."""
    order = [*MEANINGS]
    records = sorted(records, key=lambda one: (one.app, one.size, one.x, order.index(one.way)))
    runs, engine = runs_of(records), records[0].engine
    names, places = ({one.place[at] for one in runs} for at in (0, 1))
    if engine == "process":  # no blocks, and rows of each program's own number
        runs = [one._replace(place=one.place[:1]) for one in runs]
        return ratio_grid(runs, ("workload",), BASES)
    if engine == "layout":
        several = len(names) > MOST_PATTERNS
        return over_grid(records) if several else span_grid(records, "llvm")
    if len(names) > 1 and len(places) > 1:
        return pivot_grid(runs, PARTITIONED)
    grid = ratio_grid(runs, ("workload", "blocks per core"), BASES)
    return grid if len(names) > 1 else grid.without("workload")


@dataclass
class Page:
    """The page: what was measured of each figure, and on which machines."""

    machines: list[str]
    sections: dict[str, list[str]]

    @classmethod
    def parse(cls, text: str) -> Page:
        inside = text.partition(BEGIN)[2].partition(END)[0]
        first, *parts = inside.split("\n### ")
        machines = [line.split(". ", 1)[1] for line in first.splitlines() if line[1:3] == ". "]
        sections = {}
        for part in parts:
            name, _, lines = part.partition("\n")
            at = DAY.search(lines) or re.search(NOT_MEASURED, lines)
            sections[name] = lines[at.start() :].strip().splitlines() if at else []
        return cls(machines, sections)

    def add(self, name: str, day: str, machine: str, table: Sequence[str], quick: bool) -> None:
        if machine not in self.machines:
            self.machines.append(machine)
        form = ", short form" if quick else ""
        letter = chr(ord("A") + self.machines.index(machine))
        self.sections[name] = [f"{day}, {letter}{form}", "", *table]

    def lines(self, figures: Sequence[Figure]) -> list[str]:
        """Return the lines between the marks: machines, and a section for each figure."""
        found = [f"{chr(ord('A') + at)}. {one}" for at, one in enumerate(self.machines)]
        for figure in figures:
            if figure.name in self.sections:
                page = Path(figure.page).name
                claim = f"[{page}]({page}): {figure.claim}."
                measured = self.sections[figure.name]
                head = [f"### {figure.name}", "", claim, "", f"`{figure.command}`", ""]
                found += ["", *head, *measured]
        return found

    def day_of(self, name: str) -> dt.date:
        """Return the day when a figure was measured; the first of all if it never was."""
        lines = self.sections.get(name, [])
        day = DAY.match(lines[0]) if lines else None
        return dt.date.fromisoformat(day[1]) if day else dt.date.min

    def write_into(self, text: str, figures: Sequence[Figure]) -> str:
        """Return the text of the page with this content."""
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        inside = "\n".join(self.lines(figures))
        return f"{before}{BEGIN}\n{inside}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    figures = read_figures()
    names = [figure.name for figure in figures]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the short forms")
    parser.add_argument("--update", action="store_true", help="write into docs/performance.md")
    parser.add_argument(
        "--older-than", type=dt.date.fromisoformat, metavar="DAY", help="only what is older"
    )
    parser.add_argument("--records", type=Path, help="take the runs in this folder instead")
    parser.add_argument("--list", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    failed = []
    for figure in figures:
        page = Page.parse(PAGE.read_text(encoding="utf-8"))
        is_new = options.older_than is not None and page.day_of(figure.name) >= options.older_than
        if options.list or figure.name not in options.only or is_new:
            continue
        print(f"### {figure.name}\n", flush=True)
        try:
            found = (
                of_records(ResultsFolder(options.records).records())
                if options.records
                else measure(figure, options.quick)
            )
            page.add(figure.name, *found, quick=options.quick)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            page.sections[figure.name] = [f"{NOT_MEASURED}: {type(error).__name__}"]
            failed.append(figure.name)
        print("\n".join(page.sections[figure.name]), flush=True)
        if options.update:
            text = page.write_into(PAGE.read_text(encoding="utf-8"), figures)
            PAGE.write_text(text, encoding="utf-8")
    if options.update:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(Page.parse(text).write_into(text, figures), encoding="utf-8")
    if failed:
        raise SystemExit(f"{NOT_MEASURED}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
