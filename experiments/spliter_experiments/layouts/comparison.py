"""Compare SplIter's packers with MPI libraries, NumPy and numba, in interleaved rounds.

Every way moves the same bytes of a case: answers are checksums of what was packed or unpacked.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from statistics import median
from typing import Final

import numpy as np

from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError, PeerError
from spliter_experiments.harness.facts import Facts, facts
from spliter_experiments.harness.options import parse_ways
from spliter_experiments.harness.records import (
    COMPARE,
    Record,
    digest_of,
    record_of,
)
from spliter_experiments.harness.runner import (
    Answer,
    Bench,
    Contender,
    Judge,
    Measurement,
    run_rounds,
)
from spliter_experiments.harness.table import NONE, Grid, plain, seconds, times
from spliter_experiments.layouts.movers import IN_ONE_PROCESS
from spliter_experiments.layouts.patterns import CASES, OWN_CASES, SIZES, pattern_of
from spliter_experiments.layouts.peers import Peer, started

COMPILED: Final[tuple[str, ...]] = ("llvm", "bound")
"""Ways that are compared with the faster MPI library."""

LIBRARIES: Final = {"mpich": "MPICH", "openmpi": "Open MPI"}
"""Names that the MPI libraries of the peers give themselves."""

MEANINGS: Final = {
    "llvm": "SplIter's packer, compiled",
    "bound": "the same packer, bound to its two buffers",
    "numpy": "SplIter's packer, with NumPy alone",
    "views": "NumPy's functions on views, field by field",
    "numba": "assignments of views, compiled by numba",
    "mpich": "MPICH's own datatype",
    "openmpi": "Open MPI's own datatype",
    "mpich-packed": "bytes packed by SplIter, sent by MPICH",
    "openmpi-packed": "bytes packed by SplIter, sent by Open MPI",
}
"""Ways, and a description of each."""

PACKED: Final = "packed"
"""Way of two ranks; its name follows that of the library that sends."""

OURS: Final = {
    "llvm": "llvmlite",
    "bound": "llvmlite",
    "numpy": "numpy",
    "views": "numpy",
    "numba": "numba",
}
"""Ways in this Python, and the package that each needs."""

PROGRAMS: Final = {"FFT2": "transpose", "MILC_su3_zd": "halo"}
"""Programs of two ranks beside the ping-pong, by the case whose sizes they take."""


@dataclass(frozen=True)
class Subject:
    """A case in one size, and what to do with it."""

    case: str
    size: int
    action: str

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.case} {self.action}"

    @property
    def nbytes(self) -> int:
        """Packed bytes."""
        return pattern_of(self.case, self.size).layout.size

    @property
    def two_ranks(self) -> bool:
        """Whether two ranks exchange the data."""
        return self.action not in IN_ONE_PROCESS


def parse_cases(text: str) -> list[str]:
    """Parse the names of cases; ``all`` selects all, ``ddtbench`` those of DDTBench.

    >>> parse_cases("FFT2,structs")
    ['FFT2', 'structs']
    """
    if text == "ddtbench":
        return [case for case in CASES if case not in OWN_CASES]
    try:
        return list(parse_ways(None if text == "all" else text, tuple(CASES)))
    except OptionError as error:
        raise OptionError(
            f"--case {text!r} is unknown; take all, ddtbench, or some of {', '.join(CASES)}"
        ) from error


def subjects_of(cases: Sequence[str], two_ranks: bool) -> list[Subject]:
    """Return what to measure: cases in all sizes, with their actions in one process or two."""
    found = []
    for case in cases:
        actions = pattern_of(case, 0).actions
        if two_ranks:
            more = (PROGRAMS[case],) if case in PROGRAMS else ()
            actions = ("ping-pong", *more)
        found += [Subject(case, size, action) for action in actions for size in range(SIZES)]
    return found


@dataclass(frozen=True)
class Peers:
    """The running peers by way, with the name of the way in their processes, and versions."""

    by_way: Mapping[str, tuple[Peer, str]]
    versions: Mapping[str, str]

    def ways(self, action: str) -> list[str]:
        """Return the ways that can take an action."""
        # A copy has new memory each time; for numba, a structured array is several views.
        return [way for way in self.by_way if action != "copy" or way not in {"bound", "numba"}]

    def contender(self, way: str, subject: Subject) -> Contender:
        """Return a way as a contender for the runner."""
        peer, inside = self.by_way[way]

        def run() -> Answer:
            found = peer.query(
                way=inside, case=subject.case, size=subject.size, action=subject.action
            )
            return Answer(found["value"], seconds=found["seconds"])

        return Contender(way, run, on_cluster=False)


@contextlib.contextmanager
def started_peers(
    own: str, pythons: Mapping[str, str | None], two_ranks: bool, listener: Listener
) -> Iterator[Peers]:
    """Start the peers; those that cannot be started are left out, with a note of the reason.

    Parameters
    ----------
    own : str
        Python for SplIter, NumPy and numba.
    pythons : mapping of str to str or None
        For each of the `LIBRARIES` the Python of its environment.
    two_ranks : bool
        Whether to start two ranks of each library, and nothing else.
    listener : Listener
        Receives the notes.
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
class Settings:
    """Rounds, seed of the order of the ways, and the command to record."""

    rounds: int
    seed: int
    command: str


