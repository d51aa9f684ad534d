"""Kernels in this process: trees, k-means, small blocks, capture of calls, commits of layouts."""

from __future__ import annotations

import copy
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import BallTree, KDTree

from benchmarks.measure import Place, benchmark
from spliter import batches
from spliter import layout as lo
from spliter.backend import concatenate
from spliter.layout._kernels import KERNELS
from spliter.pipeline import options, pipeline
from spliter.pipeline._calls.graph import needed
from spliter.pipeline._capture.annotated import captured
from spliter.pipeline._options import CURRENT
from spliter.pipeline._planning.planner import next_stage
from spliter.pipeline._running.evaluate import LocalGraph
from spliter_apps.kmeans.kernel import partial_sums
from spliter_experiments.harness.table import Grid, quartiles
from spliter_experiments.layouts.patterns import pattern_of

Floats: TypeAlias = npt.NDArray[np.float64]
Blocks: TypeAlias = Iterable[Floats]


@benchmark
def tree_threads(
    points: int = 100_000, queries: int = 3_000, dims: int = 8, neighbors: int = 5
) -> Iterator[Place]:
    """Query one tree with threads that share it, have shallow copies of it, or full copies."""
    rng = np.random.default_rng(0)
    data, asked = rng.normal(size=(points, dims)), rng.normal(size=(queries, dims))
    threads = len(os.sched_getaffinity(0))
    parts = np.array_split(asked, threads)
    with ThreadPoolExecutor(threads) as pool:
        for kind in (KDTree, BallTree):
            tree = kind(data)
            copies = [pickle.loads(pickle.dumps(tree)) for _ in parts]
            ways: dict[str, Callable[[int], Any]] = {
                "one object": lambda _, tree=tree: tree,  # type: ignore[misc]
                "shallow copies": lambda _, tree=tree: copy.copy(tree),  # type: ignore[misc]
                "full copies": copies.__getitem__,
            }

            def on_threads(tree_of: Callable[[int], Any]) -> Any:
                found = pool.map(
                    lambda at: tree_of(at).query(parts[at], neighbors)[1], range(threads)
                )
                return np.concatenate(list(found))

            yield Place(
                kind.__name__,
                {
                    "one thread": partial(lambda tree: tree.query(asked, neighbors)[1], tree),
                    **{name: partial(on_threads, way) for name, way in ways.items()},
                },
                same=np.array_equal,
            )


@benchmark
def kmeans_kernel(rows: int = 1_000_000) -> Iterator[Place]:
    """Run the kernel of k-means over one block of 20 columns."""
    x = np.random.default_rng(0).normal(size=(rows, 20))
    yield Place(f"{rows:,} points", {"one pass": lambda: partial_sums([(x, None)], x[:8])})


def k_means_pass(blocks: Blocks, columns: int) -> Floats:
    """Sum the points of each cluster, as a user would write it."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, columns))
    squares = (centers**2).sum(axis=1)
    sums = np.zeros((8, columns))
    for block in blocks:
        np.add.at(sums, (squares - 2 * block @ centers.T).argmin(axis=1), block)
    return sums


def library_pass(blocks: Blocks, columns: int) -> Floats:
    """Find the nearest centres with scikit-learn, which validates its input on every call."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, columns))
    counts = np.zeros(8)
    for block in blocks:
        counts += np.bincount(pairwise_distances_argmin(block, centers), minlength=8)
    return counts


def gradient_pass(blocks: Blocks, columns: int) -> Floats:
    weights, gradient = np.linspace(-1, 1, columns), np.zeros(columns)
    for block in blocks:
        gradient += block.T @ (1 / (1 + np.exp(-(block @ weights))))
    return gradient


PASSES: Final = {"k-means": k_means_pass, "scikit-learn": library_pass, "gradient": gradient_pass}


