"""``spliter compare ahead``: programs that follow references to records, in each way."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, ClassVar

import typer

from spliter_experiments.ahead.programs import (
    ASYNCHRONOUS,
    MAKE,
    SYNCHRONOUS,
    FoundError,
    Program,
)
from spliter_experiments.ahead.servers import Store, opened
from spliter_experiments.compare.ways import WAYS
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.options import parse_ways, parse_workloads
from spliter_experiments.harness.runner import Answer, Bench, Check, Reading, Way
from spliter_experiments.harness.table import Grid, ratio_grid, runs_of
from spliter_experiments.harness.workload import Case, Cases, Comparison, Options, Value, Workload

BASE = "map"
"""Way that the others are divided by."""


@dataclass(frozen=True)
class Ahead(Workload):
    """Read records that only the program can name every way, and show what each took."""

    workload: Annotated[
        str,
        typer.Option(
            help=f"Programs, between commas, or all: {', '.join(MAKE)}. Numbers are those of the "
            "reads, and of the records in the longest chain of references."
        ),
    ] = "all"
    server: Annotated[
        str,
        typer.Option(
            help="redis or http, which are started, or the URL of a Redis server or of a database "
            "of SQLAlchemy with an account that may make a table."
        ),
    ] = "redis"
    latency: Annotated[float, typer.Option(help="Milliseconds that each request is delayed.")] = 5.0

    name: ClassVar = "ahead"
    x: ClassVar = "reads"

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= 10_000:
            raise OptionError(f"--latency must be from 0 to 10000, got {self.latency:g}")

    @property
    def subject(self) -> str:
        return self.workload

    def each(self) -> list[Ahead]:
        return [replace(self, workload=one) for one in parse_workloads(self.workload, MAKE)]

    def title(self, found: Comparison) -> str:
        return f"{self.workload}: {MAKE[self.workload]().meaning}"

    def grid(self, found: Comparison) -> Grid:
        grid = super().grid(found).without(self.x, "runs", "lower quart.", "upper quart.")
        named = ("requests" if one == "tasks" else one for one in grid.headings)
        return replace(grid, headings=tuple(named)).without("init", "iterate")

    def overview(self, found: Sequence[Comparison]) -> list[Grid]:
        """Return how many times as long the other ways take, if several programs ran."""
        records = [record for one in found for record in one.records]
        grid = ratio_grid(runs_of(records), ("program", self.x), (BASE,))
        return [grid] if len(found) > 1 else []

    def cases(self, options: Options, listener: Listener, command: str) -> Cases:
        """Yield the only case of a program."""
        program = MAKE[self.workload]()
        ways = parse_ways(options.ways, WAYS["ahead"])
        if "dataloader" in ways and find_spec("aiodataloader") is None:
            listener.note("dataloader is left out: pip install aiodataloader")
            ways = tuple(way for way in ways if way != "dataloader")
        listener.begin((options.rounds + 1) * len(ways))
        about: dict[str, Value] = {
            "workload": self.workload,
            "server": self.server.rpartition("@")[2],
            "latency": self.latency,
        }
        reads = len(program.records)
        yield Case(
            label=self.workload,
            columns={
                "app": self.name,
                "size": self.workload,
                "engine": "process",
                "nodes": 1,
                "workers": 1,
                "threads": 1,
                "blocks": 0,
                "blocks_per_core": 0.0,
                "rows": reads,
                "seed": options.seed,
                "x": float(reads),
            },
            about={**about, "command": command, "rounds": options.rounds},
            ways=ways,
            rounds=options.numbers,
            seed=options.seed,
            open=lambda: self._bench(program, ways),
        )

    @contextmanager
    def _bench(self, program: Program, ways: tuple[str, ...]) -> Iterator[Bench]:
        with (
            asyncio.Runner() as loop,
            opened(self.server, program.records, program.max_batch, self.latency / 1000) as store,
        ):
            made = {way: Way(way, run_of(way, program, store, loop)) for way in ways}

            def reading() -> Reading:
                return Reading(store.source.nrequests, None)

            yield Bench(made, Check(operator.eq), reading)
            loop.run(store.close())


def run_of(way: str, program: Program, store: Store, loop: asyncio.Runner) -> Callable[[], Answer]:
    """Return a function that runs a program in a way."""

    def run() -> Answer:
        try:
            if way in SYNCHRONOUS:
                return Answer(SYNCHRONOUS[way](program, store.source))
            return Answer(loop.run(ASYNCHRONOUS[way](program, store.fetch)))
        except FoundError as found:
            return Answer(str(found))

    return run
