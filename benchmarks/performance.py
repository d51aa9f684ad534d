"""Measure again every figure that the documentation claims.

    python benchmarks/performance.py                      # all of them: about two hours
    python benchmarks/performance.py --only scale-planner csvm # some
    python benchmarks/performance.py --quick              # short forms: does everything still run?
    python benchmarks/performance.py --update             # and write them into docs/performance.md
    python benchmarks/performance.py --update --older-than 2026-11-22   # go on where that ended
    python benchmarks/performance.py --only programs --results out   # keep the runs

``performance.toml`` next to this file lists them. Figures that are not measured stay on the page
unchanged. With ``--results`` the runs of a comparison are kept in a folder of its name, and those
that are there are not repeated. For ``spliter compare``, times are divided by SplIter's in the same
round, or by the ideal's if SplIter's own is not measured: median and quartiles. Its peers with MPI
are found by
``SPLITER_MPICH`` and ``SPLITER_OPENMPI``. For other commands the last lines
are shown.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spliter_experiments.compare.ways import IDEAL, MEANINGS, PARTITIONED
from spliter_experiments.harness.facts import facts
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.harness.table import NONE, Grid, quartiles
from spliter_experiments.layouts import comparison as layouts

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benchmarks" / "performance.toml"
PAGE = ROOT / "docs" / "performance.md"
OURS = ("spliter", "pipeline", PARTITIONED)
BASES = (*OURS, IDEAL, "llvm", "mpich-packed", "openmpi-packed")
"""Ways that the others are divided by; the first one that was measured."""

LAST_LINES = 30
LIMIT_SECONDS = 3 * 3600
NOT_MEASURED = "not measured"
VARIABLE = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Figure:
    """A claim of the documentation and the command that measures it."""

    name: str
    page: str
    claim: str
    command: str
    quick: str
    plot: str = ""
    """Where the plot of the full form goes; empty if no page shows it."""


def read_figures(file: Path = FIGURES) -> list[Figure]:
    """Return all claims, in the order of the file."""
    return [Figure(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["figure"]]


def claims_table(figures: Sequence[Figure]) -> list[str]:
    """Return the claims as a Markdown table."""

    def row(figure: Figure) -> tuple[str, ...]:
        page = Path(figure.page).name
        return (figure.name, f"[{page}]({page})", figure.claim, in_a_cell(figure.command))

    return Grid(("name", "page", "claim", "command"), tuple(map(row, figures))).markdown()


def in_a_cell(command: str) -> str:
    """Format a command for a table cell; only the first line of a program of several lines."""
    first, *more = command.splitlines()
    return f"`{first}` ... (on the page)" if more else f"`{command}`"


def words_of(figure: Figure, quick: bool, folder: str) -> tuple[dict[str, str], list[str]]:
    """Return a command's variables and words, to be run with this interpreter."""
    words = shlex.split(figure.command)
    settings = list(itertools.takewhile(VARIABLE.match, words))
    program, *words = [word for word in words[len(settings) :] if word != "sudo"]
    words += shlex.split(figure.quick.format(folder=folder)) if quick else []
    starts = ["-m", "spliter_experiments"] if program == "spliter" else []
    variables = dict(setting.split("=", maxsplit=1) for setting in settings)
    return variables, [sys.executable, *starts, *words]


