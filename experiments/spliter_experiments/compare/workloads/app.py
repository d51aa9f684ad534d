"""Base class of the apps: workloads that run on a cluster, on loaded blocks of rows."""

from __future__ import annotations

import functools
import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from spliter_experiments.compare.baseline import Baseline, start_baseline
from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.datasets import InputChoice, open_points
from spliter_experiments.compare.data.sources import Dataset, Rows, cut_rows
from spliter_experiments.compare.engines.engine import Engine, EngineKind, Placement
from spliter_experiments.compare.options import ClusterOptions, PointsOptions
from spliter_experiments.compare.registry import load_engine
from spliter_experiments.compare.ways import FLOOR, OFF_CLUSTER, SKLEARN
from spliter_experiments.compare.workloads.site import Loaded, Parts, Site, loaded
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError
from spliter_experiments.harness.options import parse_ways
from spliter_experiments.harness.runner import Answer, Bench, Check, Way
from spliter_experiments.harness.table import Grid
from spliter_experiments.harness.workload import Case, Cases, Comparison, Value, Workload

Solver: TypeAlias = Callable[[Any, Any], Answer]
"""Called with a site and a problem."""


@dataclass(frozen=True)
class Ways:
    """Ways of one app on one engine; those in `own` exist only there.

    Given the engine, `absent` returns the ways that cannot run on this cluster, with the reasons.
    """

    run: Mapping[str, Solver]
    own: tuple[str, ...] = ()
    absent: Callable[[Any], Mapping[str, str]] = field(default=lambda _: {})


ProblemT = TypeVar("ProblemT")

NOT_ASKED = object()
"""Placeholder for a problem that the app has not posed yet."""


@dataclass
class _Subject:
    """A data set, the problem posed on it, and the check of its answers."""

    dataset: Dataset
    check: Check
    problem: Any = NOT_ASKED


