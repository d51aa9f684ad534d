"""A small scenario, records of it, and benches that measure nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.runner import Request, request_for, run_request
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.runner import Answer, Bench, Way

SMALL = """
schema_version = 1
figure = "9"
title = "Small"
kind = "weak-scaling"
configurations = ["baseline", "rechunk", "spliter"]
seed = 7

[parameters]
app = "histogram"
dims = 2
bins = 3

[sizes.laptop]
nodes = [1, 2]
workers_per_node = 1
threads_per_worker = 1
blocks_per_core = [4]
rows_per_block = 50
repetitions = 2
seconds_per_run = 1

[paper]
reading = "One task per block gets slower."
source = "none"
x = [1, 2]
dask.baseline = [2, 8]
dask.rechunk = [3, 6]
dask.spliter = [1, 1]

[[claims]]
says = "one task per block gets slower"
of = "baseline"
measure = "growth"
at_least = 1.5

[[claims]]
says = "SplIter is faster"
of = "baseline"
against = "spliter"
measure = "ratio"
at_least = 3

[[claims]]
says = "SplIter costs nothing"
of = "spliter"
against = "baseline"
measure = "worst-ratio"
at_most = 0.1
"""

SECONDS = {"baseline": 2.0, "rechunk": 4.0, "spliter": 1.0}
"""Of the pretended runs, by configuration; the baseline takes so long for each node."""


def written(folder: Path, text: str = SMALL) -> str:
    """Write a scenario and return its path."""
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def small_request(folder: Path, text: str = SMALL) -> Request:
    return request_for(written(folder, text), "laptop", "dask")


@contextmanager
def pretend(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Bench]:
    """Run nothing, and say what it took."""
    yield Bench({run.configuration: pretended_way(run, 0.0) for run in runs}, phases={"init": 0.5})


def pretended_way(run: PlannedRun, sleeps: float) -> Way:
    grows = run.nodes if run.configuration == "baseline" else 1
    seconds = SECONDS[run.configuration] * grows
    phases = {"split": 0.25} if run.configuration == "spliter" else {}

    def take_a_while() -> Answer:
        time.sleep(sleeps)
        return Answer(None, phases, seconds)

    return Way(run.configuration, take_a_while)


@contextmanager
def slowly(
    scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
) -> Iterator[Bench]:
    """Pretend, and take a while for it."""
    yield Bench({run.configuration: pretended_way(run, 0.004) for run in runs})


def pretended(folder: Path, text: str = SMALL) -> ResultsFolder:
    """Return results of pretended runs."""
    results = ResultsFolder(folder / "results")
    run_request(small_request(folder, text), results, open_bench=pretend)
    return results
