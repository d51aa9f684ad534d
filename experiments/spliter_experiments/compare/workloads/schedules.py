"""``spliter compare schedules``: process uneven blocks, cut by several schedules."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Final

import numpy as np

from spliter import Schedule, Split, reduce
from spliter_experiments.compare.data.arranged import Shuffled
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.data.uneven import (
    WORKLOADS,
    Items,
    UnevenItems,
    Workload,
    burn,
    sines_per_second,
)
from spliter_experiments.compare.engines.engine import Engine, result_of
from spliter_experiments.compare.ways import IDEAL, JOBLIB, NUMBA, SCHEDULED, WAYS
from spliter_experiments.compare.workloads.workload import App, Parts, Site, Way
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.runner import Answer, Contender

ORDERS: Final = (None, "contiguous", "strided")

PIP: Final = 'pip install "pyspliter[schedules]"'


@dataclass(frozen=True)
class Work:
    """What is done to each block.

    Parameters
    ----------
    name : str
        Name of the workload.
    effort : float
        Sines or seconds for one unit of cost of a simulated or emulated item.
    order : {"contiguous", "strided"} or None
        Order of the schedules.
    """

    name: str
    effort: float
    order: str | None = None

    @property
    def workload(self) -> Workload:
        """The workload, of the process that runs it."""
        return WORKLOADS[self.name]


def process_block(block: Items, work: Work) -> int:
    """Process one block."""
    return work.workload.kernel(block, work.effort)


def process_blocks(blocks: Iterable[Items], work: Work) -> int:
    """Process several blocks, one after the other."""
    return sum(process_block(block, work) for block in blocks)


def in_tasks(partitions: Split, work: Work) -> Answer:
    """Run one task per partition."""
    return Answer(result_of(reduce(operator.add, partitions.map(process_blocks, work))))


def in_teams(partitions: Split, work: Work) -> Answer:
    """Run one task per location, with a team of threads."""
    return Answer(result_of(partitions.map_reduce(process_blocks, operator.add, work)))


def scheduled(run: Callable[[Split, Work], Answer], kind: str | None) -> Way:
    """Return the way that splits by a schedule."""

    def way(site: Site[Engine], work: Work) -> Answer:
        schedule = kind and Schedule(kind, order=work.order)  # type: ignore[arg-type]
        with site.split(site.array, schedule=schedule) as partitions:
            return run(partitions, work)

    return way


def third_pass(site: Site[Engine], work: Work) -> Answer:
    """Run three passes over one Split with schedule AUTO; the seconds are those of the last."""
    with site.split(site.array, schedule=Schedule("AUTO", order=work.order)) as partitions:  # type: ignore[arg-type]
        for _ in range(3):
            start = time.perf_counter()
            answer = in_tasks(partitions, work)
        return replace(answer, seconds=time.perf_counter() - start)


def process_in_threads(blocks: list[Items], work: Work, threads: int) -> int:
    """Process blocks with joblib; in threads, because processes would get copies of the blocks."""
    from joblib import Parallel, delayed

    calls = (delayed(process_block)(block, work) for block in blocks)
    return sum(Parallel(n_jobs=threads, prefer="threads")(calls))


def process_compiled(blocks: list[Items], work: Work, threads: int) -> int:
    """Process blocks with numba."""
    assert work.workload.compiled is not None
    return int(work.workload.compiled()(np.concatenate(blocks)[:, 0]))


def process_timed(blocks: list[Items], work: Work, threads: int) -> tuple[int, float]:
    """Return the result of blocks and the seconds that they took."""
    clock = work.workload.clock
    start = clock()
    return process_blocks(blocks, work), clock() - start


IN_PROCESSES: dict[str, Callable[[list[Items], Work, int], Any]] = {
    JOBLIB: process_in_threads,
    NUMBA: process_compiled,
    IDEAL: process_timed,
}


@dataclass(frozen=True)
class Schedules(App[Work]):
    """Comparison of schedules."""

    workload: str = "simulated"
    ms: float = 1.0
    shuffle: bool = False
    order: str | None = None

    name: ClassVar = "schedules"
    ways: ClassVar = WAYS["schedules"]
    on_request: ClassVar = ("mfsc", "fiss", "tss")
    split_ways: ClassVar = {
        "spliter": scheduled(in_tasks, None),
        **{kind: scheduled(in_tasks, kind) for kind in SCHEDULED},
        "fac2-team": scheduled(in_teams, "FAC2"),
        "ss-team": scheduled(in_teams, "SS"),
        "auto": third_pass,
    }

    def __post_init__(self) -> None:
        if self.workload not in WORKLOADS:
            raise OptionError(
                f"--workload {self.workload!r} is unknown; take one of {', '.join(WORKLOADS)}"
            )
        needs = WORKLOADS[self.workload].needs
        if needs and find_spec(needs) is None:
            raise OptionError(f"--workload {self.workload} needs {needs}: {PIP}")
        if not 0 < self.ms < np.inf:
            raise OptionError(f"--ms must be positive, got {self.ms}")
        if self.order not in ORDERS:
            raise OptionError(f"--order must be contiguous or strided, got {self.order!r}")

    @contextmanager
    def open(self, choice: InputChoice) -> Iterator[Dataset]:
        """Make items; none are read from an input."""
        if choice.source is not None:
            raise OptionError("--input does not go with schedules; take a --workload")
        items = UnevenItems(choice.rows, 1, choice.seed, self.workload)
        points = Shuffled(items, choice.seed) if self.shuffle else items
        yield Dataset(points, like=items.read(0, 0))

    def absent(self) -> Mapping[str, str]:
        """Return the reason if numba cannot run this workload."""
        if WORKLOADS[self.workload].compiled is None:
            return {NUMBA: f"it cannot compile --workload {self.workload}"}
        return {} if find_spec("numba") else {NUMBA: f"it is not installed; {PIP}"}

    def pose(self, site: Site[Engine]) -> Work:
        """Return the work, after measuring how fast this machine is."""
        sines = sines_per_second() if WORKLOADS[self.workload].kernel is burn else 1.0
        return Work(self.workload, sines * self.ms / 1000, self.order)

    @staticmethod
    def by_parts(parts: Parts, work: Work) -> Answer:
        """Run one task per part, then a tree of sums."""
        return Answer(parts.merge(sum, parts.call(process_block, work=work)))

    def in_processes(self, way: str, site: Site[Engine], work: Work) -> Contender:
        """Return the contender for a way in plain processes.

        The ideal gets the items in random order: its processes compute until the end, all of them,
        as the cores of a perfect schedule do.
        """
        processes = site.floor if way == IDEAL else site.machine
        assert processes is not None
        points, cores = site.dataset.points, site.engine.cores
        source = Shuffled(points, seed=0) if way == IDEAL else points

        def run() -> Answer:
            found = processes.call(IN_PROCESSES[way], work, cores)
            if way != IDEAL:
                return Answer(*found)
            values, seconds = zip(*found, strict=True)
            return Answer(sum(values), seconds=sum(seconds) / cores)

        return Contender(
            way,
            run,
            prepare=lambda: processes.load(source, site.row_chunks),
            release=processes.drop,
            on_cluster=False,
        )

    def same(self, left: int, right: int) -> bool:
        """Return whether results are equal."""
        return left == right

    def detail(self) -> str:
        """Return the order of the items, and of the schedules if it is given."""
        items = "in random order" if self.shuffle else "dear ones first"
        return items if self.order is None else f"{items}, {self.order}"