@benchmark
def materialize(
    rounds: int, rows: int = 200_000, columns: int = 20, per_block: tuple[int, ...] = (50, 200)
) -> Iterator[Grid]:
    """Time passes over small blocks, over batches of them, and over the same rows in one array.

    The last column is the block size at which the calls of a pass cost as much as copying:
    `spliter._planning.reuse.CALL_NBYTES` is derived from it.
    """
    whole = np.random.default_rng(0).random((rows, columns))
    lines = []
    for name, function in PASSES.items():
        for size in per_block:
            blocks = [whole[at : at + size].copy() for at in range(0, rows, size)]
            taken = Place(
                name,
                {
                    "one array": partial(function, [whole], columns),
                    "blocks": partial(function, blocks, columns),
                    "batches": lambda: function(batches(blocks), columns),  # noqa: B023
                    "copying": partial(concatenate, blocks),
                },
            ).seconds(rounds)
            base = taken.pop("one array")
            ratios = {way: np.array(each) / base for way, each in taken.items()}
            medians = {way: float(np.median(each)) for way, each in ratios.items()}
            equal = (medians["blocks"] - 1) / medians["copying"] * size * whole[0].nbytes / 1000
            cells = (quartiles(each.tolist()) for each in ratios.values())
            lines.append((name, str(size), *cells, f"{equal:.0f}"))
    headings = ("pass", "rows per block", "by blocks", "by batches", "copying", "equal, kB")
    yield Grid(headings, tuple(lines))


CALLS, RUNS = 50, 100
NUMBERS = np.linspace(1.0, 2.0, 64)


def body(x: Any) -> Any:
    """Make 50 calls of ufuncs on 64 numbers."""
    y = x
    for _ in range(CALLS // 5):
        y = np.sqrt(y * 1.5 + x) - y / 2.0
    return y


def capture_once() -> Any:
    """Return the seconds of capture, of planning and of the whole, for all calls of all runs."""
    run, graphs = pipeline(body), [LocalGraph() for _ in range(RUNS)]
    at = [time.process_time()]
    results = [captured(body, graph, (NUMBERS,), {}) for graph in graphs]
    at.append(time.process_time())
    for graph, result in zip(graphs, results, strict=True):
        next_stage(needed(graph.pending), {result._node}, CURRENT.get())
    at.append(time.process_time())
    for _ in results:
        run(NUMBERS)
    at.append(time.process_time())
    return np.diff(at)


@benchmark
def pipeline_capture(rounds: int) -> Iterator[Grid]:
    """Time capture and planning of a call of a pipeline, and the whole: processor time."""
    with options(batch=len(NUMBERS), threads=1):
        found = [capture_once() for _ in range(rounds + 1)][1:]
    cells = (quartiles(each / (CALLS * RUNS) * 1e6) for each in np.transpose(found))
    yield Grid(("capture, us", "planning, us", "whole, us"), (tuple(cells),))


PATTERNS: Final = ("WRF_x_vec", "NAS_LU_x", "NAS_MG_x", "FFT2", "LAMMPS_full")


@benchmark
def layout_commit(rounds: int, cases: tuple[str, ...] = PATTERNS) -> Iterator[Grid]:
    """Time what committing a layout costs, and after how many uses compiling it has paid.

    Patterns have their middle size, and LLVM has started before. A dash says never.
    """
    lo.contiguous(3, lo.resized("f8", 0, 24)).commit("llvm")
    rows = tuple(commit_row(case, rounds) for case in cases)
    headings = ("pattern", "bytes", "first, ms", "later, ms", "NumPy, ms", "uses", "measured")
    yield Grid(headings, rows)


def commit_row(case: str, rounds: int) -> tuple[str, ...]:
    pattern = pattern_of(case, 1)
    layout, memory = pattern.layout, pattern.memory()
    out = np.empty(layout.size, np.uint8)
    llvm, plain = layout.commit("llvm"), layout.commit("numpy")
    calls: dict[str, Callable[[], Any]] = {
        "later": partial(layout.commit, "llvm"),
        "plain": partial(layout.commit, "numpy"),
        "llvm": partial(llvm.pack, memory, out),
        "numpy": partial(plain.pack, memory, out),
    }
    many = 20
    ways = {name: lambda call=call: [call() for _ in range(many)] for name, call in calls.items()}
    taken = Place(case, ways).seconds(rounds)
    first = Place(case, {"first": partial(layout.commit, "llvm")}, KERNELS._kernels.clear)
    medians = {name: statistics.median(each) / many for name, each in taken.items()}
    medians["first"] = statistics.median(first.seconds(rounds)["first"])
    saved = medians["numpy"] - medians["llvm"]
    measured = round((medians["first"] - medians["later"]) / saved) + 1 if saved > 0 else None
    times = (f"{medians[name] * 1e3:.3f}" for name in ("first", "later", "plain"))
    uses = (layout.commit().explain().uses, measured)
    counts = ("-" if each is None else f"{each:,}" for each in uses)
    return (case, f"{layout.size:,}", *times, *counts)
