"""Time passes over many small blocks, over batches of them, and over the same rows in one array.

    python benchmarks/materialize.py --rows 200000 --rounds 7

The decision of `split(..., materialize="auto")` is based on this. For typical user functions
(vectorised NumPy, called once per block) and several numbers of rows per block, it prints the time
of a pass over blocks, of one over `spliter.batches` of them and of concatenating the blocks, as
multiples of a pass over one array. Last is the block size at which the calls of a pass cost as much
as copying: `spliter._planning.reuse.CALL_NBYTES` is derived from it. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_argmin

from spliter import batches
from spliter.backend import concatenate

Floats = npt.NDArray[np.float64]
Blocks = Iterable[Floats]


def k_means_pass(blocks: Blocks, columns: int) -> Floats:
    """Sum the points of each cluster, as a user would write it."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, columns))
    squares = (centers**2).sum(axis=1)
    sums = np.zeros((8, columns))
    for block in blocks:
        labels = (squares - 2 * block @ centers.T).argmin(axis=1)
        np.add.at(sums, labels, block)
    return sums


def library_pass(blocks: Blocks, columns: int) -> Floats:
    """Find the nearest centres with scikit-learn, which validates its input on every call."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, columns))
    counts = np.zeros(8)
    for block in blocks:
        counts += np.bincount(pairwise_distances_argmin(block, centers), minlength=8)
    return counts


def gradient_pass(blocks: Blocks, columns: int) -> Floats:
    """Add up the gradient of a logistic regression."""
    weights = np.linspace(-1, 1, columns)
    gradient = np.zeros(columns)
    for block in blocks:
        gradient += block.T @ (1 / (1 + np.exp(-(block @ weights))))
    return gradient


def light_pass(blocks: Blocks, columns: int) -> Floats:
    """Add up the lengths of the rows."""
    total = np.zeros(1)
    for block in blocks:
        total += np.sqrt((block**2).sum(axis=1)).sum()
    return total


PASSES: dict[str, Callable[[Blocks, int], Floats]] = {
    "k-means": k_means_pass,
    "scikit-learn": library_pass,
    "gradient": gradient_pass,
    "light": light_pass,
}


def seconds(call: Callable[[], Any]) -> float:
    """Return the duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--per-block", type=int, nargs="+", default=[10, 50, 100, 200, 500, 1000, 2000]
    )
    parser.add_argument("--passes", nargs="+", default=[*PASSES], choices=PASSES)
    options = parser.parse_args(arguments)
    whole = np.random.default_rng(0).random((options.rows, options.columns))
    row = ("{:>13} {:>15}" + " {:>12}" * 4 + "\n").format
    names = ("by blocks", "by batches", "copying", "equal, kB")
    sys.stdout.write(row("pass", "rows per block", *names))
    for name in options.passes:
        function = PASSES[name]
        for per_block in options.per_block:
            blocks = [whole[at : at + per_block].copy() for at in range(0, options.rows, per_block)]
            calls: list[Callable[[], Any]] = [
                partial(function, [whole], options.columns),
                partial(function, blocks, options.columns),
                lambda: function(batches(blocks), options.columns),  # noqa: B023 - called in this round
                partial(concatenate, blocks),
            ]
            times = [[seconds(call) for call in calls] for _ in range(options.rounds + 1)][1:]
            by_blocks, by_batches, copied = (
                statistics.median(each[way] / each[0] for each in times) for way in (1, 2, 3)
            )
            equal = (by_blocks - 1) / copied * per_block * whole[0].nbytes / 1000
            ratios = (f"{ratio:.2f}" for ratio in (by_blocks, by_batches, copied))
            sys.stdout.write(row(name, per_block, *ratios, f"{equal:.0f}"))


if __name__ == "__main__":
    main()