def run_subjects(
    subjects: Sequence[Subject], peers: Peers, settings: Settings, listener: Listener
) -> Iterator[Record]:
    """Measure all subjects every way, and yield the records.

    Raises
    ------
    WaysDisagreeError
        If two ways did not move the same bytes.
    PeerError
        If a peer failed.
    """
    here = facts()
    here = replace(here, versions={**here.versions, **peers.versions})
    ways = {subject: peers.ways(subject.action) for subject in subjects}
    listener.begin(sum(map(len, ways.values())) * (settings.rounds + 1))
    for subject in subjects:
        runs = run_rounds(
            Bench(Judge(operator.eq)),
            [peers.contender(way, subject) for way in ways[subject]],
            dict.fromkeys(range(1, settings.rounds + 1), ways[subject]),
            seed=settings.seed,
            step=lambda way, _: listener.step(way, 1),
        )
        for run in runs:
            yield _record(run, subject, here, settings)


def _record(run: Measurement, subject: Subject, here: Facts, settings: Settings) -> Record:
    return record_of(
        run,
        here,
        settings.command,
        run_id=f"layout-{subject.name}-{subject.size}-{run.way}-r{run.round}".replace(" ", "-"),
        figure=COMPARE,
        app=subject.name,
        size="",
        plan_digest=digest_of(asdict(subject)),
        engine="layout",
        configuration=run.way,
        way=run.way,
        nodes=1,
        workers=1,
        threads=1,
        blocks=0,
        blocks_per_core=0.0,
        rows=0,
        queries=0,
        seed=settings.seed,
        x=float(subject.nbytes),
    )


def layout_grid(records: Sequence[Record]) -> Grid:
    """Return a row for each subject: microseconds of each way, and SplIter beside the best MPI."""
    taken: dict[tuple[str, float], dict[str, list[float]]] = {}
    for record in records:
        ways = taken.setdefault((record.app, record.x), {})
        ways.setdefault(record.way, []).append(record.seconds)
    measured = {record.way for record in records}
    names = [way for way in MEANINGS if way in measured]
    ours = [way for way in COMPILED if way in measured] or [PACKED]
    ratios = {
        way: {subject: _mpi_over(way, found) for subject, found in taken.items()} for way in ours
    }

    def row(subject: tuple[str, float]) -> tuple[str, ...]:
        cells = (_microseconds(taken[subject].get(way, ())) for way in names)
        over = (times(ratios[way][subject]) for way in ours)
        return (*subject[0].split(), plain(subject[1]), *cells, *over)

    headings = ("case", "action", "bytes", *names, *(f"MPI over {way}" for way in ours))
    captions = (_caption(way, each.values()) for way, each in ratios.items())
    caption = "\n".join(["times in microseconds: medians, and quartiles below", *captions])
    return Grid(headings, tuple(map(row, taken)), caption.strip()).filled()


def _microseconds(values: Sequence[float]) -> str:
    if not values:
        return NONE
    low, middle, high = map(seconds, 1e6 * np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{middle}\n{low}-{high}"


def _mpi_over(way: str, found: Mapping[str, Sequence[float]]) -> float | None:
    """Divide the median of the faster MPI by that of a way.

    Divide each library's by that of packed bytes that it sends, if that is the way; take the least.
    """
    theirs = {library: median(found[library]) for library in LIBRARIES if library in found}
    own = {library: f"{library}-{PACKED}" if way == PACKED else way for library in theirs}
    return min(
        (
            theirs[library] / median(found[own[library]])
            for library in theirs
            if own[library] in found
        ),
        default=None,
    )


def _caption(way: str, ratios: Iterable[float | None]) -> str:
    known = sorted(ratio for ratio in ratios if ratio is not None)
    if not known:
        return ""
    fast = sum(ratio >= 1 for ratio in known)
    return (
        f"{way} is at least as fast as MPI in {fast} of {len(known)}; the least ratio is "
        f"{known[0]:.2f}, the median {median(known):.2f}"
    )
