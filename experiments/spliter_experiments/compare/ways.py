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

NUMBA: Final = "numba"

PARTITIONED: Final = "dask-partitioned"

OFF_CLUSTER: Final = (SKLEARN, FLOOR)

WAYS: Final = {
    app: tuple(names.split())
    for app, names in {
        "sum": "spliter per-block rechunk-p2p rechunk-tasks dask floor",
        "histogram": "spliter per-block rechunk-p2p rechunk-tasks dask dask-partitioned floor",
        "kmeans": "spliter spliter-materialized spliter-auto per-block rechunk-p2p "
        "rechunk-tasks by-hand dask-ml sklearn floor",
        "csvm": "spliter spliter-materialized per-block per-block-paper rechunk-p2p "
        "rechunk-tasks sklearn floor",
        "knn": "spliter per-block per-block-paper rechunk-p2p rechunk-tasks sklearn floor",
        "programs": "dask dask-fused dask-rechunk dask-partitioned",
        "layout": "llvm bound numpy views mpich openmpi mpich-packed openmpi-packed",
        "pipeline": "pipeline plain numba dask polars",
        "ahead": "map run levels dataloader gather one-by-one",
    }.items()
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
    NUMBA: "a loop compiled by numba, in one process on this machine",
    "pipeline": "the program in batches that fit the cache, a thread per core",
    "plain": "the program as it is, of NumPy, pandas or another library",
    "polars": "the program, written for polars",
    "map": "ahead(source).map: calls that wait for a record leave the thread to others",
    "run": "ahead(source).run: trial runs find the keys",
    "levels": "written by hand: all records of a level of references, then the next level",
    "dataloader": "asyncio.gather written by hand, with aiodataloader for the requests",
    "gather": "asyncio.gather written by hand, a request for each record",
    "one-by-one": "the plain program: it waits for each record",
    "llvm": "SplIter's packer, compiled",
    "bound": "the same packer, bound to its two buffers",
    "numpy": "SplIter's packer, with NumPy alone",
    "views": "NumPy's functions on views, field by field",
    "mpich": "MPICH's own datatype",
    "openmpi": "Open MPI's own datatype",
    "mpich-packed": "bytes packed by SplIter, sent by MPICH",
    "openmpi-packed": "bytes packed by SplIter, sent by Open MPI",
    SKLEARN: "scikit-learn in one process on this machine",
    FLOOR: "the same kernel in plain processes, no engine: the least it can take, but for noise",
}
"""One-line description of each way."""


def legend(ways: Iterable[str]) -> list[str]:
    """Return a line ``name: description`` for each way.

    >>> legend(["per-block"])
    ['per-block: one task per block']
    """
    return [f"{way}: {MEANINGS[way]}" for way in ways]
