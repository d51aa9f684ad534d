"""Time pandas alone on halves of its rows, in a thread each, beside a pipeline and the program.

    python benchmarks/halves.py --rounds 9

What threads can gain at most: pandas holds the interpreter lock in part of its calls. The programs
are written by hand for two threads; medians of interleaved rounds, as multiples of the pipeline.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pandas as pd

from spliter_experiments.pipelines.catalog import CATALOG

POOL = ThreadPoolExecutor(2)
KEYS = ["year", "sex"]


def halves(frame: Any) -> list[Any]:
    """Return the first and the second half of the rows."""
    middle = len(frame) // 2
    return [frame.iloc[:middle], frame.iloc[middle:]]


def sums(frame: Any) -> Any:
    """Return the births of each year and sex, as columns."""
    return frame.groupby(KEYS, as_index=False, sort=False)["births"].sum()


def births(names: Any) -> Any:
    """Do what the workload of this name does, in two threads."""
    parts = pd.concat(list(POOL.map(sums, halves(names))))
    totals = parts.groupby(KEYS, as_index=False)["births"].sum()

    def leslies(half: Any) -> Any:
        shares = half.merge(totals, on=KEYS, suffixes=("", "_total"))
        common = shares[shares["births"] / shares["births_total"] > 1e-5]
        return sums(common[common["name"].str.lower().str.contains("lesl", regex=False)])

    return pd.concat(list(POOL.map(leslies, halves(names)))).groupby(KEYS)["births"].sum()


def movielens(ratings: Any, users: Any, films: Any) -> Any:
    """Do what the workload of this name does, in two threads."""

    def parts(half: Any) -> tuple[Any, Any]:
        rated = half.merge(users, on="user").merge(films, on="film")
        counts = rated.groupby("title", as_index=False, sort=False)["rating"].count()
        rated = rated.assign(n=1, rating=rated["rating"].astype(float))
        by = rated.groupby(["title", "gender"], as_index=False, sort=False)
        return by[["rating", "n"]].sum(), counts

    found = list(POOL.map(parts, halves(ratings)))
    of_both = pd.concat([each for each, _ in found]).groupby(["title", "gender"]).sum()
    counts = pd.concat([each for _, each in found]).groupby("title")["rating"].sum()
    return (of_both["rating"] / of_both["n"]).unstack()[counts >= 250]


def seconds(call: Callable[[], Any]) -> float:
    """Return the duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    programs: dict[str, Callable[..., Any]] = {"births": births, "movielens": movielens}
    for name, program in programs.items():
        workload = CATALOG[name]
        given = workload.make(workload.rows, 0)
        ways = {way: workload.ways[way](*given) for way in ("pipeline", "plain")}
        ways["by hand"] = partial(program, *given)
        if not ways["by hand"]().equals(ways["plain"]()):
            raise SystemExit(f"{name} by hand has another result")
        times = [[seconds(run) for run in ways.values()] for _ in range(rounds + 1)][1:]
        for at, way in enumerate(ways):
            ratios = sorted(each[at] / each[0] for each in times)
            median = statistics.median(ratios)
            line = f"{name:<10} {way:<9} {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
            sys.stdout.write(line)


if __name__ == "__main__":
    main()
