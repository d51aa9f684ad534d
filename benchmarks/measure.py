"""Compare ways of small computations in interleaved rounds, and print a Markdown table.

A benchmark is a generator of places of the table, their runs, grids and remarks. Its parameters are
options of its command; `rounds` is one of all commands.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from distributed import Client, LocalCluster

from spliter_experiments.harness.runner import Answer, Bench, Check, Way, run_rounds
from spliter_experiments.harness.table import Grid, Run, ratio_grid

Call: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Place:
    """A row of the table: ways by name, the first of which the others are divided by.

    `before` is called before each run, untimed. With `same`, results are compared.
    """

    label: str
    ways: Mapping[str, Call]
    before: Call = lambda: None
    same: Callable[[Any, Any], bool] | None = None

    def way(self, name: str) -> Way:
        """Return a way for the runner; without a check, it keeps no result."""

        def run() -> Answer:
            found = self.ways[name]()
            if isinstance(found, Answer):
                return found
            return Answer(found if self.same else None)

        return Way(name, run, prepare=self.before)

    def runs(self, rounds: int) -> list[Run]:
        """Run all ways in interleaved rounds, after one that does not count."""
        check = Check(self.same) if self.same else Check()
        bench = Bench({name: self.way(name) for name in self.ways}, check)
        planned = {number: [*self.ways] for number in range(1, rounds + 1)}
        found = run_rounds(bench, planned, seed=0)
        runs = [Run((self.label,), one.way, one.round, one.seconds) for one in found]
        return sorted(runs, key=lambda one: [*self.ways].index(one.way))

    def seconds(self, rounds: int) -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {name: [] for name in self.ways}
        for run in sorted(self.runs(rounds), key=lambda one: one.round):
            taken[run.way].append(run.seconds)
        return taken


Benchmark: TypeAlias = Callable[..., Iterator[Place | list[Run] | Grid | str]]

BenchmarkT = TypeVar("BenchmarkT", bound=Benchmark)

BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(function: BenchmarkT) -> BenchmarkT:
    BENCHMARKS[function.__name__.replace("_", "-")] = function
    return function


@contextmanager
def dask_cluster(workers: int = 2, threads: int = 1, **settings: Any) -> Iterator[Client]:
    settings = {"dashboard_address": "127.0.0.1:0", **settings}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, **settings) as cluster,
        Client(cluster) as client,
    ):
        yield client


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = found.add_subparsers(required=True)
    for name, function in BENCHMARKS.items():
        command = commands.add_parser(name, help=inspect.getdoc(function))
        command.set_defaults(benchmark=function)
        command.add_argument("--rounds", type=int, default=7)
        for option in inspect.signature(function).parameters.values():
            if option.name == "rounds":
                continue
            flag, value = f"--{option.name.replace('_', '-')}", option.default
            if isinstance(value, tuple):
                command.add_argument(flag, nargs="+", type=type(value[0]), default=value)
            else:
                command.add_argument(flag, type=type(value), default=value)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    options = vars(parser().parse_args(arguments))
    function, rounds = options.pop("benchmark"), options.pop("rounds")
    if "rounds" in inspect.signature(function).parameters:
        options["rounds"] = rounds
    runs: list[Run] = []
    texts: list[str] = []
    for found in function(**options):
        if isinstance(found, Place):
            runs += found.runs(rounds)
        elif isinstance(found, list):
            runs += found
        else:
            texts += ["", *(found.markdown() if isinstance(found, Grid) else [found])]
    table = ratio_grid(runs, ("",)).markdown() if runs else []
    print("\n".join([*table, *texts]).strip())
