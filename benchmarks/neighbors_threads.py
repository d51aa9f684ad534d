"""Compare ways to share one scikit-learn tree among threads: one object, shallow or full copies.

    python benchmarks/neighbors_threads.py

Prints, for each tree, how much faster threads answer queries than one thread, for three ways to
pass them the tree:

shared
    all threads query the same object;
objects
    each thread queries a shallow copy (``copy.copy``), which shares all arrays;
copies
    each thread queries a full copy, made beforehand (as in the paper).

Rounds are interleaved, the answers are compared, and medians are printed.
"""

from __future__ import annotations

import argparse
import copy
import os
import pickle
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.neighbors import BallTree, KDTree

from spliter_experiments.harness.runner import Answer, Bench, Contender, Judge, run_rounds


def measure(tree: Any, queries: Any, neighbors: int, threads: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of each way."""
    parts = np.array_split(queries, threads)
    copies = [pickle.loads(pickle.dumps(tree)) for _ in parts]
    with ThreadPoolExecutor(threads) as pool:

        def on_threads(query: Callable[[int], Any]) -> Any:
            return np.concatenate(list(pool.map(query, range(threads))))

        ways: dict[str, Callable[[], Any]] = {
            "one thread": lambda: tree.query(queries, neighbors)[1],
            "shared": lambda: on_threads(lambda at: tree.query(parts[at], neighbors)[1]),
            "objects": lambda: on_threads(
                lambda at: copy.copy(tree).query(parts[at], neighbors)[1]
            ),
            "copies": lambda: on_threads(lambda at: copies[at].query(parts[at], neighbors)[1]),
        }
        judge = Judge(lambda one, other: bool(np.array_equal(one, other)))
        contenders = [
            Contender(way, lambda run=run: Answer(run()))  # type: ignore[misc]
            for way, run in ways.items()
        ]
        todo = dict.fromkeys(range(1, rounds + 1), tuple(ways))
        found = list(run_rounds(Bench(judge), contenders, todo, seed=0))
    return {way: statistics.median(one.seconds for one in found if one.way == way) for way in ways}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--dims", type=int, default=8)
    parser.add_argument("--neighbors", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    points = rng.normal(size=(given.points, given.dims))
    queries = rng.normal(size=(given.queries, given.dims))
    for kind in (KDTree, BallTree):
        taken = measure(kind(points), queries, given.neighbors, given.threads, given.rounds)
        alone = taken.pop("one thread")
        faster = ", ".join(f"{way} {alone / seconds:.2f}x" for way, seconds in taken.items())
        print(f"{kind.__name__}: one thread {alone:.3f} s; {given.threads} threads: {faster}")


if __name__ == "__main__":
    main()
