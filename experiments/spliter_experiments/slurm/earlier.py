"""Estimate running times from earlier results, for the time limits of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spliter_experiments.evaluation import PlannedRun
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.slurm.folder import Folder
from spliter_experiments.slurm.request import Measured


def seconds_of(folders: Sequence[Path]) -> Measured:
    """Return a function that estimates a run's time from folders of results or submissions.

    It is the longest time of the run's other repetitions plus a share of the time to load the data;
    None if there are none.
    """
    alike: dict[tuple[object, ...], list[Record]] = {}
    for folder in folders:
        for record in _records(folder):
            alike.setdefault(_kind(record), []).append(record)
    took = {
        kind: max(found.seconds for found in those)
        + max(found.init_seconds for found in those) / len(those)
        for kind, those in alike.items()
    }
    return lambda run: took.get(_kind(run))


def _kind(run: Record | PlannedRun) -> tuple[object, ...]:
    return (
        *(run.figure, run.size, run.engine, run.configuration),
        *(run.nodes, run.workers, run.threads, run.blocks, run.rows),
    )


def _records(folder: Path) -> list[Record]:
    results = Folder(folder).results if Folder(folder).exists() else folder
    there = ResultsFolder(results)
    if Folder(folder).exists() and not there.done():
        return []
    return there.records()
