"""Time a pass over many small blocks against one over the same rows in one array.

    python benchmarks/materialize.py --rows 200000 --rounds 7

The decision of `split(..., materialize="auto")` is based on this. For typical user functions
(vectorised NumPy, called once per block) and several numbers of rows per block, it prints the time
of a pass over blocks and of concatenating the blocks, both as multiples of a pass over one array,
and the block size at which the two costs are equal, counting calls alone:
`spliter._materialize.CALL_NBYTES` is derived from it. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_argmin

from spliter.backend import concatenate

Floats = npt.NDArray[np.float64]
Blocks = Iterable[Floats]


def k_means_pass(blocks: Blocks) -> Floats:
    """Sum the points of each cluster, as a user would write it."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, 20))
    squares = (centers**2).sum(axis=1)
    sums = np.zeros((8, 20))
    for block in blocks:
        labels = (squares - 2 * block @ centers.T).argmin(axis=1)
        np.add.at(sums, labels, block)
    return sums


def library_pass(blocks: Blocks) -> Floats:
    """Find the nearest centres with scikit-learn, which validates its input on every call."""
    centers = np.linspace(0, 1, 8)[:, None] * np.ones((1, 20))
    counts = np.zeros(8)
    for block in blocks:
        counts += np.bincount(pairwise_distances_argmin(block, centers), minlength=8)
    return counts


def gradient_pass(blocks: Blocks) -> Floats:
    """Add up the gradient of a logistic regression."""
    weights = np.linspace(-1, 1, 20)
    gradient = np.zeros(20)
    for block in blocks:
        gradient += block.T @ (1 / (1 + np.exp(-(block @ weights))))
    return gradient


PASSES: dict[str, Callable[[Blocks], Floats]] = {
    "k-means": k_means_pass,
    "scikit-learn": library_pass,
    "gradient": gradient_pass,
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--per-block", type=int, nargs="+", default=[10, 50, 100, 200, 500, 1000, 2000]
    )
    options = parser.parse_args(arguments)
    whole = np.random.default_rng(0).random((options.rows, 20))
    row = "{:>13} {:>15} {:>11} {:>8} {:>10}\n".format
    sys.stdout.write(row("pass", "rows per block", "by blocks", "copying", "equal, kB"))
    for name, function in PASSES.items():
        for per_block in options.per_block:
            blocks = [whole[at : at + per_block].copy() for at in range(0, options.rows, per_block)]
            times: list[tuple[float, float, float]] = []
            for _ in range(options.rounds + 1):
                by_blocks = seconds(lambda: function(blocks))  # noqa: B023 - called at once
                as_one = seconds(lambda: function([whole]))  # noqa: B023
                copying = seconds(lambda: concatenate(blocks))  # noqa: B023
                times.append((by_blocks, as_one, copying))
            ratio = statistics.median(blocked / one for blocked, one, _ in times[1:])
            copied = statistics.median(copying / one for _, one, copying in times[1:])
            equal = (ratio - 1) / copied * per_block * whole[0].nbytes / 1000
            sys.stdout.write(row(name, per_block, f"{ratio:.2f}", f"{copied:.2f}", f"{equal:.0f}"))


if __name__ == "__main__":
    main()
