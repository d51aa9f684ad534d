"""``spliter compare pipeline``: run the variants of programs in this process."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

import typer

from spliter_experiments.compare.ways import WAYS
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.equal import same
from spliter_experiments.harness.errors import MissingLibraryError, OptionError
from spliter_experiments.harness.options import parse_ways, parse_workloads
from spliter_experiments.harness.runner import Answer, Bench, Check, Way
from spliter_experiments.harness.table import Grid
from spliter_experiments.harness.workload import Case, Cases, Comparison, Options, Value, Workload
from spliter_experiments.pipelines.catalog import CATALOG
from spliter_experiments.pipelines.names import PROGRAMS
from spliter_experiments.pipelines.variants import OURS, PLAIN, Entry, cores

PIP: Final = 'pip install "pyspliter[pipelines]"'

NOT_WRITTEN: Final = "the program is not written for it"

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
"""Parameters of glibc's ``mallopt``, from its ``malloc.h``."""


@dataclass(frozen=True)
class Pipeline(Workload):
    """Run programs of NumPy, pandas and other libraries as they are, and as pipelines.

    All ways run in this process, with as many threads as it has cores.
    """

    workload: Annotated[
        str,
        typer.Option(
            help="One, several between commas, or all. "
            f"{'; '.join(f'{name}: {meaning}' for name, meaning in PROGRAMS.items())}."
        ),
    ] = "black-scholes"
    rows: Annotated[int | None, typer.Option(min=1, help="Rows, in place of the default.")] = None

    name: ClassVar = "pipeline"
    x: ClassVar = "rows"

    @property
    def subject(self) -> str:
        return self.workload

    @property
    def entry(self) -> Entry:
        return CATALOG[self.workload]

    def each(self) -> list[Pipeline]:
        return [replace(self, workload=one) for one in parse_workloads(self.workload, CATALOG)]

    def title(self, found: Comparison) -> str:
        first = found.records[0]
        meaning = PROGRAMS.get(self.workload, "")
        return f"{self.workload}: {meaning}; {first.rows:,} rows, {first.threads} cores"

    def grid(self, found: Comparison) -> Grid:
        return super().grid(found).without("rows", "runs", "init", "iterate")

    def cases(self, options: Options, listener: Listener, command: str) -> Cases:
        """Yield the only case: every answer is compared with that of `PLAIN`."""
        retain_memory()
        chosen = None if options.ways is None else parse_ways(options.ways, WAYS["pipeline"])
        rows = self.entry.rows if self.rows is None else self.rows
        ways = self._ways(rows, options.seed, chosen, listener)
        check = Check(lambda first, other: same(first[1], other[1], exact=other[0]))
        listener.begin((options.rounds + 1) * len(ways))
        about: dict[str, Value] = {
            "command": command,
            "workload": self.workload,
            "rows": rows,
            "seed": options.seed,
        }
        yield Case(
            label=self.workload,
            columns={
                "app": self.name,
                "size": self.workload,
                "engine": "process",
                "nodes": 1,
                "workers": 1,
                "threads": cores(),
                "blocks": 1,
                "blocks_per_core": 1 / cores(),
                "rows": rows,
                "seed": options.seed,
                "x": float(rows),
            },
            about={**about, "command": command, "rounds": options.rounds},
            ways=tuple(ways),
            rounds=options.numbers,
            seed=options.seed,
            open=lambda: nullcontext(_checked(Bench(ways, check))),
        )

    def _ways(
        self, rows: int, seed: int, chosen: tuple[str, ...] | None, listener: Listener
    ) -> dict[str, Way]:
        """Prepare the ways; leave out those whose libraries are missing.

        `PLAIN` is always among them: the answers of the others are compared with its own.
        """
        try:
            arguments = self.entry.make(rows, seed)
            found = {PLAIN: self._way(PLAIN, arguments)}
        except ModuleNotFoundError as error:
            raise MissingLibraryError(
                f"--workload {self.workload} needs more: {error}; {PIP}"
            ) from error
        there, absent = self.entry.ways, self.entry.absent
        for way in chosen or dict.fromkeys([*there, *absent]):
            if way not in there or way in absent:
                listener.note(f"{way} is left out: {absent.get(way, NOT_WRITTEN)}")
                continue
            try:
                found[way] = self._way(way, arguments)
            except ModuleNotFoundError as error:
                if chosen is not None:
                    raise OptionError(f"--ways {way}: {error}; {PIP}") from error
                listener.note(f"{way} is left out: {error}; {PIP}")
        return found

    def _way(self, way: str, arguments: Sequence[Any]) -> Way:
        run = self.entry.ways[way](*arguments)
        exact = way == PLAIN or (way == OURS and self.entry.exact)
        return Way(way, lambda: Answer((exact, run())), on_cluster=False)


def _checked(bench: Bench) -> Bench:
    """Run `PLAIN` once, so that its answer is the first one."""
    bench.check.check_equal(PLAIN, bench.ways[PLAIN].run().value)
    return bench


def retain_memory() -> None:
    """Tell glibc to keep memory that is freed, for all ways alike.

    Else each large temporary of NumPy is new memory that the system clears page by page, which
    takes longer than the arithmetic, and differs from one system to the next. A new thread may
    take an arena that has kept nothing yet; with one per core it takes one that others used.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
        libc.mallopt(M_ARENA_MAX, cores())
