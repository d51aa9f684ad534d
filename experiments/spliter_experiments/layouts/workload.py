"""``spliter compare layout``: SplIter's packers next to MPI libraries and NumPy.

Every way moves the same bytes of a pattern: answers are checksums of what was packed or unpacked.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Annotated, ClassVar, Final

import typer

from spliter_experiments.compare.ways import WAYS
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError, PeerError
from spliter_experiments.harness.options import parse_ways, parse_workloads
from spliter_experiments.harness.records import Record
from spliter_experiments.harness.runner import Answer, Bench, Check, Way
from spliter_experiments.harness.table import NONE, TO, Grid, ratio_grid, runs_of, times
from spliter_experiments.harness.workload import Case, Cases, Comparison, Options, Value, Workload
from spliter_experiments.layouts.patterns import CASES, OWN_CASES, SIZES, pattern_of
from spliter_experiments.layouts.peers import Peer, started

COMPILED: Final[tuple[str, ...]] = ("bound", "llvm")
"""Ways that are compared with the faster MPI library."""

LIBRARIES: Final = {"mpich": "MPICH", "openmpi": "Open MPI"}
"""Names that the MPI libraries of the peers give themselves."""

PACKED: Final = "packed"
"""Way of two ranks; its name follows that of the library that sends."""

OURS: Final = {"llvm": "llvmlite", "bound": "llvmlite", "numpy": "numpy", "views": "numpy"}
"""Ways in this Python, and the package that each needs."""


@dataclass(frozen=True)
class Subject:
    """A pattern in one size, and what to do with it."""

    case: str
    size: int
    action: str

    @property
    def name(self) -> str:
        return f"{self.case} {self.action}"

    @property
    def nbytes(self) -> int:
        return pattern_of(self.case, self.size).layout.size


def subjects_of(cases: Sequence[str], two_ranks: bool) -> list[Subject]:
    return [
        Subject(case, size, action)
        for case in cases
        for action in (("ping-pong",) if two_ranks else pattern_of(case, 0).actions)
        for size in range(SIZES)
    ]


@dataclass(frozen=True)
class Peers:
    """The running peers by way, with the name of the way in their processes, and versions."""

    by_way: Mapping[str, tuple[Peer, str]]
    versions: Mapping[str, str]

    def ways(self, action: str) -> list[str]:
        """Return the ways that can take an action."""
        # A copy has new memory each time.
        return [way for way in self.by_way if action != "copy" or way != "bound"]

    def way(self, way: str, subject: Subject) -> Way:
        peer, inside = self.by_way[way]

        def run() -> Answer:
            found = peer.query(
                way=inside, case=subject.case, size=subject.size, action=subject.action
            )
            return Answer(found["value"], seconds=found["seconds"])

        return Way(way, run, on_cluster=False)


@contextlib.contextmanager
def started_peers(
    own: str, pythons: Mapping[str, str | None], two_ranks: bool, listener: Listener
) -> Iterator[Peers]:
    """Start the peers; those that cannot be started are left out, with a note of the reason.

    `own` is the Python for SplIter and NumPy, `pythons` are those of the `LIBRARIES`. For two ranks
    those of each library are started, and nothing else.
    """
    by_way: dict[str, tuple[Peer, str]] = {}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if not two_ranks:
            peer = stack.enter_context(started("SplIter", own))
            for way, needs in OURS.items():
                if find_spec(needs) is None:
                    listener.note(f"{way} is left out: {needs} is not installed")
                else:
                    by_way[way] = peer, way
        for way, library in LIBRARIES.items():
            python = pythons.get(way)
            if python is None:
                listener.note(f"{way} is left out: give the Python of its environment, --{way}")
                continue
            ranks = 2 if two_ranks else 1
            try:
                peer = stack.enter_context(started(library, python, ranks, library))
            except PeerError as error:
                listener.note(f"{way} is left out: {error}")
                continue
            versions[library] = str(peer.greeting["mpi_version"])
            by_way[way] = peer, "mpi"
            if two_ranks:
                by_way[f"{way}-{PACKED}"] = peer, PACKED
        if not by_way:
            raise OptionError("no way is left; give --mpich or --openmpi")
        yield Peers(by_way, versions)


@dataclass(frozen=True)
class Layout(Workload):
    """Pack and unpack data that is not contiguous every way, and show what each took."""

    workload: Annotated[
        str, typer.Option(help=f"Patterns: all, ddtbench, or some of {', '.join(CASES)}.")
    ] = "all"
    mpich: Annotated[
        str | None,
        typer.Option(
            envvar="SPLITER_MPICH",
            help="Python of an environment with NumPy and the packages mpich and mpi4py.",
        ),
    ] = None
    openmpi: Annotated[
        str | None,
        typer.Option(envvar="SPLITER_OPENMPI", help="The same with openmpi instead of mpich."),
    ] = None
    two_ranks: Annotated[
        bool,
        typer.Option(
            help="Exchange the data between two ranks of each MPI, packed by SplIter or by its own "
            "datatypes."
        ),
    ] = False

    name: ClassVar = "layout"
    x: ClassVar = "bytes"

    def patterns(self) -> tuple[str, ...]:
        """Return the names of the patterns.

        >>> Layout("FFT2,structs").patterns()
        ('FFT2', 'structs')
        """
        if self.workload == "ddtbench":
            return tuple(case for case in CASES if case not in OWN_CASES)
        return parse_workloads(self.workload, CASES)

    def cases(self, options: Options, listener: Listener, command: str) -> Cases:
        chosen = parse_ways(options.ways, WAYS["layout"])
        subjects = subjects_of(self.patterns(), self.two_ranks)
        pythons = {"mpich": self.mpich, "openmpi": self.openmpi}
        with started_peers(sys.executable, pythons, self.two_ranks, listener) as peers:
            ways = {
                subject: tuple(way for way in peers.ways(subject.action) if way in chosen)
                for subject in subjects
            }
            listener.begin(sum(map(len, ways.values())) * (options.rounds + 1))
            for subject in subjects:
                yield case_of(subject, ways[subject], peers, options, command)

    def title(self, found: Comparison) -> str:
        return "first way: seconds; others: how many times as long (quartiles of the rounds)"

    def grid(self, found: Comparison) -> Grid:
        bases = ("llvm", "bound", *packed_ways())
        return ratio_grid(runs_of(found.records), ("pattern", self.x), bases)

    def overview(self, found: Sequence[Comparison]) -> Sequence[Grid]:
        return [over_grid(one.records) for one in found if {*LIBRARIES} & {*one.ways}]


def case_of(
    subject: Subject, ways: tuple[str, ...], peers: Peers, options: Options, command: str
) -> Case:
    bench = Bench({way: peers.way(way, subject) for way in ways}, Check(operator.eq))
    about: dict[str, Value] = {"case": subject.case, "size": subject.size, "action": subject.action}
    return Case(
        label=str(subject.size),
        columns={
            "app": subject.name,
            "size": "",
            "engine": "layout",
            "nodes": 1,
            "workers": 1,
            "threads": 1,
            "blocks": 0,
            "blocks_per_core": 0.0,
            "rows": 0,
            "seed": options.seed,
            "x": float(subject.nbytes),
        },
        about={**about, "command": command, "rounds": options.rounds},
        ways=ways,
        rounds=options.numbers,
        seed=options.seed,
        open=lambda: nullcontext(bench),
        versions=peers.versions,
    )


def packed_ways() -> list[str]:
    return [f"{library}-{PACKED}" for library in LIBRARIES]


def over_grid(records: Sequence[Record]) -> Grid:
    """Return a row for each pattern: the faster MPI library over each way of SplIter.

    Cells are the least and the largest of sizes and actions, of the medians of the rounds. Packed
    bytes that a library sends are compared with its own datatypes.
    """
    ours = [way for way in (*COMPILED, *packed_ways()) if any(one.way == way for one in records)]
    ratios = {
        pattern: [[_mpi_over(way, found) for found in places] for way in ours]
        for pattern, places in _taken(records).items()
    }
    captions = []
    for at, way in enumerate(ours):
        known = [ratio for each in ratios.values() for ratio in each[at] if ratio is not None]
        if known:
            fast = sum(ratio >= 1 for ratio in known)
            captions.append(f"{way}: at least as fast as MPI in {fast} of {len(known)} cases")
    rows = tuple((pattern, *map(_span, each)) for pattern, each in ratios.items())
    headings = ("pattern", *(f"MPI over {way}" for way in ours))
    return Grid(headings, rows, "\n".join(captions)).filled()


def span_grid(records: Sequence[Record], base: str) -> Grid:
    ways = list(dict.fromkeys(one.way for one in records if one.way != base))
    rows = []
    for pattern, places in _taken(records).items():
        medians = [{way: median(taken) for way, taken in found.items()} for found in places]
        over = (
            [found[way] / found[base] if {way, base} <= {*found} else None for found in medians]
            for way in ways
        )
        rows.append((pattern, *map(_span, over)))
    return Grid((f"over {base}", *ways), tuple(rows))


def _taken(records: Sequence[Record]) -> dict[str, list[dict[str, list[float]]]]:
    found: dict[tuple[str, float], dict[str, list[float]]] = {}
    for one in records:
        found.setdefault((one.app, one.x), {}).setdefault(one.way, []).append(one.seconds)
    taken: dict[str, list[dict[str, list[float]]]] = {}
    for (app, _), ways in found.items():
        taken.setdefault(app.split()[0], []).append(ways)
    return taken


def _span(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{times(min(known))}{TO}{times(max(known))}" if known else NONE


def _mpi_over(way: str, found: Mapping[str, Sequence[float]]) -> float | None:
    """Divide the least median of the MPI libraries by that of a way."""
    library = way.removesuffix(f"-{PACKED}")
    theirs = [library] if library in LIBRARIES else [*LIBRARIES]
    known = [median(found[one]) for one in theirs if one in found]
    return min(known) / median(found[way]) if known and way in found else None