class App(Workload, Generic[ProblemT]):
    """A computation on a cluster: poses the problem, runs it in several ways, compares answers."""

    shared: ClassVar[type[ClusterOptions]] = PointsOptions
    x: ClassVar = "blocks / core"
    is_plotted: ClassVar = True
    ways: ClassVar[tuple[str, ...]]
    """Ways of this app on any engine, in the order of the tables."""
    split_ways: ClassVar[Mapping[str, Solver]]
    """Ways that use SplIter, the same on every engine."""
    off_cluster: ClassVar[Mapping[str, Callable[[Baseline, Any], Answer]]] = {}
    """Ways in plain processes."""
    about: ClassVar[str] = ""
    """Format of the settings in the title."""

    def open(self, choice: InputChoice) -> Dataset:
        return Dataset(open_points(choice))

    def loaded(
        self,
        engine: Engine,
        dataset: Dataset,
        row_chunks: Sequence[int],
        placement: Placement,
        **others: Any,
    ) -> AbstractContextManager[Loaded]:
        return loaded(engine, dataset, row_chunks, placement, **others)

    def checking(self) -> Check:
        return Check(self.same)

    def check(self, dataset: Dataset) -> None:
        """Raise an :class:`.errors.ExperimentError` if the data do not suit this app."""

    @abstractmethod
    def pose(self, site: Site[Engine]) -> ProblemT:
        """Return the problem; it must not depend on the blocks."""

    @staticmethod
    def by_parts(parts: Parts, problem: Any) -> Answer:
        """Solve the problem with a task for each part; for apps with ways such as ``per-block``."""
        # Not abstract: never called for an app without such ways.
        raise NotImplementedError

    def aligned(self, way: str, dataset: Dataset) -> Sequence[Rows]:
        """Return the rows that a way off the cluster needs beside the points."""
        return ()

    def in_processes(self, way: str, site: Site[Engine], problem: ProblemT) -> Way:
        """Return a way off the cluster."""
        solve = self.off_cluster[way]
        return site.way_in_processes(
            way, lambda them: solve(them, problem), *self.aligned(way, site.dataset)
        )

    @abstractmethod
    def same(self, left: Any, right: Any) -> bool:
        """Return whether two answers are equal."""

    def detail(self) -> str:
        """Return the settings as shown in the title."""
        return self.about.format(**self.settings())

    def launch(self, options: ClusterOptions, arguments: Sequence[str]) -> int | None:
        launch = load_engine(options.backend).launcher()
        return None if launch is None else launch(options.cluster, arguments)

    def title(self, found: Comparison) -> str:
        about = found.about
        columns = about["columns"]
        assert isinstance(columns, list)
        blocks = ", ".join(f"{place:g}" for place in sorted({one.x for one in found.records}))
        sets = f" on each of {about['datasets']} sets" if about["datasets"] != 1 else ""
        return (
            f"{found.app} of {about['input']}: {about['rows']:,} x {len(columns)}, "
            f"{self.detail()}\n{about['backend']}: {about['workers']} workers, "
            f"{about['cores']} cores, {blocks} blocks per core, placement {about['placement']}, "
            f"{found.rounds()} rounds{sets}"
        )

    def grid(self, found: Comparison) -> Grid:
        grid = super().grid(found).without("runs", "init", "iterate", "split")
        several = len({one.x for one in found.records}) > 1
        return grid if several else grid.without(self.x)

    def cases(self, options: Any, listener: Listener, command: str) -> Cases:
        """Yield a case for each number of blocks per core and each data set.

        All data sets have the same number of rows, and round numbers continue from one to the next.
        """
        kind = load_engine(options.backend)
        kind.check(options.placement)
        chosen = None if options.ways is None else parse_ways(options.ways, ways_on(kind, self))
        with ExitStack() as stack:
            datasets = [self.open(choice) for choice in options.inputs()]
            points = datasets[0].points
            _note_columns(points.columns, listener)
            for dataset in datasets:
                self.check(dataset)
            if options.address is None:  # its size is known before it is started
                started = options.workers * options.threads
                cut_rows(points.rows, max(options.blockings) * started)
            listener.step("starting the cluster", 0)
            engine = stack.enter_context(kind.connect(options.cluster))
            ways = self._ways_here(kind, chosen, engine, listener)
            processes = {}
            if FLOOR in ways:
                processes["floor"] = stack.enter_context(start_baseline(engine.cores))
            if SKLEARN in ways:
                machine = start_baseline(1, threads=engine.cores)
                processes["machine"] = stack.enter_context(machine)
            meter, empty = stack.enter_context(engine.meter()), engine.idle_state()
            subjects = [_Subject(dataset, self.checking()) for dataset in datasets]
            about: dict[str, Value] = {
                "command": command,
                "input": points.origin,
                "rows": points.rows,
                "columns": [*points.columns.names],
                **self.settings(),
                "backend": kind.name,
                "placement": options.placement.value,
                "cluster": options.address or "embedded",
                "workers": engine.workers,
                "cores": engine.cores,
                "rounds": options.rounds,
                "datasets": len(datasets),
                "seed": options.seed,
            }
            listener.begin(
                len(options.blockings) * len(datasets) * (options.rounds + 1) * len(ways)
            )
            solvers = ways_of(kind, type(self)).run

            @contextmanager
            def opened(subject: _Subject, row_chunks: Sequence[int]) -> Iterator[Bench]:
                listener.step(f"loading {len(row_chunks)} blocks", 0)
                empty.wait()  # the blocks of the last one go before the new ones come
                with self.loaded(
                    engine, subject.dataset, row_chunks, options.placement, **processes
                ) as data:
                    if subject.problem is NOT_ASKED:
                        subject.problem = self.pose(data.site)
                    yield Bench(
                        {way: self.way(way, solvers, data.site, subject.problem) for way in ways},
                        subject.check,
                        meter.reading,
                        data.idle.wait,
                    )

            for per_core in options.blockings:
                row_chunks = cut_rows(points.rows, per_core * engine.cores)
                for number, subject in enumerate(subjects):
                    first = number * options.rounds
                    held_out = subject.dataset.held_out
                    yield Case(
                        label=f"b{per_core}",
                        columns={
                            "app": self.name,
                            "size": self.subject,
                            "engine": kind.name,
                            "nodes": engine.workers,
                            "workers": engine.workers,
                            "threads": engine.cores // engine.workers,
                            "blocks": len(row_chunks),
                            "blocks_per_core": float(per_core),
                            "rows": points.rows,
                            "queries": 0 if held_out is None else held_out.rows,
                            "seed": options.seed,
                            "x": float(per_core),
                        },
                        about=about,
                        ways=ways,
                        rounds=range(first + 1, first + options.rounds + 1),
                        seed=options.seed + number,
                        open=functools.partial(opened, subject, row_chunks),
                    )

    def way(
        self, name: str, solvers: Mapping[str, Solver], site: Site[Any], problem: ProblemT
    ) -> Way:
        if name in OFF_CLUSTER:
            return self.in_processes(name, site, problem)
        return Way(name, lambda: solvers[name](site, problem))

    def _ways_here(
        self, kind: EngineKind, chosen: tuple[str, ...] | None, engine: Engine, listener: Listener
    ) -> tuple[str, ...]:
        """Drop ways that are not installed, and local processes if the workers are elsewhere."""
        absent = dict(ways_of(kind, type(self)).absent(engine))
        if not engine.is_on_this_machine():
            absent |= dict.fromkeys(
                OFF_CLUSTER, "needs workers on the machine where this command runs"
            )
        if chosen is not None:
            for way in chosen:
                if way in absent:
                    raise OptionError(f"--ways {way}: {absent[way]}")
            return chosen
        known = ways_on(kind, self)
        for way in known:
            if way in absent:
                listener.note(f"{way} is left out: {absent[way]}")
        return tuple(way for way in known if way not in absent)


def _note_columns(chosen: Columns, listener: Listener) -> None:
    if len(chosen) < chosen.numeric:
        listener.note(
            f"columns: {', '.join(chosen.names)} ({len(chosen)} of {chosen.numeric} numeric ones; "
            "choose with --columns)"
        )


def per_block(app: type[App[Any]]) -> Solver:
    def run(site: Site[Any], problem: Any) -> Answer:
        parts = Parts(site.engine, site.array, site.labels, site.row_chunks, site.queries)
        return app.by_parts(parts, problem)

    return run


def ways_of(kind: EngineKind, app: type[App[Any]]) -> Ways:
    """Return the ways of an app on an engine: SplIter's, ``per-block``, and the engine's own.

    >>> from spliter_experiments.compare.workloads.sums import Sum
    >>> list(ways_of(load_engine("dask"), Sum).run)
    ['spliter', 'per-block', 'rechunk-p2p', 'rechunk-tasks', 'dask']
    """
    common = {**app.split_ways, "per-block": per_block(app)}
    if kind.own_ways is None:
        return Ways(common)
    own: Ways = importlib.import_module(kind.own_ways).ways(app)
    return Ways({**common, **own.run}, own.own, own.absent)


def ways_on(kind: EngineKind, app: App[Any]) -> tuple[str, ...]:
    """Return the names of the ways of an app on an engine, in the order of the tables.

    Ways of this engine alone come after the common ones and before those off the cluster.
    """
    table = ways_of(kind, type(app))
    on_cluster = [way for way in app.ways if way in table.run]
    off_cluster = [way for way in app.ways if way in OFF_CLUSTER]
    return (*on_cluster, *table.own, *off_cluster)
