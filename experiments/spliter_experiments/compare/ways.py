"""Names and descriptions of the ways to compute a result.

Apart from the apps, which define how a way runs, so that the command's help imports no app.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FLOOR: Final = "floor"
"""Plain processes without an engine, one per core."""

SKLEARN: Final = "sklearn"
"""scikit-learn in one process, with one thread per core."""

JOBLIB: Final = "joblib"
NUMBA: Final = "numba"

PARTITIONED: Final = "dask-partitioned"

IDEAL: Final = "ideal"
"""A lower bound that is computed from the time of the blocks."""

WORK: Final = "work"
"""The work alone, without reading."""

ONE_PROCESS: Final = (SKLEARN, JOBLIB, NUMBA)
"""Ways in one process on this machine, with one thread per core."""

OFF_CLUSTER: Final = (*ONE_PROCESS, FLOOR, IDEAL, WORK)

SCHEDULED: Final = ("static", "mfsc", "fiss", "tss", "gss", "fac2", "ss")
"""Schedules that are compared, those with the fewest tasks first."""

WAYS: Final = {
    "sum": ("spliter", "per-block", "rechunk-p2p", "rechunk-tasks", "dask", FLOOR),
    "histogram": (
        "spliter",
        "per-block",
        "rechunk-p2p",
        "rechunk-tasks",
        "dask",
        PARTITIONED,
        FLOOR,
    ),
    "kmeans": (
        "spliter",
        "spliter-materialized",
        "spliter-auto",
        "per-block",
        "rechunk-p2p",
        "rechunk-tasks",
        "by-hand",
        "dask-ml",
        SKLEARN,
        FLOOR,
    ),
    "csvm": (
        "spliter",
        "spliter-materialized",
        "per-block",
        "per-block-paper",
        "rechunk-p2p",
        "rechunk-tasks",
        SKLEARN,
        FLOOR,
    ),
    "knn": (
        "spliter",
        "per-block",
        "per-block-paper",
        "rechunk-p2p",
        "rechunk-tasks",
        SKLEARN,
        FLOOR,
    ),
    "schedules": (
        "spliter",
        *SCHEDULED,
        "fac2-team",
        "ss-team",
        "auto",
        "per-block",
        JOBLIB,
        NUMBA,
        IDEAL,
    ),
    "prefetch": ("spliter", "spliter-plain", "per-block", "window", "slices", "dask", WORK),
    "programs": ("dask", "dask-fused", "dask-rechunk", PARTITIONED),
    "pipeline": ("pipeline", "plain", NUMBA, "numexpr", "blosc2", "dask", "polars", "processes"),
}
"""Ways of each app, in the order of the tables."""

MEANINGS: Final = {
    "spliter": "one task per partition; no block moves",
    "spliter-materialized": "the same, each partition's blocks concatenated first",
    "spliter-auto": "the same, concatenated where that pays",
    "per-block": "one task per block",
    "per-block-paper": "one task per block, as the paper's program has it",
    "per-block-affinity": "one task per block, pinned to the block's node",
    "rechunk-p2p": "rechunk to one chunk per core (P2P), then one task per chunk",
    "rechunk-tasks": "the same, rechunked by ordinary tasks",
    "streaming-split": "Ray Data's streaming_split, one consumer per core",
    "by-hand": "one task per worker in a graph written for Dask alone",
    "dask": "Dask's own collections, as they are",
    "dask-fused": "the same with the option optimization.fuse.active",
    "dask-rechunk": "the same after rechunk or repartition to one chunk per core; sums may round "
    "differently",
    PARTITIONED: "the same under partitioned(): one task per partition, Dask's own bits",
    "dask-ml": "dask_ml's estimator",
    **{kind: f"one task per partition of schedule {kind.upper()}" for kind in SCHEDULED},
    "fac2-team": "one task per worker, whose threads take the partitions of FAC2",
    "ss-team": "one task per worker, whose threads take the blocks one by one",
    "auto": "schedule AUTO: the third pass, cut by what the blocks took in the first two",
    JOBLIB: "threads of joblib in one process on this machine, each taking blocks in batches",
    NUMBA: "a loop compiled by numba (prange) in one process on this machine",
    IDEAL: "the time that the blocks take in plain processes, over the number of cores",
    "spliter-plain": "the same, without reading ahead",
    "window": "a window over a pool of threads, written by hand",
    "slices": "reads of eight blocks at once",
    "pipeline": "the program in batches that fit the cache, a thread per core",
    "plain": "the program as it is, of NumPy, pandas or another library",
    "numexpr": "one expression, evaluated by numexpr",
    "blosc2": "the program, fused by blosc2.jit",
    "polars": "the program, written for polars",
    "processes": "the program on parts of its data, in a process per core",
    WORK: "the work alone on one core, without reading",
    SKLEARN: "scikit-learn in one process on this machine",
    FLOOR: "the same kernel in plain processes, no engine: the least it can take, but for noise",
}
"""One-line description of each way."""


def legend(ways: Iterable[str]) -> list[str]:
    """Return a line ``name: description`` for each way.

    Examples
    --------
    >>> legend(["per-block"])
    ['per-block: one task per block']
    """
    return [f"{way}: {MEANINGS[way]}" for way in ways]