def measure(figure: Figure, quick: bool, results: Path | None = None) -> list[str]:
    """Run the command of a figure, and return its result as Markdown.

    The runs of a comparison in full are kept in a folder of `results`, if given.
    """
    roots = [
        str(ROOT),
        *(str(ROOT / name) for name in ("backends", "apps", "experiments", "slurm")),
    ]
    with tempfile.TemporaryDirectory(prefix="spliter-performance-") as temporary:
        folder = temporary if quick or results is None else str(results.resolve() / figure.name)
        variables, words = words_of(figure, quick, folder)
        compares = "compare" in words
        done = subprocess.run(
            [*words, *(["--output", folder] if compares else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots), **variables},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        if figure.plot and not quick:
            (plot,) = Path(folder).glob("**/*.png")
            shutil.copyfile(plot, ROOT / figure.plot)
        if compares:
            return ratios_table(ResultsFolder(Path(folder)).records())
    return ["```text", *done.stdout.rstrip().splitlines()[-LAST_LINES:], "```"]


def ratios_table(records: Sequence[Record]) -> list[str]:
    """Return a table of each way's time divided by SplIter's in the same round."""
    measured = {one.way for one in records}
    base = next(way for way in BASES if way in measured)
    known = dict.fromkeys((*MEANINGS, *layouts.MEANINGS))
    ways = [way for way in known if way in measured - {base}]
    found = {((one.app, one.size, one.x), one.way, one.repetition): one.seconds for one in records}
    rows = []
    for case in sorted({key for key, _, _ in found}):
        own = {at: took for (key, way, at), took in found.items() if (key, way) == (case, base)}
        ratios = (
            [found[case, way, at] / own[at] for at in own if (case, way, at) in found]
            for way in ways
        )
        cells = (quartiles(values) if values else NONE for values in ratios)
        app, size, at_x = case
        rows.append((size or app, f"{at_x:.15g}", quartiles([*own.values()]), *cells))
    seconds = "SplIter, s" if base in OURS else f"{base}, s"
    has_blocks = any(one.blocks for one in records)
    x = "blocks per core" if has_blocks else "bytes"
    grid = Grid(("workload", x, seconds, *ways), tuple(rows))
    if records[0].engine == "process":  # no blocks, and rows of each program's own number
        return grid.without(x).markdown()
    one_workload = has_blocks and not records[0].size
    return (grid.without("workload") if one_workload else grid).markdown()


def section(figure: Figure, quick: bool, results: Path | None = None) -> Iterator[str]:
    """Measure a figure, and yield the lines of its Markdown section."""
    here = facts()
    versions = ", ".join(f"{name} {version}" for name, version in here.versions.items())
    day = dt.datetime.now(dt.UTC).date().isoformat()
    form = "the short form, to see that the command runs" if quick else "the full form"
    short = f" with `{figure.quick}`" if quick and figure.quick else ""
    yield from (f"{in_a_cell(figure.command)}{short}", "")
    yield (
        f"{day}: {form}, on {here.processor}, {here.cores} cores, "
        f"{here.memory / 2**30:.0f} GiB, {here.system}; {versions}"
    )
    yield ""
    try:
        yield from measure(figure, quick, results)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        yield f"{NOT_MEASURED}: {type(error).__name__}"


def sections_of(text: str) -> dict[str, list[str]]:
    """Return the lines of each figure's section on a page."""
    _, _, rest = text.partition("<!-- figures: begin -->\n")
    inside, _, _ = rest.partition("<!-- figures: end -->")
    found = (part.partition("\n") for part in inside.strip().split("### ")[1:])
    return {name: lines.strip().splitlines() for name, _, lines in found}


def day_of(lines: Sequence[str]) -> dt.date | None:
    """Return the day when a figure was measured."""
    if any(line.startswith(NOT_MEASURED) for line in lines):
        return None
    days = (re.match(r"\d{4}-\d{2}-\d{2}(?=:)", line) for line in lines)
    return next((dt.date.fromisoformat(day.group()) for day in days if day), None)


def older_than(
    day: dt.date, figures: Sequence[Figure], sections: Mapping[str, Sequence[str]]
) -> list[Figure]:
    """Return the figures measured before a day, or never."""
    measured = {name: day_of(lines) for name, lines in sections.items()}
    return [figure for figure in figures if (measured.get(figure.name) or dt.date.min) < day]


def page_of(figures: Sequence[Figure], sections: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sections of figures, in order, with headings."""
    known = [figure.name for figure in figures if figure.name in sections]
    lines = [line for name in known for line in ("", f"### {name}", "", *sections[name])]
    return lines[1:]


def replace_between(text: str, what: str, lines: Sequence[str]) -> str:
    """Return a page with the lines between two marks replaced."""
    begin, end = f"<!-- {what}: begin -->\n", f"<!-- {what}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    inside = "\n".join(lines)
    return f"{before}{begin}\n{inside}\n\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and update the page if requested."""
    figures = read_figures()
    names = [figure.name for figure in figures]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the short forms")
    parser.add_argument("--update", action="store_true", help="write into docs/performance.md")
    parser.add_argument(
        "--older-than",
        type=dt.date.fromisoformat,
        metavar="DAY",
        help="only what was measured before this day (UTC), or never",
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="keep runs of comparisons")
    parser.add_argument("--list", action="store_true", help="show the claims, measure nothing")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(claims_table(figures)))
    if options.update:
        text = replace_between(PAGE.read_text(encoding="utf-8"), "claims", claims_table(figures))
        PAGE.write_text(text, encoding="utf-8")
    if options.list:
        return
    chosen = [figure for figure in figures if figure.name in options.only]
    if options.older_than is not None:
        chosen = older_than(
            options.older_than, chosen, sections_of(PAGE.read_text(encoding="utf-8"))
        )
    failed = []
    for figure in chosen:
        print(f"### {figure.name}\n", flush=True)
        lines = []
        for line in section(figure, options.quick, options.results):
            print(line, flush=True)
            lines.append(line)
        print(flush=True)
        if options.update:
            text = PAGE.read_text(encoding="utf-8")
            sections = {**sections_of(text), figure.name: lines}
            text = replace_between(text, "figures", page_of(figures, sections))
            PAGE.write_text(text, encoding="utf-8")
        if day_of(lines) is None:
            failed.append(figure.name)
    if failed:
        raise SystemExit(f"{NOT_MEASURED}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
