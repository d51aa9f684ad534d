"""Many chaos runs: one record per line of a file, resumed where they ended, and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from spliter_experiments.chaos.arena import Arena
from spliter_experiments.chaos.cases import BACKENDS, KINDS, Case, draw_case
from spliter_experiments.chaos.outcomes import Outcome, Record
from spliter_experiments.chaos.runner import run_case
from spliter_experiments.harness.errors import OptionError, ResultsError

FRESH_AFTER: Final = 100
"""Runs after which a cluster is started anew."""


def read_records(path: Path) -> list[Record]:
    """Return the runs that a file has; a last line that was cut off is not one.

    Parameters
    ----------
    path : Path
        Need not exist.

    Returns
    -------
    list of Record
        In the order they were made.

    Raises
    ------
    ResultsError
        If it has something else.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(Record.from_line(line))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ResultsError(f"{path}, line {number}: not a chaos run ({error})") from error
    return records


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write a file of runs anew, without what was cut off.

    Parameters
    ----------
    path : Path
        The file.
    records : iterable of Record
        What it is to have.
    """
    path.write_text("".join(f"{record.line()}\n" for record in records), encoding="utf-8")


def run_seeds(backend: str, seeds: Sequence[int]) -> Iterator[Record]:
    """Run the cases of seeds, one after the other, on as few clusters as possible.

    Parameters
    ----------
    backend : {"dask", "dataclay"}
        Engine.
    seeds : sequence of int
        Which.

    Yields
    ------
    Record
        Of each run.
    """
    clusters = _Clusters()
    try:
        for number, seed in enumerate(seeds):
            yield clusters.run(draw_case(backend, seed), number // FRESH_AFTER)
    finally:
        clusters.close()


class _Clusters:
    """One cluster at a time, used as long as it is good for the next case."""

    def __init__(self) -> None:
        self._arena: Arena | None = None
        self._open_for: tuple[bool, int] | None = None

    def run(self, case: Case, batch: int) -> Record:
        """Run a case; on another cluster, once, if this one cannot be made whole before it."""
        try:
            return self._run(case, batch)
        except (OSError, TimeoutError):
            self.close(abandoned=True)
            return self._run(case, batch)

    def _run(self, case: Case, batch: int) -> Record:
        wanted = (case.nannies, batch)
        if self._open_for != wanted:
            self.close()
        if self._arena is None:
            self._arena, self._open_for = open_arena(case), wanted
        record = run_case(case, self._arena)
        if record.outcome is Outcome.HANG or record.left:
            self.close(abandoned=True)
        return record

    def close(self, *, abandoned: bool = False) -> None:
        """End the cluster, if there is one."""
        arena, self._arena = self._arena, None
        if arena is not None:
            arena.close(abandoned=abandoned)


def open_arena(case: Case) -> Arena:
    """Start a cluster for a case, and for those like it.

    Parameters
    ----------
    case : Case
        What is to be run.

    Returns
    -------
    Arena
        To be closed.

    Raises
    ------
    OptionError
        If there are no arenas of its engine.
    """
    if case.backend == "dask":
        from spliter_experiments.chaos.dask_arena import DaskArena

        return DaskArena(case.nannies)
    if case.backend == "dataclay":
        from spliter_experiments.chaos.dataclay_arena import DataClayArena

        return DataClayArena()
    raise OptionError(f"--backend takes one of {', '.join(BACKENDS)}, got {case.backend!r}")


def command_of(record: Record) -> str:
    """Return the command that runs one case again.

    Parameters
    ----------
    record : Record
        Of the case.

    Returns
    -------
    str
        To be pasted into a shell.
    """
    return f"spliter chaos --backend {record.case['backend']} --runs 1 --seed {record.seed}"


def outcome_table(records: Sequence[Record], backend: str) -> Table:
    """Return how often what has happened, and what came of it.

    A run counts once for each kind of fault in it, so the rows add up to more than the last.

    Parameters
    ----------
    records : sequence of Record
        The runs.
    backend : str
        Engine.

    Returns
    -------
    Table
        A line per kind of fault that has happened, per application, and one for all.
    """
    table = Table(title=f"{len(records)} runs on {backend}", box=SIMPLE_HEAD, show_edge=False)
    table.add_column("runs with", no_wrap=True)
    for heading in ("faults", "runs", *Outcome, "left behind"):
        table.add_column(str(heading), justify="right")
    for kind in KINDS[backend]:
        struck = [sum(one.done and one.kind == kind for one in it.struck) for it in records]
        hit = [record for record, times in zip(records, struck, strict=True) if times]
        if hit:
            table.add_row(kind, str(sum(struck)), *_counts(hit))
    table.add_section()
    for app in sorted({str(record.case["app"]) for record in records}):
        mine = [record for record in records if record.case["app"] == app]
        table.add_row(app, str(_faults_in(mine)), *_counts(mine))
    table.add_section()
    table.add_row("all", str(_faults_in(records)), *_counts(records))
    return table


def error_table(records: Sequence[Record]) -> Table:
    """Return how often each type of error ended a run.

    Parameters
    ----------
    records : sequence of Record
        The runs.

    Returns
    -------
    Table
        A line per type.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("error")
    table.add_column("runs", justify="right")
    table.add_column("for example")
    named = Counter(record.error for record in records if record.error)
    for name, times in named.most_common():
        first = next(record for record in records if record.error == name)
        table.add_row(name, str(times), f"seed {first.seed}")
    return table


def _counts(records: Sequence[Record]) -> list[str]:
    outcomes = Counter(record.outcome for record in records)
    left = sum(bool(record.left) for record in records)
    return [str(len(records)), *(str(outcomes[outcome]) for outcome in Outcome), str(left)]


def _faults_in(records: Sequence[Record]) -> int:
    return sum(one.done for record in records for one in record.struck)
