"""Draw a case from a seed: which application, how the data lies, which faults at what time.

The same seed gives the same case on every machine. The outcome also depends on the machine's speed:
a fault 0.2 s after the start hits whatever is running then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

BACKENDS: Final = ("dask", "dataclay")

APPS: Final = ("histogram", "k-means", "cascade-svm", "neighbours", "map-reduce")

GRAPHS: Final = "graphs"
"""Programs of Dask under `partitioned()`: for Dask alone, so drawn only on request."""

WORKERS: Final = 3
"""Workers, or backends, at the start of every run."""

GROUP: Final = 25
"""Consecutive seeds that share a cluster: with nannies, then without, and so on."""

SPAN: Final = 0.8
"""Seconds from the start of a program in which faults begin."""

KINDS: Final[Mapping[str, Mapping[str, float]]] = {
    "dask": {
        "kill": 3,  # SIGKILL to a worker's process
        "freeze": 2,  # SIGSTOP, and SIGCONT later
        "pause": 2,  # the worker takes no new tasks for a while, as when its memory is full
        "spill": 2,  # all data of a worker go to disk
        "retire": 1,  # a worker hands its data on and leaves
        "add": 1,  # a worker joins
        "rebalance": 1,
        "replicate": 1,
        "move": 2,  # all data of a worker go to another, as the memory manager would do it
        "cancel-blocks": 0.7,
        "cancel-tasks": 1,
        "cut-client": 0.7,  # the connection between client and scheduler breaks
        "slow-links": 1,  # what other workers exchange with one takes longer
        "cut-links": 1,  # connections to a worker break, and it refuses new ones for a while
    },
    "dataclay": {
        "kill": 1,  # SIGKILL to a backend's process
        "freeze": 2,
        "move": 4,  # some of the blocks go to other backends
        "add": 0.3,
    },
}
"""Kinds of faults of each engine, and how often they are drawn relative to each other."""

LINK_KINDS: Final = ("slow-links", "cut-links")
"""Need a proxy before each worker, which workers that a nanny starts do not have."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to the cluster, `at` seconds after the start of the program.

    It lasts `seconds`, if its kind lasts; `target`, modulo their number, says which of the workers
    or blocks of that moment it hits.
    """

    kind: str
    at: float
    target: int
    seconds: float


@dataclass(frozen=True)
class Case:
    """One run: an application on blocks of these heights at these workers, and its faults.

    `places` has the worker of each block of the points, `further_places` of the labels. Dask's
    `nannies` start workers again; it cannot make `scattered` blocks again. With `as_split` the
    program uses one Split in all rounds; else it hands the collections to the application.
    """

    seed: int
    backend: str
    app: str
    rows: tuple[int, ...]
    places: tuple[int, ...]
    further_places: tuple[int, ...]
    nannies: bool
    scattered: bool
    as_list: bool
    as_split: bool
    materialize: bool | Literal["auto"]
    schedule: str | None
    partitions_per_location: int | None
    faults: tuple[Fault, ...]
    prefetch: int | Literal["auto", False]


def draw_case(backend: str, seed: int, app: str = "") -> Case:
    """Return the case of a seed, with its own application or a given one."""
    rng = np.random.default_rng([seed, BACKENDS.index(backend)])
    app = app or APPS[seed % len(APPS)]
    most_rows, most_blocks = (400, 16) if app == "cascade-svm" else (3000, 40)
    n_blocks = int(rng.integers(1, most_blocks + 1))
    n_rows = int(rng.integers(most_rows // 3, most_rows + 1))
    schedule = [None, "SS", "FAC2", "guided"][int(rng.integers(4))]
    nannies = backend == "dask" and seed // GROUP % 2 == 0
    return Case(
        seed=seed,
        backend=backend,
        app=app,
        rows=_heights(rng, n_rows, n_blocks),
        places=_numbers(rng, WORKERS, n_blocks),
        further_places=_numbers(rng, WORKERS, n_blocks),
        nannies=nannies,
        scattered=backend == "dask" and bool(rng.random() < 0.2),
        as_list=bool(rng.random() < 0.3) and app != GRAPHS,
        as_split=bool(rng.random() < 0.5) and app != GRAPHS,
        materialize=(False, True, "auto")[int(rng.integers(3))],
        schedule=schedule,
        partitions_per_location=None if schedule else [None, 1, 2][int(rng.integers(3))],
        faults=_faults(rng, backend, nannies),
        prefetch=("auto", 3, False)[int(rng.integers(3))],
    )


def _heights(rng: np.random.Generator, n_rows: int, n_blocks: int) -> tuple[int, ...]:
    """Uneven heights of blocks, some of them zero where there are many."""
    cuts = np.sort(rng.integers(0, n_rows + 1, n_blocks - 1))
    return tuple(np.diff([0, *cuts.tolist(), n_rows]).tolist())


def _numbers(rng: np.random.Generator, below: int, count: int) -> tuple[int, ...]:
    return tuple(rng.integers(0, below, count).tolist())


def _faults(rng: np.random.Generator, backend: str, nannies: bool) -> tuple[Fault, ...]:
    weights = {
        kind: weight
        for kind, weight in KINDS[backend].items()
        if not (nannies and kind in LINK_KINDS)
    }
    shares = np.array(list(weights.values()))
    kinds = rng.choice(list(weights), size=int(rng.integers(1, 5)), p=shares / shares.sum())
    faults = [
        Fault(
            str(kind),
            at=round(float(rng.random() * SPAN), 3),
            target=int(rng.integers(1000)),
            seconds=round(float(0.2 + 1.3 * rng.random()), 3),
        )
        for kind in kinds
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at))
