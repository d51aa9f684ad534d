"""Scenarios for these tests, in sizes of our own: the scripts do not change with the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spliter_experiments.evaluation import PlannedRun, load_scenario, plan_runs

HISTOGRAM = 'app = "histogram"\ndims = 2\nbins = 3'
KMEANS = 'app = "kmeans"\ndims = 2\nclusters = 2\niterations = 2'

TEXT = """
schema_version = 1
figure = "{figure}"
title = "For tests"
kind = "weak-scaling"
configurations = ["baseline", "spliter"]

[parameters]
{parameters}

[sizes.full]
nodes = [1, 2, 16]
workers_per_node = 2
threads_per_worker = 24
blocks_per_core = [48]
rows_per_block = 1000
repetitions = 3
seconds_per_run = 60

[sizes.laptop]
nodes = [2, 4]
workers_per_node = 1
threads_per_worker = 1
blocks_per_core = [2]
rows_per_block = 100
repetitions = 2
seconds_per_run = 1

[paper]
reading = "none"
source = "none"
"""


def scenario_file(folder: Path, figure: str = "9", parameters: str = HISTOGRAM) -> Path:
    path = folder / f"small{figure}.toml"
    path.write_text(TEXT.format(figure=figure, parameters=parameters), encoding="utf-8")
    return path


def full_runs(folder: Path, nodes: int, repetitions: int = 3) -> list[PlannedRun]:
    """Return runs that are as large as the paper's, with estimates of our own."""
    scenario = load_scenario(str(scenario_file(folder)))
    runs = plan_runs(scenario, "full", nodes=[nodes], repetitions=repetitions, called="9")
    return [replace(run, estimated_seconds=30.0 * (1 + nodes)) for run in runs]
